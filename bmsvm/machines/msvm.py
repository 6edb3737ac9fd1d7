"""The multicategory support vector machine of Lee, Lin and Wahba."""

from __future__ import annotations

from bmsvm.machines.base import CertifiedMachine
from bmsvm.machines.losses import Loss, lee

__all__ = ["MSVMClassifier"]


class MSVMClassifier(CertifiedMachine):
    """Multicategory support vector machine of Lee, Lin and Wahba (2004), eqs. (1)-(3).

    Class functions f that sum to zero, ``f = w0 + k(x)'W``, minimise ::

        sum_i s_i sum_{j != y_i} (f_j(x_i) + d)_+ + gamma/2 tr(W'KW) + kappa/2 |w0|^2

    with d = 1/(c - 1). It is exact: ``duality_gap_`` bounds what could be gained. With kappa > 0 it
    is the mode of the hierarchical prior; see ``docs/msvm.md``.

    Parameters
    ----------
    kernel
        ``"gaussian"``, ``"matern32"``, ``"matern52"``, ``"linear"``, ``"precomputed"``, or a
        callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel.
    lengthscale
        theta of the kernel, in units of the standardised features: a number; one for each feature;
        ``"scale"``, the root of the features' total variance; or ``"cv"``, by the errors on rows
        held out. Kernels that have none do without.
    gamma
        Regularisation: a number from 1e-6 to 1e6, or ``"cv"``.
    intercept_precision
        kappa. 0, as in (2), leaves the intercept free. ``eta / sigma2`` is the paper's prior.
    standardize
        Whether features are brought to mean 0 and variance 1 first; constant ones to 0.
    class_weight
        Weights of the classes, as a dict; ``"balanced"``; or None. They multiply the weights of
        the rows.
    gamma_grid, lengthscale_grid
        Values to try where gamma or the lengthscale is set from the data. Default: nine gammas from
        0.001 to 10, seven lengthscales from 1/8 of the median distance to 8 times it.
    folds
        Number of folds of the cross-validation; a scikit-learn splitter, such as
        ``LeaveOneOut()``; or pairs (train, test) of row numbers.
    tol
        Duality gap to reach.
    random_state
        Seed of the folds, or a ``numpy.random.RandomState``.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The classes, sorted.
    coefficients_ : ndarray of shape (s, c)
        W, of the support rows only: all others are zero.
    intercept_ : ndarray of shape (c,)
        w0.
    support_ : ndarray of shape (s,)
        Numbers of the support rows in X.
    support_vectors_ : ndarray of shape (s, p)
        Support rows, standardised; None with a precomputed kernel.
    objective_ : float
        What was minimised.
    duality_gap_ : float
        ``objective_`` less the value of the dual, which no functions can go below.
    gamma_, lengthscale_ : float
        Values in use; the lengthscale may be one per feature.
    tuning_ : bmsvm.machines.Tuning or None
        What was tried where they were set from the data.
    n_iter_ : int
        Interior-point steps.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> from bmsvm import MSVMClassifier
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = MSVMClassifier(lengthscale=3.5, gamma=0.1).fit(X, y)
    >>> bool(model.duality_gap_ <= 1e-6)
    True
    >>> model.class_functions(X[:2]).shape
    (2, 3)
    """

    def _loss(self, n_classes: int) -> Loss:
        return lee(n_classes)
