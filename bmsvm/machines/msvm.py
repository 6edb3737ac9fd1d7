"""The multicategory machines of Lee, Lin and Wahba, and of Weston and Watkins."""

from __future__ import annotations

import numpy as np

from bmsvm.machines.base import KernelMachine
from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.losses import Loss, lee, weston_watkins
from bmsvm.machines.solver import Solution, solve


class _MulticategoryMachine(KernelMachine):
    """Base of the machines that :func:`bmsvm.machines.solve` fits."""

    def _loss(self) -> Loss:
        raise NotImplementedError

    def fit_gram(
        self,
        gram: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        gamma: float,
        start: np.ndarray | None = None,
        tol: float | None = None,
    ) -> Solution:
        """Fit the machine of ``classes_`` to a Gram matrix, without checks."""
        kappa = float(self.intercept_precision)
        problem = MachineProblem(gram, labels, self._loss(), gamma, kappa, weights)
        return solve(problem, tol=self.tol if tol is None else tol, start=start)

    def losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Loss of each row for scores (n, c) and class indices (n,), shape (n,)."""
        return self._loss().values(scores, labels)


class MSVMClassifier(_MulticategoryMachine):
    """Multicategory support vector machine of Lee, Lin and Wahba (2004), eqs. (1)-(3).

    Class functions f that sum to zero, ``f = w0 + k(x)'W``, minimise ::

        sum_i s_i sum_{j != y_i} (f_j(x_i) + d)_+ + gamma/2 tr(W'KW) + kappa/2 |w0|^2

    with d = 1/(c - 1). ``duality_gap_`` is an upper bound of the distance from the minimum. With
    kappa > 0 the solution is the mode of the hierarchical prior; see ``docs/msvm.md``.

    Parameters
    ----------
    kernel
        ``"gaussian"``, ``"laplacian"``, ``"matern32"``, ``"matern52"``, ``"linear"``,
        ``"precomputed"``, or a callable ``kernel(X1, X2) -> (n1, n2)`` such as a tinygp kernel.
    lengthscale
        theta of the kernel, in units of the standardised features: a number; one per feature;
        ``"scale"``, the square root of the total variance of the features; or ``"cv"``, chosen by
        cross-validation. Ignored for kernels without a lengthscale.
    gamma
        Regularisation: a number from 1e-6 to 1e6, or ``"cv"``.
    intercept_precision
        kappa. 0, as in (2), for an intercept without a penalty. ``eta / sigma2`` is the paper's
        prior.
    standardize
        ``"standard"``: features are scaled by their weighted mean and standard deviation.
        ``"robust"`` (or True, or ``"auto"``): by median and interquartile range of the rows of
        positive weight, with a smooth clip of outliers (:class:`bmsvm.scaling.Scaling`). False or
        None: not at all. Constant features become 0.
    class_weight
        Weights of the classes as a dict, ``"balanced"`` or None. They multiply ``sample_weight``.
    grid
        :class:`bmsvm.machines.Grid` of the values and folds of the cross-validation, or None for
        its defaults.
    tol
        Duality gap to reach.

    Attributes
    ----------
    classes_ : ndarray of shape (c,)
        The classes, sorted.
    coefficients_ : ndarray of shape (s, c)
        Rows of W that are not zero.
    intercept_ : ndarray of shape (c,)
        w0.
    support_ : ndarray of shape (s,)
        Row numbers of the support vectors in X.
    support_vectors_ : ndarray of shape (s, p)
        Support vectors, standardised; None with a precomputed kernel.
    objective_ : float
        Value of the objective.
    duality_gap_ : float
        ``objective_`` minus the value of the dual problem.
    gamma_, lengthscale_ : float
        Values used; an array (p,) for one lengthscale per feature.
    tuning_ : bmsvm.machines.Tuning or None
        Result of the cross-validation.
    scaling_ : bmsvm.scaling.Scaling or None
        Scaling of the features; None if they are not scaled.
    n_iter_ : int
        Number of interior-point steps.
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

    def _loss(self) -> Loss:
        return lee(len(self.classes_))


class AltMSVM(_MulticategoryMachine):
    """Multicategory support vector machine of Weston and Watkins (1999) and Guermeur (2002).

    Class functions that sum to zero minimise ::

        sum_i s_i sum_{j != y_i} (f_j(x_i) - f_{y_i}(x_i) + 1 + d)_+ + gamma/2 tr(W'KW)

    plus ``kappa/2 |w0|^2``, with d = 1/(c - 1). It is not Fisher consistent for three or more
    classes. Parameters and attributes are those of :class:`bmsvm.MSVMClassifier`.

    Examples
    --------
    >>> from bmsvm import AltMSVM
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(AltMSVM(lengthscale=3.5, gamma=0.1).fit(X, y).duality_gap_ <= 1e-6)
    True
    """

    def _loss(self) -> Loss:
        return weston_watkins(len(self.classes_))
