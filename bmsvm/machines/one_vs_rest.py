"""One-versus-rest binary support vector machines."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from bmsvm.machines.base import KernelMachine
from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.losses import lee
from bmsvm.machines.solver import Solution, certified, solve

MOST_STEPS = 10_000_000
"""Largest number of steps of ``SVC``, whose own default has no limit: where rounding errors exceed
``tol`` it would not end."""


class OneVsRestSVC(KernelMachine):
    """One-versus-rest binary support vector machines, each fitted by scikit-learn's ``SVC``.

    Machine j, with labels t_i = 1 in class j and -1 elsewhere, minimises ::

        sum_i s_i (1 - t_i f_j(x_i))_+ + gamma/2 |h_j|^2 + kappa/2 w0_j^2

    which is ``SVC`` with C = 1/gamma where kappa = 0. Two classes need one machine. ``predict``
    returns the class of the largest f_j. The functions do not sum to zero.

    Parameters and attributes are those of :class:`bmsvm.MSVMClassifier`, with these differences.
    ``tol`` is the tolerance of ``SVC``, on the violation of the optimality conditions.
    ``objective_`` is the sum over the machines. ``duality_gap_`` is their largest gap, which is
    reported but not guaranteed. ``SVC`` has no penalty of the intercept: with
    ``intercept_precision`` > 0 the solver of :class:`bmsvm.MSVMClassifier` is used, and ``tol`` is
    the duality gap. The same holds where ``SVC`` has not converged after ten million steps.

    Examples
    --------
    >>> from bmsvm import OneVsRestSVC
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> OneVsRestSVC(lengthscale=3.5).fit(X, y).class_functions(X[:2]).shape
    (2, 3)
    """

    def fit_gram(
        self,
        gram: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        gamma: float,
        start: np.ndarray | None = None,
        tol: float | None = None,
    ) -> Solution:
        """Fit one machine per class; with two classes the first is minus the second."""
        n_classes, tol = len(self.classes_), self.tol if tol is None else tol
        found = []
        for j in (1,) if n_classes == 2 else range(n_classes):
            first = None if start is None else np.column_stack([-start[:, j], start[:, j]])
            own = (labels == j).astype(int)
            found.append(self._fit_binary(gram, own, weights, gamma, first, tol))
        signs = np.array([-1.0, 1.0]) if n_classes == 2 else np.ones(n_classes)
        return Solution(
            np.stack([each.dual.sum(1) for each in found], axis=-1) * np.abs(signs),
            np.stack([each.coefficients[:, 1] for each in found], axis=-1) * signs,
            np.stack([each.intercept[1] for each in found], axis=-1) * signs,
            np.stack([each.scores[:, 1] for each in found], axis=-1) * signs,
            sum(each.objective for each in found),
            max(each.gap for each in found),
            max(each.rounds for each in found),
            max(each.steps for each in found),
        )

    def _fit_binary(
        self,
        gram: np.ndarray,
        labels: np.ndarray,
        weights: np.ndarray,
        gamma: float,
        start: np.ndarray | None,
        tol: float,
    ) -> Solution:
        # The penalty of the MSVM with two classes counts both f and -f, hence half of gamma.
        kappa = float(self.intercept_precision)
        problem = MachineProblem(gram, labels, lee(2), gamma / 2, kappa / 2, weights)
        signs = np.array([-1.0, 1.0])
        if kappa > 0:
            return solve(problem, tol=tol, start=start)
        if len(np.unique(labels)) < 2:  # a fold without the class, or with no other class
            return certified(problem, np.zeros((len(labels), 2)), signs * (2 * labels[0] - 1.0))
        machine = SVC(C=1.0 / gamma, kernel="precomputed", tol=tol, max_iter=MOST_STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(gram, labels, sample_weight=weights)
        if machine.fit_status_ != 0:  # stopped, or not finite
            return solve(problem, tol=tol, start=start)
        dual = np.zeros((len(labels), 2))
        dual[machine.support_, 1 - labels[machine.support_]] = np.abs(machine.dual_coef_[0]) * gamma
        dual = np.minimum(dual, problem.upper)
        found = certified(problem, dual, machine.intercept_[0] * signs)
        return found._replace(steps=int(machine.n_iter_[0]))

    def losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Sum of the hinge losses of the machines, shape (n,)."""
        targets = np.where(labels[:, None] == np.arange(len(self.classes_)), 1.0, -1.0)
        each = np.maximum(1 - targets * scores, 0)
        return each.sum(1) if len(self.classes_) > 2 else each[:, 0]

    def _warn_if_inexact(self) -> None:
        """Warn only where the gap is guaranteed: ``tol`` of ``SVC`` is no bound of it."""
        if self.intercept_precision > 0:
            super()._warn_if_inexact()
