"""Small problems of the multicategory machines."""

import numpy as np

from bmsvm import AltMSVM, LeastSquaresSVM, MSVMClassifier, OneVsRestSVC, kernels
from bmsvm.machines import MachineProblem, lee, weston_watkins

MACHINES = (MSVMClassifier, AltMSVM, LeastSquaresSVM, OneVsRestSVC)
LOSSES = (lee, weston_watkins)


def some_data(n=45, c=3, seed=0, apart=1.0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % c
    return rng.normal(size=(n, 3)) + apart * rng.normal(size=(c, 3))[labels], labels


def some_problem(loss=lee, *, gamma=0.3, kappa=0.0, lengthscale=1.5, weights=None, **data):
    X, labels = some_data(**data)
    gram = kernels.gram(kernels.Gaussian().at(lengthscale), X)
    weights = np.ones(len(X)) if weights is None else weights
    return MachineProblem(gram, labels, loss(labels.max() + 1), gamma, kappa, weights)
