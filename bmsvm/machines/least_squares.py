"""The least-squares support vector machine: ridge regression of the class codes."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from bmsvm.machines.base import KernelMachine
from bmsvm.machines.solver import Solution
from bmsvm.models.likelihoods import class_codes


class LeastSquaresSVM(KernelMachine):
    """Least-squares support vector machine of Suykens and Vandewalle (1999), for several classes.

    Class functions f that sum to zero, ``f = w0 + k(x)'W``, minimise ::

        sum_i s_i |f(x_i) - code_{y_i}|^2 / 2 + gamma/2 tr(W'KW) + kappa/2 |w0|^2

    where ``code_y`` is 1 at y and ``-1/(c - 1)`` elsewhere. The solution is that of one linear
    system. It is the mode of ``BMSVMClassifier(likelihood="squared")`` at given tau and sigma2 for
    ``gamma = tau (sigma2 + s^2)/sigma2`` and ``kappa = eta (sigma2 + s^2)/sigma2``; see
    ``docs/model.md``.

    Parameters and attributes are those of :class:`bmsvm.MSVMClassifier`. Every row is a support
    vector. ``tol`` is compared with the duality gap, which measures rounding errors only.

    Examples
    --------
    >>> from bmsvm import LeastSquaresSVM
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> model = LeastSquaresSVM(lengthscale=3.5, gamma=0.1).fit(X, y)
    >>> model.class_functions(X[:2]).shape
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
        """Solve ``(K + gamma S^-1) W + 1 w0' = C``, ``gamma 1'W = kappa w0'``; S = diag(s)."""
        codes = class_codes(len(self.classes_))[labels]
        kappa = float(self.intercept_precision)
        roots = np.sqrt(weights)
        system = roots[:, None] * gram * roots
        system[np.diag_indices_from(system)] += gamma
        factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True)
        ones = roots * scipy.linalg.cho_solve(factor, roots)
        solved = roots[:, None] * scipy.linalg.cho_solve(factor, roots[:, None] * codes)
        intercept = solved.sum(axis=0) / (ones.sum() + kappa / gamma)
        coefficients = solved - ones[:, None] * intercept
        functions = gram @ coefficients
        scores = intercept + functions
        penalty = 0.5 * gamma * np.sum(coefficients * functions)
        loss = weights @ self.losses(scores, labels)
        objective = loss + penalty + 0.5 * kappa * np.sum(intercept**2)
        dual = gamma * np.sum(coefficients * codes) - penalty
        dual -= 0.5 * gamma**2 * np.sum(coefficients**2 / weights[:, None])
        if kappa > 0:
            dual -= 0.5 * gamma**2 / kappa * np.sum(coefficients.sum(axis=0) ** 2)
        gap = float(abs(objective - dual))
        return Solution(gamma * coefficients, coefficients, intercept, scores, objective, gap)

    def losses(self, scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Half the squared distance of scores (n, c) from the codes of labels (n,), shape (n,)."""
        codes = class_codes(len(self.classes_))[labels]
        return 0.5 * np.sum((scores - codes) ** 2, axis=1)
