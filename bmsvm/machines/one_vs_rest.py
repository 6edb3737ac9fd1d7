"""One binary support vector machine for each class against the rest."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from bmsvm.machines.base import KernelMachine
from bmsvm.machines.dual import MachineProblem
from bmsvm.machines.losses import lee
from bmsvm.machines.solver import Solution, certified, solve
from bmsvm.machines.tuning import Fit, GramMachine

__all__ = ["OneVsRestSVC"]

MOST_STEPS = 10_000_000
"""Steps of ``SVC``, LIBSVM's own bound, which scikit-learn lifts: where rounding errors exceed
``tol`` it would go on for ever."""


class OneVsRestSVC(KernelMachine):
    """One-versus-rest binary support vector machines, scikit-learn's ``SVC`` each.

    Machine j, with labels t_i = 1 in class j and -1 elsewhere, minimises ::

        sum_i s_i (1 - t_i f_j(x_i))_+ + gamma/2 |h_j|^2 + kappa/2 w0_j^2

    which is ``SVC`` with C = 1/gamma where kappa = 0; two classes need one machine. ``predict`` is
    the class of the largest f_j; these do not sum to zero.

    Parameters and attributes are those of :class:`bmsvm.MSVMClassifier`, with this difference:
    ``tol`` is ``SVC``'s, on the violation of the optimality conditions. ``objective_`` is the sum
    over the machines and ``duality_gap_`` their largest gap, which is reported and not promised.
    ``SVC`` knows no prior of the intercept: with ``intercept_precision`` the solver of
    :class:`bmsvm.MSVMClassifier` takes its place, and ``tol`` is the duality gap. It does so too
    where ``SVC`` has not come to an end after ten million steps.

    Examples
    --------
    >>> from bmsvm import OneVsRestSVC
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> OneVsRestSVC(lengthscale=3.5).fit(X, y).class_functions(X[:2]).shape
    (2, 3)
    """

    def _machine(self, n_classes: int, tol: float | None = None) -> GramMachine:
        return _OneVsRest(
            n_classes, float(self.intercept_precision), self.tol if tol is None else tol
        )

    def _warn_unless_exact(self) -> None:
        """Warn of the gap where it was promised; ``SVC``'s is left to its reader."""
        if self.intercept_precision > 0:
            super()._warn_unless_exact()


class _OneVsRest:
    """Binary machines fitted to Gram matrices."""

    def __init__(self, n_classes: int, intercept_precision: float, tol: float) -> None:
        self.n_classes, self.intercept_precision, self.tol = n_classes, intercept_precision, tol

    def fit(self, gram, labels, weights, gamma, start=None) -> Fit:
        positive = (1,) if self.n_classes == 2 else range(self.n_classes)
        found = []
        for j in positive:
            first = None if start is None else np.column_stack([-start[:, j], start[:, j]])
            found.append(self._binary(gram, (labels == j).astype(int), weights, gamma, first))
        coefficients, intercept, scores = (
            np.stack([getattr(each, name)[..., 1] for each in found], axis=-1)
            for name in ("coefficients", "intercept", "scores")
        )
        if self.n_classes == 2:
            both = np.array([-1.0, 1.0])
            coefficients, intercept, scores = (
                part * both for part in (coefficients, intercept, scores)
            )
        return Fit(
            coefficients,
            intercept,
            scores,
            sum(each.objective for each in found),
            max(each.gap for each in found),
            max(each.steps for each in found),
        )

    def _binary(self, gram, labels, weights, gamma, start) -> Solution:
        # The MSVM of two classes has both f and -f in its penalty, and so half the gamma.
        problem = MachineProblem(
            gram, labels, lee(2), gamma / 2, self.intercept_precision / 2, weights
        )
        if not problem.free_intercept:
            return solve(problem, tol=self.tol, start=start)
        if len(np.unique(labels)) < 2:  # a fold without the class, or with nothing else
            sign = np.where(labels[0] == 1, 1.0, -1.0)
            return certified(problem, np.zeros((len(labels), 2)), sign * np.array([-1.0, 1.0]))
        machine = SVC(C=1.0 / gamma, kernel="precomputed", tol=self.tol, max_iter=MOST_STEPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(gram, labels, sample_weight=weights)
        if machine.fit_status_ != 0:  # it was stopped, or has met what is no number
            return solve(problem, tol=self.tol, start=start)
        dual = np.zeros((len(labels), 2))
        dual[machine.support_, 1 - labels[machine.support_]] = np.abs(machine.dual_coef_[0]) * gamma
        dual = np.minimum(dual, problem.upper)
        intercept = machine.intercept_[0] * np.array([-1.0, 1.0])
        return certified(problem, dual, intercept)._replace(steps=int(machine.n_iter_[0]))

    def losses(self, scores, labels) -> np.ndarray:
        targets = np.where(labels[:, None] == np.arange(self.n_classes), 1.0, -1.0)
        each = np.maximum(1 - targets * scores, 0)
        return each.sum(1) if self.n_classes > 2 else each[:, 0]
