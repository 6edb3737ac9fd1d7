"""Empirical Bayes: the lengthscale that maximises the marginal likelihood of the labels.

``log p(y | theta)`` is an integral over the scores, but its gradient is a posterior mean (Fisher's
identity), and the sampler makes posterior draws:

    d/dtheta log p(y | theta) = E[ d/dtheta log p(T | theta, tau, sigma2) | y, theta ].

So: a few sweeps at the current theta, the mean over chains and draws of a gradient that is known
in closed form, a step uphill in log theta, and on with the same chains. Steps shrink, and the
second half of the path is averaged (Robbins and Monro; Polyak and Ruppert). docs/lengthscale.md
compares with Laplace's approximation and EM.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike

from bmsvm._progress import progress
from bmsvm._validation import check_bounds, check_count, check_positive, check_rows_and_labels
from bmsvm.checkpoint import CHUNK
from bmsvm.convergence import diagnose
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.run import start_chains
from bmsvm.inference.state import BMSVMState, advance_chains
from bmsvm.kernels.functions import Kernel, KernelFn, as_kernel, median_distance
from bmsvm.models.hyperparameters import DEFAULT, Hyperparameters
from bmsvm.models.theta import BOUNDS
from bmsvm.selection.base import Method, Selection, representative_rows
from bmsvm.selection.evidence_gradient import (
    SITES,
    Surface,
    columns_and_variances,
    gram_function,
    surface_of,
)

DECAY = 0.7
"""Power of the decay of the steps: between 1/2 and 1, for their average to converge."""

FORGET = 0.9
"""Memory of the mean squared gradient, by whose root steps are divided."""

BATCHES = 5
"""Batches of the averaged half of the path, from whose means errors are estimated."""

SIGNIFICANT = 4.0
"""Standard errors at which a mean gradient differs from zero."""

TOLERANCE = 0.1
"""Largest drift of the log of a parameter within the averaged half, and its largest error."""

MIXED = 1.1
"""R-hat of log tau and log sigma2 over the averaged half below which chains count as mixed."""


@dataclass(frozen=True)
class EvidenceSelection(Selection):
    """The maximiser of the marginal likelihood, and its precision.

    d is the number of parameters of the kernel. Derivatives and errors are in their logarithms.
    """

    path: np.ndarray
    """The parameters at each step, shape (steps, d)."""
    gradients: np.ndarray
    """The estimate of the gradient at each step, shape (steps, d)."""
    gradient: np.ndarray
    """Mean gradient over the averaged half of the path, shape (d,)."""
    gradient_error: np.ndarray
    """Its Monte Carlo standard error, shape (d,)."""
    log_error: np.ndarray
    """Standard error of the logarithm of each parameter, shape (d,)."""
    rhat: float
    """R-hat of log tau and log sigma2 over the averaged half, the larger one."""
    converged: bool
    """Whether the gradient vanishes within its error, errors and drift are small and chains mixed.

    A parameter at a bound, with the gradient pointing outwards, counts as found; a warning says so.
    One run cannot see all: an ascent from another ``start`` should end at the same place."""


@dataclass(frozen=True, eq=False)
class Evidence(Method):
    """Choose theta by maximising ``p(y | theta)``, everything else integrated out.

    Under the hinge, p(y | T) is the pseudo-likelihood (11), and so is what is maximised.

    Parameters
    ----------
    start
        Where the ascent starts: a number, one per feature, or the parameters of a parametrised
        kernel as an array or a pytree of arrays. Default: the median distance between rows.
    per_feature
        Whether the default start is one lengthscale per feature.
    bounds
        Bounds of each parameter of the kernel.
    max_rows
        Largest number of rows to use. Of more, so many are chosen at random, the classes in
        proportion. None: all.
    num_warmup
        Sweeps at the start before the first step.
    num_steps
        Steps of theta; the second half is averaged.
    sweeps
        Sweeps for each step.
    num_chains
        Number of chains.
    step_size
        First size of the steps of log theta.
    """

    start: Any = None
    per_feature: bool = False
    bounds: tuple[float, float] = BOUNDS
    max_rows: int | None = 1024
    num_warmup: int = 60
    num_steps: int = 40
    sweeps: int = 5
    num_chains: int = 4
    step_size: float = 0.07

    def __post_init__(self) -> None:
        for name in ("num_warmup", "num_chains", "sweeps"):
            check_count(name, getattr(self, name))
        check_count("num_steps", self.num_steps, smallest=4 * BATCHES)
        check_count("sweeps", self.sweeps, largest=CHUNK)
        check_positive("step_size", self.step_size)
        check_bounds("bounds", self.bounds)
        if self.max_rows is not None:
            check_count("max_rows", self.max_rows, smallest=2)

    def check_model(
        self, kernel: Kernel | Callable[[Any], KernelFn], coupling: str, likelihood: str
    ) -> None:
        """Raise ``ValueError`` unless the kernel has parameters to choose."""
        if isinstance(kernel, Kernel):
            super().check_model(kernel, coupling, likelihood)
        elif not callable(kernel):
            raise ValueError(
                "kernel must be a name, a kernel, or a function from parameters to a kernel; "
                f"got {kernel!r}"
            )

    def select(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        rng_key: jax.Array | None = None,
        kernel: Kernel | str | Callable[[Any], KernelFn] = "gaussian",
        coupling: str = "sum_to_zero",
        likelihood: str = "normalized",
        hyperparameters: Hyperparameters = DEFAULT,
        row_weights: ArrayLike | None = None,
    ) -> EvidenceSelection:
        """Return theta; a warning is given if it has not converged, or lies at a bound.

        ``kernel`` may also be a function from positive parameters to a kernel,
        ``kernel(theta) -> (X1, X2) -> (n1, n2)``, written in JAX; ``start`` then has its
        parameters.
        """
        if isinstance(kernel, str):
            kernel = as_kernel(kernel)
        self.check_model(kernel, coupling, likelihood)
        rng_key = jax.random.key(0) if rng_key is None else rng_key
        rows, classes, labels = check_rows_and_labels(X, y)
        if self.max_rows is not None and self.max_rows < len(rows):
            check_count("max_rows", self.max_rows, smallest=len(classes))
            rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
            chosen = representative_rows(labels, self.max_rows, rng)
            rows, y = rows[chosen], np.asarray(y)[chosen]
            row_weights = None if row_weights is None else np.asarray(row_weights)[chosen]
        low, high = np.log(self.bounds)
        log_theta, unravel = self._start(rows, low, high, isinstance(kernel, Kernel))
        surface = surface_of(
            gram_function(kernel, rows.astype(np.float64)),
            unravel,
            log_theta,
            X=rows,
            y=y,
            coupling=coupling,
            likelihood=likelihood,
            hyperparameters=hyperparameters,
            row_weights=row_weights,
        )
        path, gradients, variances = self._ascend(surface, log_theta, low, high, rng_key)
        half = self.num_steps // 2
        logs = np.log(variances[half:])  # (steps, chains, 2)
        found = diagnose({str(i): logs[:, :, i].T for i in range(2)})
        rhat = max((each.r_hat for each in found.values()), default=1.0)
        return _summary(path, gradients, rhat, low, high, unravel, hyperparameters, len(rows))

    def _start(
        self, rows: np.ndarray, low: float, high: float, named: bool
    ) -> tuple[np.ndarray, Callable[[Any], Any]]:
        """Logarithms of the starting values, flat (d,); and how to give them their shape back."""
        start = self.start
        if start is None:
            start = np.full(rows.shape[1] if self.per_feature else (), median_distance(rows))
        try:
            given = np.asarray(start, np.float64) if named else start  # a list is an array then
            values = jax.tree.map(lambda value: np.asarray(value, np.float64), given)
            with jax.enable_x64(True):
                raveled, unravel = ravel_pytree(values)
            flat = np.asarray(raveled)
            good = flat.size > 0 and bool(np.all(np.isfinite(flat) & (flat > 0)))
            good = good and (not named or flat.size in (1, rows.shape[1]))
        except (TypeError, ValueError):
            good = False
        if not good:
            raise ValueError(
                "start must be a positive number, one per feature, or the parameters of the "
                f"kernel; X has {rows.shape[1]} features; got {self.start!r}"
            )
        return np.clip(np.log(flat), low, high), unravel

    def _ascend(
        self, surface: Surface, at: np.ndarray, low: float, high: float, rng_key: jax.Array
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Path (steps, d) and gradients (steps, d); mean tau and sigma2 (steps, chains, 2)."""
        problem = surface.problem(at)
        kernel = BMSVMGibbs(sampler="hmc")
        algorithm = kernel.algorithm(problem)
        # In the half that is averaged the sampler is no longer tuned, which would bias the mean.
        tuning = self.num_warmup + self.num_steps * self.sweeps // 2
        state = start_chains(
            kernel, rng_key, problem, num_chains=self.num_chains, num_warmup=tuning
        )

        def advance(state: BMSVMState, count: int) -> tuple[BMSVMState, dict[str, jax.Array]]:
            return advance_chains(state, algorithm, count, 1, SITES)

        for done in range(0, self.num_warmup, CHUNK):
            state, _ = advance(state, min(CHUNK, self.num_warmup - done))
        path, gradients = np.zeros((2, self.num_steps, at.size))
        variances = np.zeros((self.num_steps, self.num_chains, 2))
        squares = np.zeros_like(at)
        with progress(self.num_steps, "marginal likelihood") as bar:
            for step in range(self.num_steps):
                problem = surface.problem(at)
                state, drawn = advance(state._replace(problem=problem), self.sweeps)
                gradient = surface.gradient(at, columns_and_variances(drawn, problem), problem)
                path[step], gradients[step] = at, gradient
                for index, name in enumerate(SITES[1:]):
                    variances[step, :, index] = np.exp(np.log(drawn[name]).mean(0))
                reach = self.step_size * min(1.0, self.num_steps / (4 * (step + 1))) ** DECAY
                change, squares = _uphill(gradient, squares, step)
                at = np.clip(at + reach * change, low, high)
                bar.update()
        return path, gradients, variances


def _uphill(gradient: np.ndarray, squares: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide a gradient (d,) by the root of its mean square over recent steps; also return that."""
    squares = FORGET * squares + (1 - FORGET) * gradient**2
    root = np.sqrt(squares / (1 - FORGET ** (step + 1)))
    return gradient / np.maximum(root, np.finfo(float).tiny), squares


def _batch_error(values: np.ndarray) -> np.ndarray:
    """Estimate the standard error of the mean over the first axis of a correlated sequence."""
    means = np.stack([batch.mean(0) for batch in np.array_split(values, BATCHES)])
    return means.std(0, ddof=1) / np.sqrt(BATCHES)


def _summary(
    path: np.ndarray,
    gradients: np.ndarray,
    rhat: float,
    low: float,
    high: float,
    unravel: Callable[[Any], Any],
    hyperparameters: Hyperparameters,
    num_rows: int,
) -> EvidenceSelection:
    half = len(path) // 2
    found = path[half:].mean(0)
    gradient, gradient_error = gradients[half:].mean(0), _batch_error(gradients[half:])
    log_error = _batch_error(path[half:])
    at_bound = ((found > high - 0.05) & (gradient > 0)) | ((found < low + 0.05) & (gradient < 0))
    still = np.abs(gradient) <= SIGNIFICANT * gradient_error
    first, last = (part.mean(0) for part in np.array_split(path[half:], 2))
    sure = (log_error <= TOLERANCE) & (np.abs(last - first) <= TOLERANCE)
    converged = bool(np.all((still & sure) | at_bound)) and rhat < MIXED
    if not converged:
        warnings.warn(
            "the ascent of the marginal likelihood has not converged: mean gradient "
            f"{np.round(gradient, 3)} with error {np.round(gradient_error, 3)}, error of the log "
            f"parameters {np.round(log_error, 3)}, drift {np.round(last - first, 3)}, R-hat of tau "
            f"and sigma2 {rhat:.2f}; increase num_steps, sweeps or num_chains, or start where it "
            "ended",
            stacklevel=3,
        )
    elif np.any(at_bound):
        warnings.warn(
            f"the marginal likelihood still rises at a bound: parameters {np.exp(found)}",
            stacklevel=3,
        )
    with jax.enable_x64(True):
        theta = jax.tree.map(np.asarray, unravel(jnp.exp(jnp.asarray(found))))
    if isinstance(theta, np.ndarray) and theta.ndim == 0:
        theta = float(theta)
    return EvidenceSelection(
        lengthscale=theta,
        hyperparameters=hyperparameters,
        num_rows=num_rows,
        path=np.exp(path),
        gradients=gradients,
        gradient=gradient,
        gradient_error=gradient_error,
        log_error=log_error,
        rhat=rhat,
        converged=converged,
    )
