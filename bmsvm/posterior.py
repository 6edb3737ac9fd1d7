"""The posterior: draws of the chains, and all that is predicted from them.

``BMSVMClassifier.fit`` keeps a :class:`Posterior` as ``model.posterior_``. With draws of
``numpyro.infer.MCMC``: ``Posterior(mcmc.get_samples(True), problem, rows, kernel, lengthscale)``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm._progress import progress
from bmsvm._validation import check_defined, check_probability
from bmsvm.kernels.functions import Kernel, KernelFn, as_kernel
from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import (
    class_codes,
    class_probabilities,
    exclusion_probabilities,
    probabilities_given_functions,
    squared_scale,
)
from bmsvm.models.problem import Problem, some_rows
from bmsvm.models.quadrature import normal_points
from bmsvm.prediction import uncertainty
from bmsvm.prediction.calibration import NONE, Calibration, best_calibration, calibrate
from bmsvm.prediction.evaluate import (
    ROWS,
    Draws,
    Stage,
    functions_and_probabilities,
    log_mean_likelihoods,
    pad_rows,
)
from bmsvm.prediction.leave_one_out import LeaveOneOut, leave_one_out, leave_one_out_of_table
from bmsvm.prediction.stages import family_stages, stages_of
from bmsvm.rows import PiecewiseRows

__all__ = ["Evaluated", "Posterior", "PredictiveDraws"]

POINTS = 16
"""Points at which the noise of the scores is integrated, for each draw; a power of two."""

FINE_POINTS = 64
"""The same where entropies are computed, which are sensitive to its error."""

NOISE_STREAM, REMAINDER_STREAM = 1, 2
"""Set the two sequences of points apart."""

LOO_DRAWS = 400
"""Largest number of draws, evenly spaced, in leave-one-out for calibration."""

LOO_ROWS = 2000
"""Largest number of rows, evenly spaced, in leave-one-out where scores are integrated out."""

LOO_NODES = 64
"""Points at which leave-one-out for calibration integrates."""

TINY = float(np.finfo(np.float32).tiny)


class Evaluated(NamedTuple):
    """All draws at some rows.

    rows
        Which rows.
    functions
        Class functions, shape (m, c, s).
    probabilities
        Class probabilities p(y | f), the noise of the scores integrated, shape (m, c, s).

    What was not asked for is empty.
    """

    rows: slice
    functions: np.ndarray
    probabilities: np.ndarray


class PredictiveDraws(NamedTuple):
    """One draw of everything at new rows for each posterior draw.

    functions
        f, shape (s, m, c).
    scores
        z ~ N(f, sigma2), shape (s, m, c).
    probabilities
        p(y | z), shape (s, m, c).
    labels
        Class indices y, shape (s, m).

    Under ``squared``, which has a closed form for it, the label is drawn given f, with
    probabilities p(y | f), and then the scores given both.
    """

    functions: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior draws, and predictions from them.

    Rows are as the kernel sees them (standardised, if the training rows were), shape (m, p); or
    kernel values with the training rows, shape (m, n), if the kernel is precomputed.

    Parameters
    ----------
    samples
        Draws (chain, draw, ...) of ``noise_variance``, ``precision``, ``intercept`` (c,),
        ``weights`` (r, k), the kernel's parameters if they were sampled, and ``scores`` (n, c)
        unless they were integrated out.
    problem
        The prepared training data.
    training_rows
        Rows (n, p) it was prepared from; not used if the problem has a basis of low rank.
    kernel
        As given to :func:`bmsvm.prepare`.
    lengthscale
        theta, if it was fixed.
    calibration
        Of the class probabilities; see :meth:`calibrated`.
    remainder
        Whether new rows have the variance that the training rows leave to the Gaussian process, so
        that uncertainty grows away from the data. If not, functions are the kernel expansion (1),
        and vanish there.
    seed
        Seed of the points at which what is random beyond the draws is integrated.
    """

    samples: Mapping[str, np.ndarray]
    problem: Problem
    training_rows: Any
    kernel: Kernel | KernelFn | str = "gaussian"
    lengthscale: Any = None
    calibration: Calibration = NONE
    remainder: bool = True
    seed: int = 0

    # The draws ------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains and of draws in each."""
        return self.samples["precision"].shape  # type: ignore[return-value]

    @property
    def n_draws(self) -> int:
        """Number of draws of all chains."""
        return self.samples["precision"].size

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return self.problem.n_classes

    def flat(self, name: str) -> np.ndarray:
        """Draws of a site, flat over chains: shape (s, ...)."""
        value = np.asarray(self.samples[name])
        return value.reshape(self.n_draws, *value.shape[2:])

    def _points(self, per_draw: int, stream: int) -> np.ndarray:
        """Return standard normal points of each draw, shape (s, per_draw, k).

        They go to draws in the order of time, so that longer chains keep those of shorter ones.
        """
        chains, draws = self.shape
        order = np.arange(self.n_draws).reshape(draws, chains).T.ravel()
        seed = int(np.random.SeedSequence((self.seed, stream)).generate_state(1)[0])
        k = self.problem.n_columns
        points = normal_points(self.n_draws * per_draw, k, seed)
        return points.reshape(-1, per_draw, k)[order]

    def _draws(self, points: int) -> Draws:
        return Draws(
            intercept=self.flat("intercept"),
            noise_variance=self.flat("noise_variance"),
            precision=self.flat("precision"),
            outside=self._points(1, REMAINDER_STREAM)[:, 0],
            noise=self._points(points, NOISE_STREAM),
        )

    def _stages(self) -> Iterator[Stage]:
        """Draws by kernel; off a grid each has its own, which is factored again in each call."""
        family = self.problem.family
        return iter(self._fixed_stages) if family is None else family_stages(self.flat, family)

    @functools.cached_property
    def _fixed_stages(self) -> tuple[Stage, ...]:
        kernel = as_kernel(self.kernel)
        return stages_of(self.flat, self.problem, self.training_rows, kernel, self.lengthscale)

    def __getstate__(self) -> dict[str, Any]:
        fields = {**self.__dict__, "samples": dict(self.samples)}
        fields.pop("_fixed_stages", None)
        return fields

    # Predictions ----------------------------------------------------------------------------

    def evaluate(
        self,
        rows: np.ndarray | PiecewiseRows,
        *,
        functions: bool = True,
        probabilities: bool = True,
        points: int = POINTS,
        remainder: bool | None = None,
    ) -> Iterator[Evaluated]:
        """Evaluate all draws at rows (m, p), block by block.

        Parameters
        ----------
        rows
            The rows.
        functions, probabilities
            What to compute: class functions, class probabilities.
        points
            Points at which the noise of the scores is integrated, for each draw; a power of two.
        remainder
            Whether new rows have the variance that the training rows leave. Default: that of the
            posterior.
        """
        draws = self._draws(points)
        remainder = self.remainder if remainder is None else remainder
        with progress(len(rows), "predict", unit="row") as bar:
            for start in range(0, len(rows), ROWS):
                block, size = pad_rows(rows[start : start + ROWS])
                found = functions_and_probabilities(
                    self._stages(),
                    draws,
                    block,
                    coupling=self.problem.coupling,
                    likelihood=self.problem.likelihood,
                    remainder=remainder,
                    functions=functions,
                    probabilities=probabilities,
                )
                heights, chances = (part[:size] for part in found)
                for part in (heights, chances):
                    check_defined(part, start)
                yield Evaluated(slice(start, start + size), heights, chances)
                bar.update(size)

    def probabilities(self, rows: np.ndarray | PiecewiseRows) -> np.ndarray:
        """Class probabilities, averaged over the draws and calibrated: shape (m, c)."""
        means = np.empty((len(rows), self.n_classes))
        for part in self.evaluate(rows, functions=False):
            means[part.rows] = part.probabilities.mean(axis=-1, dtype=np.float64)
        # Probabilities are positive; zeros come from too few draws, or the range of float32.
        probit = self.problem.likelihood == "probit"
        means = means + (0.5 / (self.n_draws * POINTS) if probit else TINY)
        return calibrate(means / means.sum(axis=1, keepdims=True), self.calibration)

    def functions(self, rows: np.ndarray | PiecewiseRows) -> np.ndarray:
        """Posterior means of the class functions, which sum to zero: shape (m, c)."""
        means = np.empty((len(rows), self.n_classes))
        # The remainder has mean zero.
        for part in self.evaluate(rows, probabilities=False, remainder=False):
            means[part.rows] = part.functions.mean(axis=-1)
        return means

    def exclusion(self, rows: np.ndarray | PiecewiseRows) -> np.ndarray:
        """Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)``: shape (m, c).

        Eq. (20). The paper predicts the class for which it is smallest.
        """
        means = np.empty((len(rows), self.n_classes))
        for part in self.evaluate(rows, probabilities=False):
            means[part.rows] = exclusion_probabilities(part.functions, axis=1).mean(axis=-1)
        return means

    def uncertainty(
        self, rows: np.ndarray | PiecewiseRows, level: float = 0.9
    ) -> uncertainty.Uncertainty:
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
                exclusion_probabilities(part.functions, axis=1),
                level,
                self.calibration,
            )
            for part in self.evaluate(rows, points=FINE_POINTS)
        ]
        whole = uncertainty.Uncertainty(
            *(np.concatenate(each) for each in zip(*parts, strict=True))
        )
        return whole._replace(probabilities=self.probabilities(rows))

    def draw(self, rows: np.ndarray) -> PredictiveDraws:
        """Draw functions, scores and labels at rows (m, p).

        A posterior draw is one function of all rows, up to the remainder, which the training rows
        do not determine: that is drawn for each row on its own, and so are the noise of the scores
        and the labels. The random numbers of a row depend on the seed and on its index.
        """
        n_draws, n_classes, m = self.n_draws, self.n_classes, len(rows)
        k = self.problem.n_columns
        to_classes = class_map(self.problem.coupling, n_classes)
        noise_scale = np.sqrt(self.flat("noise_variance"))
        ratio = noise_scale / np.sqrt(self.flat("precision"))
        functions = np.empty((n_draws, m, n_classes))
        scores, uniform = np.empty_like(functions), np.empty((n_draws, m))
        for part in self.evaluate(rows, probabilities=False, points=1, remainder=False):
            block, _ = pad_rows(rows[part.rows])
            spread = np.empty((ROWS, n_draws))
            for stage in self._stages():
                _, root = stage.basis(block, self.remainder)
                spread[:, stage.draws] = root[:, None] * ratio[stage.draws]
            for i in range(len(part.functions)):
                row = part.rows.start + i
                random = np.random.default_rng((self.seed, row))
                outside, noise = random.standard_normal((2, n_draws, k)) @ to_classes
                functions[:, row] = part.functions[i].T + spread[i, :, None] * outside
                scores[:, row] = noise_scale[:, None] * noise
                uniform[:, row] = random.uniform(size=n_draws)
        if self.problem.likelihood == "squared":
            return self._labels_then_scores(functions, scores, uniform)
        scores += functions
        with jax.enable_x64(True):
            chances = np.asarray(class_probabilities(jnp.asarray(scores), self.problem.likelihood))
        return PredictiveDraws(functions, scores, chances, _drawn(chances, uniform))

    def _labels_then_scores(
        self, functions: np.ndarray, noise: np.ndarray, uniform: np.ndarray
    ) -> PredictiveDraws:
        """Draw labels given functions (s, m, c), and then scores, under ``squared``.

        ``noise`` is that of scores whose label is not known, and ``uniform`` (s, m) draws labels.
        """
        sigma2, c = self.flat("noise_variance")[:, None], self.n_classes
        with jax.enable_x64(True):
            by_class = probabilities_given_functions(
                list(jnp.moveaxis(jnp.asarray(functions), -1, 0)), (), sigma2, "squared"
            )
        chances = np.stack([np.asarray(p) for p in by_class], axis=-1)
        labels = _drawn(chances, uniform)
        share = (sigma2 / (sigma2 + squared_scale(c) ** 2))[..., None]
        mean = functions + share * (class_codes(c)[labels] - functions)
        return PredictiveDraws(functions, mean + np.sqrt(1 - share) * noise, chances, labels)

    # The training rows ----------------------------------------------------------------------

    def log_likelihood(self, functions: np.ndarray) -> np.ndarray:
        """``log E p(y_i | z_i)``, ``z_i ~ N(f_i, sigma2)``, of each draw and training row: (s, n).

        Under ``hinge`` p(y | z) is the pseudo-likelihood (11), and under ``squared`` that of the
        least-squares SVM, integrated in closed form. Under ``probit`` none of the points
        at which the noise is integrated may have the label; then half a point has it.

        Parameters
        ----------
        functions
            Class functions f at the training rows, shape (s, n, c), such as those of :meth:`draw`.
        """
        problem, n = self.problem, functions.shape[1]
        if problem.coupling != "sum_to_zero":
            raise ValueError(
                'log_likelihood needs coupling="sum_to_zero", in which the noise of a row does not '
                f"depend on its label; got {problem.coupling!r}: pass log_likelihood=False"
            )
        scale = np.sqrt(self.flat("noise_variance"))[:, None, None]
        points = self._points(FINE_POINTS, NOISE_STREAM)
        noise = scale * (points @ class_map(problem.coupling, problem.n_classes))
        weights = problem.row_weights
        return log_mean_likelihoods(
            functions,
            noise,
            self.flat("noise_variance"),
            np.asarray(problem.labels)[:n],
            None if weights is None else np.asarray(weights)[:n],
            likelihood=problem.likelihood,
        )

    def leave_one_out(self, *, max_draws: int | None = None, num_nodes: int = 128) -> LeaveOneOut:
        """Predict each training row as if its label had not been seen, by importance sampling.

        Under ``squared`` from the table of the posterior, exactly, and not from draws. Of more than
        2000 rows so many, evenly spaced, if the scores were integrated out.

        Parameters
        ----------
        max_draws
            Largest number of draws to use, evenly spaced. Default: all.
        num_nodes
            Quasi-random points at which scores are integrated; a power of two.
        """
        return self._leave_one_out(max_draws, num_nodes)[0]

    def _leave_one_out(self, max_draws: int | None, num_nodes: int) -> tuple[LeaveOneOut, Problem]:
        problem, total = self.problem, self.n_draws
        if problem.likelihood == "squared":
            chosen = None if "scores" in self.samples else LOO_ROWS
            return leave_one_out_of_table(problem, num_nodes=num_nodes, max_rows=chosen)
        count = total if max_draws is None else min(total, max_draws)
        which = np.unique(np.linspace(0, total - 1, count).astype(int))
        sites = ["scores"] if "scores" in self.samples else ["weights", "intercept"]
        if "scores" not in self.samples:
            problem = some_rows(problem, LOO_ROWS)
        sites += [
            name for name in ("noise_variance", "precision", "lengthscale") if name in self.samples
        ]
        with jax.enable_x64(True):
            draws = {name: self.flat(name)[which] for name in sites}
            return leave_one_out(draws, problem, num_nodes=num_nodes), problem

    def calibrated(self) -> Posterior:
        """Return the posterior with probabilities calibrated by leave-one-out.

        Probabilities are raised to the power, and mixed with a little chance, under which the
        training rows, each predicted without its label, score best; predictions stay the same.
        """
        found, problem = self._leave_one_out(LOO_DRAWS, LOO_NODES)
        weights = problem.row_weights
        calibration = best_calibration(
            found.probabilities,
            np.asarray(problem.labels),
            None if weights is None else np.asarray(weights),
        )
        return replace(self, calibration=calibration)


def _drawn(probabilities: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Class indices (...) of probabilities (..., c), drawn by uniform numbers (...)."""
    below = np.cumsum(probabilities, axis=-1)[..., :-1] <= uniform[..., None]
    return below.sum(axis=-1)
