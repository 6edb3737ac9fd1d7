"""What the machines have in common: parameters, checks, kernels, tuning, prediction."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.linalg
from jax.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bmsvm import kernels
from bmsvm._validation import check_defined, check_positive, positive_numbers
from bmsvm.estimators.inputs import KernelInputs, check_flag
from bmsvm.inference.cross_validation import Fold, default_grid, make_folds
from bmsvm.kernels import STATIONARY, KernelFn
from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.losses import Loss
from bmsvm.machines.solver import solve
from bmsvm.machines.tuning import Fit, GramMachine, tune

__all__ = ["CertifiedMachine", "KernelMachine"]

GAMMAS = np.geomspace(1e-3, 10, 9)
"""Values of gamma that are tried unless others are given."""

TUNING_TOL = 1e-3
"""What ``tol`` is at the least while gamma and the lengthscale are chosen, by counting errors: of
the order of one part in 100,000 of what is minimised."""

GAMMA_RANGE = (1e-6, 1e6)
"""Values of gamma that solvers can be asked for: beyond them they lose the numbers, or hours."""

LARGEST_WEIGHT = 1e12
"""Weight of a row up to which solvers can be asked: a weight is a gamma divided by as much."""

BLOCK = 4096
"""Rows that are predicted at a time."""


class KernelMachine(KernelInputs, ClassifierMixin, BaseEstimator):
    """Base of the machines. A subclass says which by ``_machine``."""

    def __init__(
        self,
        *,
        kernel: KernelFn | str = "gaussian",
        lengthscale: ArrayLike | str = "scale",
        gamma: float | str = 1.0,
        intercept_precision: float = 0.0,
        standardize: bool = True,
        class_weight: dict | Literal["balanced"] | None = None,
        gamma_grid: ArrayLike | None = None,
        lengthscale_grid: ArrayLike | None = None,
        folds: Any = 5,
        tol: float = 1e-6,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.lengthscale = lengthscale
        self.gamma = gamma
        self.intercept_precision = intercept_precision
        self.standardize = standardize
        self.class_weight = class_weight
        self.gamma_grid = gamma_grid
        self.lengthscale_grid = lengthscale_grid
        self.folds = folds
        self.tol = tol
        self.random_state = random_state

    def _machine(self, n_classes: int, tol: float | None = None) -> GramMachine:
        """Return the machine for so many classes, with the settings of this estimator.

        ``tol`` takes the place of the estimator's own.
        """
        raise NotImplementedError

    # Fitting ---------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None) -> Any:
        """Fit the machine, having set gamma and the lengthscale where that is asked for.

        Parameters
        ----------
        X, y : array-like of shapes (n, p) and (n,)
            Rows, or their Gram matrix (n, n) with ``kernel="precomputed"``; and labels.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows: a row of weight 2 is a row given twice.
        """
        self._check_settings()
        X, labels, weights = self._checked_data(X, y, sample_weight)
        _check_size(weights)
        self._learn_inputs(X, weights)
        rows = self._as_the_kernel_sees(X)
        machine = self._machine(len(self.classes_))
        lengthscales = self._lengthscales(rows, weights)
        gammas = self._gammas()
        gram_at = self._gram_at(rows)
        self.tuning_ = None
        self.gamma_, self.lengthscale_ = float(gammas[0]), _plain(lengthscales[0])
        if _by_folds(self.gamma) or _by_folds(self.lengthscale):
            self.tuning_ = tune(
                self._machine(len(self.classes_), max(self.tol, TUNING_TOL)),
                gram_at,
                labels,
                weights,
                gammas=gammas,
                lengthscales=lengthscales,
                folds=self._make_folds(rows, labels),
            )
            self.gamma_, self.lengthscale_ = self.tuning_.gamma, self.tuning_.lengthscale
        self._adopt(machine.fit(gram_at(self.lengthscale_), labels, weights, self.gamma_), rows)
        return self

    def _check_settings(self) -> None:
        """Check what does not depend on the data."""
        kernels.kernel_at(self.kernel)
        if self._has_lengthscale() and not isinstance(self.lengthscale, str):
            kernels.kernel_at(self.kernel, self.lengthscale)
        check_flag("standardize", self.standardize)
        check_positive("tol", self.tol)
        if not _is_number(self.intercept_precision) or self.intercept_precision < 0:
            raise ValueError(
                "intercept_precision must be a finite number, 0 for an intercept without a prior; "
                f"got {self.intercept_precision!r}"
            )
        if isinstance(self.gamma, str):
            if self.gamma != "cv":
                raise ValueError(f'gamma must be a positive number or "cv"; got {self.gamma!r}')
        else:
            check_positive("gamma", self.gamma)
            _check_range("gamma", np.array([float(self.gamma)]))
        if isinstance(self.lengthscale, str):
            if self.lengthscale not in ("scale", "cv"):
                raise ValueError(
                    "lengthscale must be a positive number, one per feature, "
                    f'"scale" or "cv"; got {self.lengthscale!r}'
                )
            if self.lengthscale == "cv" and not self._has_lengthscale():
                raise ValueError(
                    f'lengthscale="cv" needs a kernel that has one: kernel must be '
                    f"one of {', '.join(map(repr, STATIONARY))}; got {self.kernel!r}"
                )
        for name in ("gamma", "lengthscale"):
            grid, value = getattr(self, f"{name}_grid"), getattr(self, name)
            if grid is None:
                continue
            if not _by_folds(value):
                raise ValueError(
                    f'{name}_grid is for {name}="cv"; got {name}_grid={grid!r} with '
                    f"{name}={value!r}"
                )
            _check_values(f"{name}_grid", grid)

    def _has_lengthscale(self) -> bool:
        return isinstance(self.kernel, str) and self.kernel in STATIONARY

    def _gammas(self) -> np.ndarray:
        if not isinstance(self.gamma, str):
            return np.array([float(self.gamma)])
        if self.gamma_grid is None:
            return GAMMAS
        return _check_range("gamma_grid", _check_values("gamma_grid", self.gamma_grid))

    def _lengthscales(self, rows: np.ndarray, weights: np.ndarray) -> Any:
        """Lengthscales to try, one where there is nothing to be found."""
        if not self._has_lengthscale():
            return np.ones(1)
        if not isinstance(self.lengthscale, str):
            return np.asarray(self.lengthscale, np.float64)[None]
        if self.lengthscale == "scale":
            centred = rows - np.average(rows, axis=0, weights=weights)
            total = np.average(np.sum(centred**2, axis=1), weights=weights)
            return np.array([np.sqrt(total) if total > 0 else 1.0])
        if self.lengthscale_grid is None:
            return default_grid(rows)[::2]
        return _check_values("lengthscale_grid", self.lengthscale_grid)

    def _make_folds(self, rows: np.ndarray, labels: np.ndarray) -> list[Fold]:
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        return make_folds(self.folds, rows, self.classes_, labels, seed, equal=False)

    def _gram_at(self, rows: np.ndarray) -> Callable[[Any], np.ndarray]:
        """Return a function from a lengthscale to the Gram matrix of the rows, which is checked."""
        name = "X" if self._precomputed(self.kernel) else "kernel"

        def gram_at(lengthscale: Any) -> np.ndarray:
            matrix, eps = kernels.check_gram(
                kernels.gram_of(self.kernel, rows, lengthscale), name=name
            )
            if not isinstance(self.kernel, str) or self._precomputed(self.kernel):
                _check_definite(matrix, eps, name)
            return matrix

        return gram_at

    def _adopt(self, fit: Fit, rows: np.ndarray) -> None:
        """Keep what prediction needs, if it is made of numbers."""
        if not all(np.all(np.isfinite(part)) for part in (fit.coefficients, fit.intercept)):
            raise ValueError(
                f"gamma={self.gamma_!r} takes the solution out of the numbers: a larger gamma, "
                "smaller weights of the rows or features of like size keep it in them"
            )
        support = np.flatnonzero(np.any(fit.coefficients != 0, axis=1))
        self._support = support
        self.support_ = support if self._kept is None else self._kept[support]
        self.kernel_ = self.kernel
        self.support_vectors_ = None if self._precomputed(self.kernel) else rows[support]
        self.coefficients_ = fit.coefficients[support]
        self.intercept_ = fit.intercept
        self.objective_, self.duality_gap_ = fit.objective, fit.gap
        self.n_iter_ = fit.steps
        self._warn_unless_exact()

    def _warn_unless_exact(self) -> None:
        """Warn where the duality gap is larger than was asked for."""
        if not self.duality_gap_ <= self.tol:
            warnings.warn(
                f"the duality gap is {self.duality_gap_:.2g}, more than tol={self.tol:g}: rounding "
                "errors leave no less; a larger gamma or a shorter lengthscale has less of them, "
                "and a larger tol says that it will do",
                ConvergenceWarning,
                stacklevel=4,
            )

    # Prediction ------------------------------------------------------------------------------

    def class_functions(self, X) -> np.ndarray:
        """Functions f of eq. (1), which sum to zero: shape (m, c)."""
        check_is_fitted(self, "coefficients_")
        rows = self._checked_rows(X, self.kernel_)
        values = np.empty((len(rows), len(self.classes_)))
        kernel = kernels.kernel_at(self.kernel_, self.lengthscale_)
        for first in range(0, len(rows), BLOCK):
            part = rows[first : first + BLOCK]
            if kernel is None:
                gram = part[:, self._support]
            else:
                gram = kernels.gram(kernel, part, self.support_vectors_)
            values[first : first + BLOCK] = self.intercept_ + gram @ self.coefficients_
        check_defined(values)
        return values

    def decision_function(self, X) -> np.ndarray:
        """Score of each class, shape (m, c); with two classes that of the second, shape (m,)."""
        functions = self.class_functions(X)
        return functions[:, 1] if functions.shape[1] == 2 else functions

    def predict(self, X) -> np.ndarray:
        """Class of the largest function at each row, the first of equals: shape (m,)."""
        best = np.argmax(self.class_functions(X), axis=1)
        return self.classes_[best]


class CertifiedMachine(KernelMachine):
    """Base of the machines that the solver of this package fits. A subclass gives ``_loss``."""

    def _loss(self, n_classes: int) -> Loss:
        """Loss of the machine."""
        raise NotImplementedError

    def _machine(self, n_classes: int, tol: float | None = None) -> GramMachine:
        return _Certified(
            self._loss(n_classes), float(self.intercept_precision), self.tol if tol is None else tol
        )


class _Certified:
    """A loss, fitted to Gram matrices to a certified duality gap."""

    def __init__(self, loss: Loss, intercept_precision: float, tol: float) -> None:
        self.loss, self.intercept_precision, self.tol = loss, intercept_precision, tol

    def _problem(self, gram, labels, weights, gamma: float) -> MachineProblem:
        return MachineProblem(gram, labels, self.loss, gamma, self.intercept_precision, weights)

    def fit(self, gram, labels, weights, gamma, start=None) -> Fit:
        problem = self._problem(gram, labels, weights, gamma)
        found = solve(problem, tol=self.tol, start=start)
        return Fit(*found[1:6], found.steps)

    def losses(self, scores, labels) -> np.ndarray:
        problem = self._problem(np.empty((0, 0)), labels, np.ones(len(labels)), 1.0)
        return np.sum(problem.upper * np.maximum(problem.margins(scores), 0), axis=1)


def _by_folds(value: object) -> bool:
    return isinstance(value, str) and value == "cv"


def _plain(value: np.ndarray) -> Any:
    return float(value) if np.ndim(value) == 0 else value


def _check_definite(matrix: np.ndarray, eps: float, name: str) -> None:
    """Raise ``ValueError`` unless a symmetric matrix is positive semi-definite, about."""
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and bool(np.isfinite(value))


def _check_range(name: str, gammas: np.ndarray) -> np.ndarray:
    """Return values of gamma that solvers can be asked for, or raise ``ValueError``."""
    lowest, highest = GAMMA_RANGE
    outside = gammas[(gammas < lowest) | (gammas > highest)]
    if outside.size:
        raise ValueError(f"{name} must be from {lowest:g} to {highest:g}; got {outside[0]!r}")
    return gammas


def _check_size(weights: np.ndarray) -> None:
    """Raise ``ValueError`` for weights of rows that solvers cannot be asked for."""
    if weights.max() > LARGEST_WEIGHT:
        raise ValueError(
            f"sample_weight times class_weight must be at most {LARGEST_WEIGHT:g}; got "
            f"{weights.max():g}: weights and gamma divided by the same number are the same machine"
        )


def _check_values(name: str, values: Any) -> np.ndarray:
    """Return positive numbers, shape (G,), or raise ``ValueError``."""
    array = positive_numbers(values)
    if array is None or array.ndim != 1:
        raise ValueError(
            f"{name} must be positive numbers, such as numpy.geomspace(0.001, 10, 9); "
            f"got {values!r}"
        )
    return array
