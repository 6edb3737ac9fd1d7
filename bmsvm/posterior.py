"""The posterior: draws of the chains, and class functions and probabilities computed from them.

``BMSVMClassifier.fit`` keeps a :class:`Posterior` as ``model.posterior_``. With draws of
``numpyro.infer.MCMC``: ``Posterior.from_numpyro(mcmc)``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bmsvm._progress import progress
from bmsvm._validation import check_defined, check_matrix
from bmsvm.kernels.functions import Kernel, KernelFn, Precomputed, as_kernel
from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import exclusion_probabilities
from bmsvm.models.problem import Problem
from bmsvm.models.quadrature import normal_points
from bmsvm.prediction.evaluate import (
    ROWS,
    Draws,
    Stage,
    functions_and_probabilities,
    pad_rows,
)
from bmsvm.prediction.labels_given_others import LabelsGivenOthers
from bmsvm.prediction.leave_one_out import HeldOutDraws, LeaveOneOut
from bmsvm.prediction.numpyro_run import draws_of_run, prepared_run, with_functions
from bmsvm.prediction.stages import family_stages, stages_of
from bmsvm.prediction.training_rows import (
    held_out,
    left_out,
    log_likelihood,
    rows_left_out,
    spaced_draws,
)

POINTS = 16
"""Points at which the noise of the scores is integrated, for each draw; a power of two."""

NOISE_STREAM, REMAINDER_STREAM = 1, 2
"""Separate the two sequences of points."""

TINY = float(np.finfo(np.float32).tiny)


class Evaluated(NamedTuple):
    """All draws at some rows.

    rows
        Which rows.
    functions
        Class functions, shape (m, c, s).
    probabilities
        Class probabilities p(y | f), with the noise of the scores integrated out, shape (m, c, s).

    Arrays that were not requested are empty.
    """

    rows: slice
    functions: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior draws, and predictions from them.

    Rows are in the form that the kernel takes, shape (m, p). For the ``posterior_`` of a classifier
    they must be standardised: ``model.standardized_rows(X)``. If the kernel is precomputed, they
    are kernel values with the training rows, shape (m, n). Classes are in the order of
    ``numpy.unique(y)``.

    Parameters
    ----------
    samples
        Draws (chain, draw, ...) of ``noise_variance``, ``precision``, ``intercept`` (c,),
        ``weights`` (r, k), the kernel's parameters if they were sampled, and ``scores`` (n, c)
        unless they come from the table of ``squared`` with a basis of low rank. The classifier adds
        spare rows of weight 0 to the scores, after those of ``training_rows``.
    problem
        The prepared training data.
    training_rows
        Rows (n, p) it was prepared from. Predictions at new rows and :meth:`leave_one_out`
        need them; with a basis of low rank only their shape.
    kernel
        As given to :func:`bmsvm.prepare`.
    lengthscale
        theta, if it was fixed.
    remainder
        Whether functions at new rows have the conditional variance of the Gaussian process given
        the training rows, so that uncertainty grows away from the data. If not, functions are the
        kernel expansion (1), which vanishes far from the data.
    seed
        Seed of the quasi-random points for the noise of the scores and for that variance.
    """

    samples: Mapping[str, np.ndarray]
    problem: Problem
    training_rows: np.ndarray
    kernel: Kernel | KernelFn | str = "gaussian"
    lengthscale: Any = None
    remainder: bool = True
    seed: int = 0

    def __repr__(self) -> str:
        """Return the sizes; the arrays would fill pages."""
        chains, draws = self.samples["noise_variance"].shape
        problem = self.problem
        weights = problem.row_weights
        rows = problem.n_rows if weights is None else np.count_nonzero(weights)
        return (
            f"Posterior({chains} x {draws} draws, {rows} rows, "
            f"{problem.n_classes} classes, {problem.likelihood}, {problem.coupling}; "
            f"samples: {', '.join(self.samples)})"
        )

    @classmethod
    def from_numpyro(
        cls,
        mcmc: Any,
        X: Any = None,
        *,
        kernel: Kernel | KernelFn | str | None = None,
        lengthscale: Any = None,
        remainder: bool = True,
        seed: int = 0,
    ) -> Posterior:
        """Return the posterior of a finished ``numpyro.infer.MCMC`` or :func:`bmsvm.run_chains`.

        ``Posterior.from_numpyro(mcmc).probabilities(X_new)`` predicts new rows, which must be in
        the units of the rows of the run: nothing is standardised here.

        Parameters
        ----------
        mcmc
            A run of :class:`bmsvm.BMSVMGibbs`, of NUTS on
            :func:`bmsvm.models.hierarchical_model`, or of ``numpyro.infer.Gibbs`` with both; or
            the result of :func:`bmsvm.run_chains`. Weights that the run has integrated out are
            drawn given the scores.
        X
            Training rows (n, p); needed after :func:`bmsvm.run_chains`, or if the run was given a
            prepared problem instead of ``X, y``.
        kernel, lengthscale
            As given to :func:`bmsvm.prepare`; needed with X. Default: those of the sampler, if it
            has them; otherwise the kernel is ``"gaussian"``, and a lengthscale must be given.
        remainder, seed
            As in :class:`Posterior`; the seed is also used to draw weights.

        Raises
        ------
        ValueError
            If X, kernel or lengthscale are needed and not given, or if the problem was not prepared
            from them; or if the run has kept neither weights nor scores.

        Examples
        --------
        >>> import jax
        >>> from numpyro.infer import MCMC
        >>> from bmsvm import BMSVMGibbs, Posterior
        >>> from bmsvm.datasets import load_wine
        >>> X, y = load_wine(return_X_y=True)
        >>> X = (X - X.mean(0)) / X.std(0)
        >>> kernel = BMSVMGibbs(lengthscale=3.5)
        >>> mcmc = MCMC(kernel, num_warmup=50, num_samples=50, progress_bar=False)
        >>> mcmc.run(jax.random.key(0), X[2:], y[2:])
        >>> Posterior.from_numpyro(mcmc).probabilities(X[:2]).shape
        (2, 3)
        """
        run = prepared_run(mcmc, X, kernel, lengthscale)
        samples = with_functions(draws_of_run(mcmc)[0], run.problem, seed)
        rows, theta = run.training_rows, run.lengthscale
        return cls(samples, run.problem, rows, run.kernel, theta, remainder, seed)

    # The draws ------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Number of chains and of draws in each."""
        return self.samples["precision"].shape

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

        They are assigned in the order in which draws were made, so that a draw keeps its points if
        the chains are continued.
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
        """Draws grouped by kernel; off a grid each draw's kernel is factored in each call."""
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
        rows: np.ndarray,
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
            As in the parameters of the class. Default: that of the posterior.
        """
        rows = check_matrix(rows, np.shape(self.training_rows)[-1])
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

    def probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Class probabilities p(y | f), averaged over the draws: shape (m, c).

        They are not calibrated; :class:`bmsvm.PredictiveDistribution` calibrates them.
        """
        means = np.empty((len(rows), self.n_classes))
        for part in self.evaluate(rows, functions=False):
            means[part.rows] = self.positive(part.probabilities).mean(axis=-1)
        return means

    def positive(self, draws: np.ndarray) -> np.ndarray:
        """Class probabilities of draws (m, c, s) in float64, none of them zero.

        In float32 small probabilities underflow to zero.
        """
        draws = draws.astype(np.float64) + TINY
        return draws / draws.sum(axis=1, keepdims=True)

    def functions(self, rows: np.ndarray) -> np.ndarray:
        """Posterior means of the class functions, which sum to zero: shape (m, c)."""
        means = np.empty((len(rows), self.n_classes))
        # The remainder has mean zero.
        for part in self.evaluate(rows, probabilities=False, remainder=False):
            means[part.rows] = part.functions.mean(axis=-1)
        return means

    def latent_mean_and_variance(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of the class functions f at rows, each of shape (m, c).

        Given a draw s, ``f_j = g_js + e_j`` with ``g_s = b + Phi* v`` and a remainder e of variance
        ``h_js = (1 - 1/c) (sigma2/tau)_s (k** - |Phi*|^2)``, so that over S draws ::

            E f_j   = mean_s g_js
            Var f_j = mean_s (g_js - E f_j)^2 + mean_s h_js.

        The factor ``1 - 1/c`` follows from the zero sum of the functions over the classes. The
        noise sigma2 of the scores is not included. With ``remainder=False`` h is zero.
        """
        means, variances = (np.empty((len(rows), self.n_classes)) for _ in range(2))
        to_classes = class_map(self.problem.coupling, self.n_classes)
        share = np.sum(to_classes**2, axis=0)  # (c,)
        spread = self.flat("noise_variance") / self.flat("precision")
        for part in self.evaluate(rows, probabilities=False, remainder=False):
            left = np.zeros(part.rows.stop - part.rows.start)
            if self.remainder:
                block, size = pad_rows(rows[part.rows])
                for stage in self._stages():
                    root = stage.basis(block, True)[1][:size]
                    left += root**2 * spread[stage.draws].sum() / self.n_draws
            means[part.rows] = part.functions.mean(axis=-1)
            variances[part.rows] = part.functions.var(axis=-1) + left[:, None] * share
        return means, variances

    def exclusion(self, rows: np.ndarray) -> np.ndarray:
        """Averaged probability of not being in a class, ``E exp(-(f_j + d)_+)``: shape (m, c).

        Eq. (20). The paper predicts the class for which it is smallest.
        """
        means = np.empty((len(rows), self.n_classes))
        for part in self.evaluate(rows, probabilities=False):
            means[part.rows] = exclusion_probabilities(part.functions, axis=1).mean(axis=-1)
        return means

    # The training rows ----------------------------------------------------------------------

    def log_likelihood(self, *, thin: int = 1) -> tuple[LabelsGivenOthers, np.ndarray]:
        """``log p(y_i | other labels, theta, tau, sigma2)`` of each draw, and the indices of rows.

        Scores and functions are integrated out (:mod:`bmsvm.prediction.labels_given_others`), as
        ArviZ's leave-one-out needs. Under ``hinge`` and ``squared`` p is the pseudo-likelihood.

        Parameters
        ----------
        thin
            Use every ``thin``-th draw of a chain.

        Returns
        -------
        tuple
            :class:`bmsvm.prediction.labels_given_others.LabelsGivenOthers`, draws flat over chains;
            and the indices of the rows, shape (n,): all, or at most 2000 chosen at random if the
            Gram matrix is of low rank.
        """
        return log_likelihood(self.samples, self.problem, thin)

    def leave_one_out(self, *, max_draws: int | None = None, num_nodes: int = 128) -> LeaveOneOut:
        """Predict each training row as if its label had not been seen, by importance sampling.

        Under ``squared`` predictions are exact, from the table of the posterior instead of draws.
        With a Gram matrix of low rank at most 2000 rows, chosen at random, are predicted.

        Parameters
        ----------
        max_draws
            Largest number of draws to use, evenly spaced. Default: all.
        num_nodes
            Quasi-random points at which scores are integrated; a power of two.
        """
        found = left_out(self.samples, self.problem, max_draws=max_draws, num_nodes=num_nodes)
        real = rows_left_out(self.problem) < len(self.training_rows)  # spare rows follow
        return LeaveOneOut(*(part[real] for part in found))

    def held_out_draws(self) -> tuple[HeldOutDraws, np.ndarray]:
        """Class probabilities of training rows without their labels, and the indices of the rows.

        At most 200 draws are used, and with a Gram matrix of low rank at most 2000 rows.
        """
        # As at new rows, where a precomputed kernel has no remainder either.
        remainder = self.remainder and not isinstance(as_kernel(self.kernel), Precomputed)
        return held_out(self.samples, self.problem, seed=self.seed, remainder=remainder)

    @property
    def loo_draws(self) -> np.ndarray:
        """Indices of the draws of :meth:`held_out_draws`."""
        return spaced_draws(self.samples)
