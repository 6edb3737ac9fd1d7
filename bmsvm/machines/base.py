"""Base class of the machines: parameters, checks, kernels, tuning and prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import scipy.linalg
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from bmsvm._inputs import KernelInputs, is_precomputed
from bmsvm._validation import check_defined, check_positive
from bmsvm.kernels.covariance import gram
from bmsvm.kernels.factor import check_gram
from bmsvm.kernels.functions import (
    Kernel,
    KernelFn,
    Stationary,
    as_kernel,
    check_lengthscale,
    gram_of,
    median_distance,
)
from bmsvm.machines.solver import Solution
from bmsvm.machines.tuning import Grid, check_gamma_range, make_folds, tune
from bmsvm.scaling import Standardize, as_standardize

GAMMAS = np.geomspace(1e-3, 10, 9)
"""Default values of gamma in cross-validation."""

TUNING_TOL = 1e-3
"""Smallest ``tol`` during cross-validation, of the order of 1e-5 of the objective."""

LARGEST_WEIGHT = 1e12
"""Largest weight of a row. Weights act like 1/gamma, which is limited too."""

BLOCK = 4096
"""Number of rows that are predicted at a time."""


class KernelMachine(KernelInputs, ClassifierMixin, BaseEstimator):
    """Base of the machines. A subclass defines ``fit_gram`` and ``losses``."""

    def __init__(
        self,
        *,
        kernel: Kernel | KernelFn | str = "gaussian",
        lengthscale: ArrayLike | str = "scale",
        gamma: float | str = 1.0,
        intercept_precision: float = 0.0,
        standardize: Standardize = "standard",
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        grid: Grid | None = None,
        tol: float = 1e-6,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.gamma = gamma
        self.intercept_precision = intercept_precision
        self.standardize = standardize
        self.class_weight = class_weight
        self.grid = grid
        self.tol = tol

    classes_: np.ndarray

    def fit_gram(
        self,
        gram: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        gamma: float,
        start: np.ndarray | None = None,
        tol: float | None = None,
    ) -> Solution:
        """Fit the machine of ``classes_`` to a Gram matrix, without checks.

        Parameters
        ----------
        gram, labels, weights : ndarray of shapes (n, n), (n,) and (n,)
            K, class indices and weights of the rows.
        gamma, tol : float
            Regularisation and tolerance; the latter is by default that of the estimator.
        start : ndarray of shape (n, c), optional
            Approximate scores.
        """
        raise NotImplementedError

    def losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Loss of each row for scores (n, c) and class indices (n,), shape (n,)."""
        raise NotImplementedError

    # Fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        """Choose gamma and the lengthscale if they are ``"cv"``, and fit the machine.

        Parameters
        ----------
        X, y : array-like of shapes (n, p) and (n,)
            Rows and labels. With ``kernel="precomputed"`` X is the Gram matrix (n, n).
        sample_weight : array-like of shape (n,), optional
            Weights of the rows. Weight 2 is equivalent to giving the row twice.
        """
        self._check_settings()
        X, labels, weights = self._checked_data(X, y, sample_weight)
        if weights.max() > LARGEST_WEIGHT:
            raise ValueError(
                f"sample_weight times class_weight must be at most {LARGEST_WEIGHT:g}; got "
                f"{weights.max():g}: divide weights and gamma by the same number"
            )
        self._learn_inputs(X, weights)
        rows = self._standardized(X)
        gammas, lengthscales = self._gammas(), self._lengthscales(rows, weights)
        gram_at = self._gram_at(rows)
        self.tuning_ = None
        self.gamma_, self.lengthscale_ = float(gammas[0]), _plain(lengthscales[0])
        if _is_cv(self.gamma) or _is_cv(self.lengthscale):
            self.tuning_ = tune(
                partial(self.fit_gram, tol=max(self.tol, TUNING_TOL)),
                self.losses,
                gram_at,
                labels,
                weights,
                gammas=gammas,
                lengthscales=lengthscales,
                folds=make_folds(self._grid().folds, rows, labels),
            )
            self.gamma_, self.lengthscale_ = self.tuning_.gamma, self.tuning_.lengthscale
        self._adopt(self.fit_gram(gram_at(self.lengthscale_), labels, weights, self.gamma_), rows)
        return self

    def _check_settings(self) -> None:
        """Check everything that does not depend on the data."""
        as_kernel(self.kernel)
        as_standardize(self.standardize)
        check_positive("tol", self.tol)
        _check_not_negative("intercept_precision", self.intercept_precision)
        if isinstance(self.gamma, str) and self.gamma != "cv":
            raise ValueError(f'gamma must be a positive number or "cv"; got {self.gamma!r}')
        if not isinstance(self.gamma, str):
            check_positive("gamma", self.gamma)
            check_gamma_range("gamma", np.array([float(self.gamma)]))
        self._check_lengthscale()
        self._check_grid()

    def _check_lengthscale(self) -> None:
        if not isinstance(self.lengthscale, str):
            if self._has_lengthscale():
                check_lengthscale(self.lengthscale)
        elif self.lengthscale not in ("scale", "cv"):
            raise ValueError(
                "lengthscale must be a positive number, one per feature, "
                f'"scale" or "cv"; got {self.lengthscale!r}'
            )
        elif self.lengthscale == "cv" and not self._has_lengthscale():
            raise ValueError(
                'lengthscale="cv" needs a kernel with a lengthscale: kernel must be '
                f"one such as Gaussian or Laplacian; got {self.kernel!r}"
            )

    def _check_grid(self) -> None:
        if self.grid is None:
            return
        if not isinstance(self.grid, Grid):
            raise ValueError(f"grid must be a bmsvm.machines.Grid or None; got {self.grid!r}")
        for name in ("gamma", "lengthscale"):
            if getattr(self.grid, name) is not None and not _is_cv(getattr(self, name)):
                raise ValueError(
                    f'grid: values of {name} are used only with {name}="cv"; got '
                    f"{name}={getattr(self, name)!r}"
                )

    def _grid(self) -> Grid:
        return Grid() if self.grid is None else self.grid

    def _has_lengthscale(self) -> bool:
        return isinstance(as_kernel(self.kernel), Stationary)

    def _gammas(self) -> np.ndarray:
        """Values of gamma to compare, shape (G,)."""
        if not isinstance(self.gamma, str):
            return np.array([float(self.gamma)])
        values = self._grid().gamma
        return GAMMAS if values is None else np.asarray(values, np.float64)

    def _lengthscales(self, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Lengthscales to compare, shape (L,), or (1, p) for one per feature."""
        if not self._has_lengthscale():
            return np.ones(1)
        if not isinstance(self.lengthscale, str):
            return check_lengthscale(self.lengthscale, rows.shape[1])[None]
        if self.lengthscale == "scale":
            centred = rows - np.average(rows, axis=0, weights=weights)
            total = np.average(np.sum(centred**2, axis=1), weights=weights)
            return np.array([np.sqrt(total) if total > 0 else 1.0])
        values = self._grid().lengthscale
        if values is None:
            return median_distance(rows, as_kernel(self.kernel)) * np.geomspace(1 / 8, 8, 7)
        return np.asarray(values, np.float64)

    def _gram_at(self, rows: np.ndarray) -> Callable[[Any], np.ndarray]:
        """Return a function from a lengthscale to the checked Gram matrix of the rows."""
        own = is_precomputed(self.kernel) or not isinstance(self.kernel, str)
        name = "X" if is_precomputed(self.kernel) else "kernel"

        def gram_at(lengthscale: Any) -> np.ndarray:
            matrix, eps = check_gram(gram_of(as_kernel(self.kernel), rows, lengthscale), name=name)
            if own:
                _check_definite(matrix, eps, name)
            return matrix

        return gram_at

    def _adopt(self, found: Solution, rows: np.ndarray) -> None:
        """Set the fitted attributes."""
        if not all(np.all(np.isfinite(part)) for part in (found.coefficients, found.intercept)):
            raise ValueError(
                f"the solution for gamma={self.gamma_!r} is not finite: increase gamma, decrease "
                "the weights of the rows, or scale the features to similar sizes"
            )
        support = np.flatnonzero(np.any(found.coefficients != 0, axis=1))
        self.support_ = support if self.kept_rows_ is None else self.kept_rows_[support]
        self.kernel_ = self.kernel
        self.support_vectors_ = None if is_precomputed(self.kernel) else rows[support]
        self.coefficients_ = found.coefficients[support]
        self.intercept_ = found.intercept
        self.objective_, self.duality_gap_ = found.objective, found.gap
        self.n_iter_ = found.steps
        self._warn_if_inexact()

    def _warn_if_inexact(self) -> None:
        """Warn if the duality gap is larger than ``tol``."""
        if not self.duality_gap_ <= self.tol:
            warnings.warn(
                f"the duality gap is {self.duality_gap_:.2g}, more than tol={self.tol:g}, because "
                "of rounding errors: increase gamma or decrease the lengthscale to reduce them, or "
                "increase tol to accept this solution",
                ConvergenceWarning,
                stacklevel=4,
            )

    # Prediction ------------------------------------------------------------------------------

    def class_functions(self, X: Any) -> np.ndarray:
        """Functions f of eq. (1) at rows (m, p), shape (m, c)."""
        check_is_fitted(self, "coefficients_")
        rows = self.standardized_rows(X)
        columns = self.support_
        if self.kept_rows_ is not None:
            columns = np.searchsorted(self.kept_rows_, columns)
        values = np.empty((len(rows), len(self.classes_)))
        for first in range(0, len(rows), BLOCK):
            part = rows[first : first + BLOCK]
            if self.support_vectors_ is None:
                matrix = part[:, columns]
            else:
                kernel = as_kernel(self.kernel_).at(self.lengthscale_)
                matrix = gram(kernel, part, self.support_vectors_)
            values[first : first + BLOCK] = self.intercept_ + matrix @ self.coefficients_
        check_defined(values)
        return values

    def decision_function(self, X: Any) -> np.ndarray:
        """Score of each class, shape (m, c); with two classes of the second only, shape (m,)."""
        functions = self.class_functions(X)
        return functions[:, 1] if functions.shape[1] == 2 else functions

    def predict(self, X: Any) -> np.ndarray:
        """Class with the largest function at each row, shape (m,); the first in case of ties."""
        best = np.argmax(self.class_functions(X), axis=1)
        return self.classes_[best]


def _is_cv(value: object) -> bool:
    return isinstance(value, str) and value == "cv"


def _plain(value: np.ndarray) -> Any:
    return float(value) if np.ndim(value) == 0 else value


def _check_not_negative(name: str, value: Any) -> None:
    good = isinstance(value, int | float | np.number) and bool(np.isfinite(value)) and value >= 0
    if not good:
        raise ValueError(f"{name} must be a finite number, 0 or larger; got {value!r}")


def _check_definite(matrix: np.ndarray, eps: float, name: str) -> None:
    """Raise ``ValueError`` unless a matrix is positive semi-definite up to rounding errors."""
    shifted = matrix.copy()
    shifted[np.diag_indices_from(shifted)] += 100 * len(matrix) * eps * np.abs(matrix).max()
    try:
        scipy.linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        least = float(scipy.linalg.eigvalsh(matrix, subset_by_index=[0, 0])[0])
        raise ValueError(
            f"{name}: the Gram matrix must be positive semi-definite; its smallest eigenvalue is "
            f"{least:.3g}"
        ) from None
