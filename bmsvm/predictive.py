"""The predictive distribution, from which every reported prediction is computed.

``BMSVMClassifier.fit`` keeps a :class:`PredictiveDistribution` as ``model.predictive_``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm._threads import few_blas_threads
from bmsvm._validation import check_probability
from bmsvm.kernels.functions import Kernel, as_kernel
from bmsvm.models.likelihoods import exclusion_probabilities
from bmsvm.models.problem import Problem, chosen_rows
from bmsvm.posterior import Evaluated, Posterior
from bmsvm.prediction import uncertainty
from bmsvm.prediction.basis_error import probability_error
from bmsvm.prediction.calibration import Calibration, best_calibration, calibrated_draws
from bmsvm.prediction.conformal import HeldOutRows, conformal_sets
from bmsvm.prediction.evaluate import pad_rows
from bmsvm.prediction.leave_one_out import LARGEST_K
from bmsvm.prediction.logistic import averaged, logistic_modes
from bmsvm.prediction.squares import LeastSquares, Root, least_squares, roots_of

SQUARES_ROWS = 16384
"""With a basis of low rank least squares use this many rows, and those of leave-one-out."""

CACHED = ("basis_error", "held_out_rows")
"""Cached attributes, which are computed again on first access after unpickling."""

UNCALIBRATED = "of the posterior, not calibrated"
"""What is said of draws of the posterior beside draws of a predictive distribution."""

LABEL_STREAM = 3
"""Separates the random numbers of labels from those of the posterior."""


class PredictiveDraws(NamedTuple):
    """One draw of everything at new rows for each posterior draw.

    functions
        Class functions f of the posterior, shape (s, m, c).
    probabilities
        Class probabilities q, shape (s, m, c).
    labels
        Class indices y, drawn by q, shape (s, m).
    """

    functions: np.ndarray
    probabilities: np.ndarray
    labels: np.ndarray


class _HeldOut(NamedTuple):
    """Predictions of training rows without their labels.

    Labels and weights of the rows (n,), draws (n, c, s), weights of these (n, s), Pareto's k (n,),
    and log probabilities of least squares (n, c) or None.
    """

    labels: np.ndarray
    row_weights: np.ndarray
    draws: np.ndarray
    draw_weights: np.ndarray
    pareto_k: np.ndarray
    squares: np.ndarray | None


@dataclass(frozen=True, eq=False)
class PredictiveDistribution:
    """Class probabilities of new rows, as draws.

    Rows are in the form that the kernel takes; see :class:`bmsvm.Posterior`.

    Parameters
    ----------
    posterior
        The posterior of the model.
    calibration
        How its draws are calibrated, and pooled with least squares
        (:mod:`bmsvm.prediction.calibration`); None: they are not calibrated.
    squares
        The least-squares fit, if the draws are pooled with one.
    large_k
        Share of the rows by which the draws are calibrated whose Pareto's k is above 0.7
        (:mod:`bmsvm.prediction.leave_one_out`); None: leave-one-out needed no importance weights.
    """

    posterior: Posterior
    calibration: Calibration | None = None
    squares: LeastSquares | None = None
    large_k: float | None = None

    @property
    def about(self) -> str:
        """Of what the probabilities are, in words."""
        if self.calibration is None:
            return UNCALIBRATED
        pooled = "" if self.squares is None else ", pooled with least squares"
        return f"of the predictive distribution: calibrated by leave-one-out{pooled}"

    def draws(self, rows: np.ndarray, *, functions: bool = False) -> Iterator[Evaluated]:
        """Draw class probabilities q of rows (m, p), block by block.

        Parameters
        ----------
        rows
            The rows.
        functions
            Whether to compute the class functions of the posterior too.
        """
        for part in self.posterior.evaluate(rows, functions=functions):
            q = self.posterior.positive(part.probabilities)
            if self.calibration is not None:
                other = None
                if self.squares is not None:
                    block, size = pad_rows(rows[part.rows])
                    with few_blas_threads(len(self.squares.points)):
                        other = self.squares.log_probabilities(block)[:size]
                q = calibrated_draws(q, other, self.calibration)
            yield part._replace(probabilities=q)

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Class probabilities, the mean of q over the draws: shape (m, c)."""
        means = np.empty((len(rows), self.posterior.n_classes))
        for part in self.draws(rows):
            means[part.rows] = part.probabilities.mean(axis=-1)
        return means

    def uncertainty(self, rows: np.ndarray, level: float = 0.9) -> uncertainty.Uncertainty:
        """Credible intervals of the probabilities, and their entropy split in two.

        Parameters
        ----------
        rows
            The rows.
        level
            Probability of the credible intervals.
        """
        check_probability("level", level)
        parts = [
            uncertainty.summarise(
                part.probabilities,
                exclusion_probabilities(part.functions, axis=1).mean(axis=-1),
                level,
            )
            for part in self.draws(rows, functions=True)
        ]
        return uncertainty.Uncertainty(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def sample(self, rows: np.ndarray) -> PredictiveDraws:
        """Draw functions, class probabilities and labels at rows (m, p).

        The random numbers of a label depend on the seed and on the index of its row.
        """
        parts = list(self.draws(rows, functions=True))
        functions = np.concatenate([part.functions for part in parts]).transpose(2, 0, 1)
        q = np.concatenate([part.probabilities for part in parts]).transpose(2, 0, 1)
        uniform = np.stack(
            [
                np.random.default_rng((self.posterior.seed, LABEL_STREAM, row)).uniform(size=len(q))
                for row in range(q.shape[1])
            ],
            axis=1,
        )
        below = np.cumsum(q, axis=-1)[..., :-1] <= uniform[..., None]
        return PredictiveDraws(functions, q, below.sum(axis=-1))

    def calibrated(self, *, squares: tuple[tuple[Kernel, Any], ...] = ()) -> PredictiveDistribution:
        """Return the distribution calibrated by leave-one-out.

        Parameters
        ----------
        squares
            Kernels of the least-squares fits that are averaged and pooled with the draws, each with
            its theta. None in place of theta: fits at several values are averaged, but not under
            ``squared``. With a basis of low rank theta is that of the basis; if theta was sampled
            on a grid, the value nearest to its posterior median. Empty: the draws are not pooled.
        """
        held_out, fit = self._held_out(squares)
        calibration = best_calibration(
            held_out.draws, held_out.draw_weights, held_out.squares, *held_out[:2]
        )
        large_k = None
        if self.posterior.problem.likelihood != "squared":
            large_k = float(np.mean(held_out.pareto_k > LARGEST_K))
        return replace(self, calibration=calibration, squares=fit, large_k=large_k)

    def _held_out(
        self, squares: tuple[tuple[Kernel, Any], ...]
    ) -> tuple[_HeldOut, LeastSquares | None]:
        """Predict training rows without their labels; fit least squares if kernels are given."""
        posterior, problem = self.posterior, self.posterior.problem
        n = len(posterior.training_rows)  # rows beyond are spare ones
        labels = np.asarray(problem.labels)
        weights = np.ones(len(labels))
        if problem.row_weights is not None:
            weights = np.asarray(problem.row_weights, np.float64)
        draws, which = posterior.held_out_draws()
        real = which < n
        which, fit, logs = which[real], None, None
        if squares:
            low_rank = problem.basis_map is not None
            if low_rank:
                problem, theta = _one_basis(posterior)
                squares = tuple((kernel, theta) for kernel, _ in squares)
            fitted = np.union1d(which, chosen_rows(n, SQUARES_ROWS if low_rank else n))
            rows = posterior.training_rows
            roots: Iterable[Root] = (
                root
                for kernel, theta in squares
                for root in roots_of(problem, fitted, rows, kernel, theta)
            )
            data = (labels[fitted], problem.n_classes, weights[fitted])
            if problem.likelihood == "squared":
                (root,) = roots = list(roots)  # of one kernel and theta
            fit, every = least_squares(roots, *data)
            held = np.searchsorted(fitted, which)
            logs = every[held]
            if problem.likelihood == "squared":
                modes = logistic_modes(root, *data, held)
                fit, logs = averaged(fit, logs, modes, labels[which], weights[which])
        of_posterior = (draws.probabilities[real], draws.weights[real], draws.pareto_k[real])
        return _HeldOut(labels[which], weights[which], *of_posterior, logs), fit

    @functools.cached_property
    def basis_error(self) -> float | None:
        """Estimated mean distance of class probabilities from those of the exact Gram matrix.

        None if the Gram matrix is exact or is not approximated by landmarks
        (:mod:`bmsvm.prediction.basis_error`).
        """
        problem, n = self.posterior.problem, len(self.posterior.training_rows)
        if problem.basis_map is None or problem.basis_map.kind != "nystrom":
            return None
        problem, _ = _one_basis(self.posterior)
        with few_blas_threads(n):
            return probability_error(problem, n, as_kernel(self.posterior.kernel))

    @functools.cached_property
    def held_out_rows(self) -> HeldOutRows:
        """Training rows, each predicted without its label, for conformal sets.

        At most 2000 of them, chosen at random, if the Gram matrix is of low rank.
        """
        fit = self.squares
        pairs = () if fit is None else zip(fit.kernels, fit.lengthscales, strict=True)
        held_out, _ = self._held_out(tuple(pairs))
        q, weights = held_out.draws, held_out.draw_weights
        if self.calibration is not None:
            numbers = self.posterior.loo_draws
            q = calibrated_draws(q, held_out.squares, self.calibration, weights, numbers)
        means = np.einsum("ncs,ns->nc", q, weights)
        return HeldOutRows(held_out.labels, means, self.posterior.loo_draws, weights)

    def conformal_sets(
        self, rows: np.ndarray, level: float, *, by_class: bool = False
    ) -> np.ndarray:
        """Return conformal sets of classes (:mod:`bmsvm.prediction.conformal`): shape (m, c).

        Parameters
        ----------
        rows
            The rows.
        level
            Share of rows whose set should contain their class.
        by_class
            Whether the share should be reached within each class.
        """
        check_probability("level", level)
        held_out = self.held_out_rows
        parts = [
            conformal_sets(
                held_out, part.probabilities[:, :, held_out.draws], level, by_class=by_class
            )
            for part in self.draws(rows)
        ]
        return np.concatenate(parts)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in CACHED}


def _one_basis(posterior: Posterior) -> tuple[Problem, Any]:
    """Problem of one basis of low rank, and its theta; on a grid, at the posterior median."""
    problem = posterior.problem
    if problem.grid is None:
        return problem, posterior.lengthscale
    values = np.asarray(problem.grid.values)
    index = problem.grid.index_of(np.median(posterior.flat("lengthscale")))
    with jax.enable_x64(True):  # outside, JAX would round what it indexes
        return problem.at(jnp.asarray(index)), values[index]
