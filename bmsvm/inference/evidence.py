"""Empirical Bayes: the lengthscale that maximises the marginal likelihood of the labels.

``log p(y | theta)`` is an integral over the scores, but its gradient is a posterior mean (Fisher's
identity), and the sampler makes posterior draws:

    d/dtheta log p(y | theta) = E[ d/dtheta log p(T | theta, tau, sigma2) | y, theta ].

So: a few sweeps at the current theta, the mean over chains and draws of a gradient that is known
in closed form, a step uphill in log theta, and on with the same chains. Steps shrink, and the
second half of the path is averaged (Robbins and Monro; Polyak and Ruppert). Why not Laplace's
approximation or EM: docs/lengthscale.md.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import scipy.spatial
from jax.flatten_util import ravel_pytree
from jax.typing import ArrayLike
from tqdm.auto import tqdm

from bmsvm import kernels
from bmsvm._validation import (
    check_bounds,
    check_choice,
    check_count,
    check_positive,
    check_rows_and_labels,
)
from bmsvm.inference import run
from bmsvm.inference.finite import check_finite
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState
from bmsvm.inference.presets import default_blocks
from bmsvm.inference.subset import representative_rows
from bmsvm.kernels import KernelFn
from bmsvm.models.conditionals import log_density_columns, noise_variance_collapsed, project
from bmsvm.models.couplings import to_columns
from bmsvm.models.gram_gradient import gram_gradient
from bmsvm.models.hyperparameters import PAPER, Hyperparameters
from bmsvm.models.kernel_parameters import BOUNDS
from bmsvm.models.problem import Problem, prepare
from bmsvm.models.regram import with_gram

__all__ = ["EvidenceMaximum", "maximize_evidence"]

VARIANCES = ("precision", "noise_variance")
VARIANCE_BOUNDS = (1e-4, 1e4)
"""Where tau and sigma2 are looked for."""

DECAY = 0.7
"""Power of the decay of the steps: between 1/2 and 1, for their average to converge."""

FORGET = 0.9
"""Memory of the mean squared gradient, by whose root steps are divided."""

BATCHES = 5
"""Batches of the averaged half of the path, whose means tell the errors."""

SIGNIFICANT = 4.0
"""Standard errors at which a mean gradient is told from zero."""

TOLERANCE = 0.1
"""How far the log of a parameter may drift within the averaged half, and its largest error."""

MIXED = 1.1
"""R-hat of log tau and log sigma2 over the averaged half below which chains count as mixed."""


@dataclass(frozen=True)
class EvidenceMaximum:
    """Where the marginal likelihood is largest, and how sure that is.

    d is the number of parameters: those of the kernel, then tau and sigma2 where they were asked
    for. Derivatives and errors are in the logarithms of the parameters.
    """

    lengthscale: Any
    """theta, of the shape of the starting value."""
    precision: float | None
    """tau, where it was maximised over."""
    noise_variance: float | None
    """sigma2, where it was maximised over."""
    path: np.ndarray
    """The parameters at each step, shape (steps, d)."""
    gradients: np.ndarray
    """The estimate of the gradient at each step, shape (steps, d)."""
    gradient: np.ndarray
    """Mean gradient over the averaged half of the path, shape (d,)."""
    gradient_error: np.ndarray
    """Its Monte Carlo standard error, shape (d,)."""
    log_error: np.ndarray
    """Standard error of the logarithm of each parameter found, shape (d,)."""
    rhat: float
    """R-hat of log tau and log sigma2 over the averaged half, the larger one: 1 if they mixed."""
    converged: bool
    """Whether the gradient vanishes within its error, errors and drift are small and chains mixed.

    A parameter at a bound, with the gradient pointing outwards, counts as found; a warning says so.

    One run can not see all: an ascent from another ``start`` should end at the same place."""
    init_params: dict[str, np.ndarray]
    """The last draw of each chain, for ``init_params`` of a run at the maximiser."""
    state: BMSVMState | None = field(default=None, repr=False)
    """The chains at the maximiser, tuned, to go on from; None where tau or sigma2 were held, or
    not all rows looked at."""
    num_rows: int | None = None
    """Rows that were looked at."""


class _Draws(NamedTuple):
    """Flat over chains: T (s, n, k), tau (s,), sigma2 (s,)."""

    columns: jax.Array
    precision: jax.Array
    noise_variance: jax.Array


def gram_function(
    kernel: str | Callable[[Any], KernelFn], rows: np.ndarray
) -> Callable[[Any], jax.Array]:
    """Gram matrix (n, n) of rows (n, p) as a differentiable function of the kernel's parameters."""
    if isinstance(kernel, str):
        check_choice("kernel", kernel, kernels.STATIONARY)
        return _stationary_gram(kernel, rows)
    if not callable(kernel):
        raise ValueError(
            "kernel must be a name or a callable that makes a kernel of its parameters; "
            f"got {kernel!r}"
        )
    return lambda theta: kernel(theta)(jnp.asarray(rows), jnp.asarray(rows))


def _stationary_gram(name: str, rows: np.ndarray) -> Callable[[Any], jax.Array]:
    """As above, of a named kernel: distances, where one lengthscale scales them all, only once."""
    distances = scipy.spatial.distance.cdist(rows, rows)

    def gram(theta):
        if jnp.ndim(theta) == 0:
            return kernels.stationary_at(name, jnp.asarray(distances) / theta)
        return kernels.stationary(name, theta)(jnp.asarray(rows), jnp.asarray(rows))

    return gram


def _sampler(likelihood: str, also: Collection[str]) -> BMSVMGibbs:
    if not also:
        return BMSVMGibbs(likelihood=likelihood)
    if likelihood == "probit":
        raise ValueError(
            'also must be empty with likelihood="probit", whose sampler cannot hold tau or sigma2; '
            f"got {tuple(also)!r}"
        )
    return BMSVMGibbs(likelihood=likelihood, blocks=default_blocks(likelihood, frozenset(also)))


@functools.partial(jax.jit, static_argnames=("hold_noise",))
def _of_variances(
    draws: _Draws, problem: Problem, hold_noise: bool
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean of 1/sigma2 for each draw (s,), and mean gradients in log tau and log sigma2.

    Unless sigma2 is held, it is integrated out given the rest of the draw.
    """

    def one(columns, precision, noise_variance):
        def log_density(log_precision, log_noise):
            return log_density_columns(
                projection, jnp.exp(log_precision), jnp.exp(log_noise), problem
            )

        projection = project(columns, problem)
        slopes = jax.grad(log_density, (0, 1))(jnp.log(precision), jnp.log(noise_variance))
        given = noise_variance_collapsed(projection, precision, problem)
        inverse = 1 / noise_variance if hold_noise else given.concentration / given.rate
        return inverse, dict(zip(VARIANCES, slopes, strict=True))

    inverse, slopes = jax.vmap(one)(*draws)
    return inverse, jax.tree.map(jnp.mean, slopes)


def _draws(drawn: dict[str, jax.Array], count: int, problem: Problem) -> _Draws:
    flat = {
        name: drawn[name][:count].reshape(-1, *drawn[name].shape[2:])
        for name in ("scores", *VARIANCES)
    }
    columns = jax.vmap(lambda z: to_columns(z, problem.labels, problem.coupling))(flat["scores"])
    return _Draws(columns, flat["precision"], flat["noise_variance"])


def _place(state: BMSVMState, problem: Problem, held: dict[str, float]) -> BMSVMState:
    """Move chains to another problem of the same shape, and to values of what they hold."""
    like = state.position.precision
    position = state.position._replace(
        **{name: jnp.full_like(like, value) for name, value in held.items()}
    )
    return state._replace(problem=problem, position=position)


def _batch_error(values: np.ndarray) -> np.ndarray:
    """Estimate the standard error of the mean over the first axis of a correlated sequence."""
    means = np.stack([batch.mean(0) for batch in np.array_split(values, BATCHES)])
    return means.std(0, ddof=1) / np.sqrt(BATCHES)


def _check_also(also: Collection[str]) -> tuple[str, ...]:
    names = (also,) if isinstance(also, str) else tuple(also)
    for name in names:
        check_choice("also", name, VARIANCES)
    return tuple(name for name in VARIANCES if name in names)


def _start(
    start: Any, rows: np.ndarray, per_feature: bool, log_bounds: np.ndarray, named: bool
) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """Logarithms of the starting values, flat (d,); and how to give them their shape back."""
    if start is None:
        start = np.full(rows.shape[1] if per_feature else (), kernels.median_distance(rows))
    try:
        given = np.asarray(start, np.float64) if named else start  # a list is an array then
        values = jax.tree.map(lambda value: np.asarray(value, np.float64), given)
        with jax.enable_x64(True):
            raveled, unravel = ravel_pytree(values)
        flat = np.asarray(raveled)
        good = flat.size > 0 and np.all(np.isfinite(flat) & (flat > 0))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            "start must be positive numbers, in the shape of the kernel's parameters; "
            f"got {start!r}"
        )
    return np.clip(np.log(flat), *log_bounds), unravel


@dataclass(frozen=True)
class _Surface:
    """The marginal likelihood as a function of the logs of its parameters, shape (d,).

    These are the parameters of the kernel and then those named by ``also``.
    """

    whole: Problem
    gram: Callable[[jax.Array], jax.Array]
    pull_back: Callable[[jax.Array, jax.Array], jax.Array]
    also: tuple[str, ...]
    spare_rows: int

    def problem(self, at: np.ndarray) -> Problem:
        """Factor the data under the kernel of these parameters."""
        with jax.enable_x64(True):
            gram = np.asarray(self.gram(jnp.asarray(self._kernel_part(at))))
        return with_gram(self.whole, gram)

    def held(self, at: np.ndarray) -> dict[str, float]:
        """Values of tau and sigma2 that the sampler holds."""
        last = at[at.size - len(self.also) :]
        return dict(zip(self.also, map(float, np.exp(last)), strict=True))

    def gradient(self, at: np.ndarray, draws: _Draws, problem: Problem) -> np.ndarray:
        """Estimate the gradient from posterior draws at these parameters, shape (d,)."""
        inverse, slopes = _of_variances(draws, problem, "noise_variance" in self.also)
        cotangent = gram_gradient(
            np.asarray(draws.columns), np.asarray(draws.precision), np.asarray(inverse), problem
        )
        with jax.enable_x64(True):
            logs = jnp.asarray(self._kernel_part(at))
            n = len(cotangent) - self.spare_rows
            of_kernel = np.asarray(self.pull_back(logs, jnp.asarray(cotangent[:n, :n])))
        return np.concatenate([of_kernel, [float(slopes[name]) for name in self.also]])

    def _kernel_part(self, at: np.ndarray) -> np.ndarray:
        return at[: at.size - len(self.also)]


def maximize_evidence(
    X: ArrayLike,
    y: ArrayLike,
    *,
    rng_key: jax.Array,
    kernel: str | Callable[[Any], KernelFn] = "gaussian",
    coupling: str = "sum_to_zero",
    likelihood: str = "hinge",
    hyperparameters: Hyperparameters = PAPER,
    row_weights: ArrayLike | None = None,
    spare_rows: int = 0,
    max_rows: int | None = None,
    start: Any = None,
    per_feature: bool = False,
    bounds: tuple[float, float] = BOUNDS,
    also: Collection[str] = (),
    init_params: dict[str, ArrayLike] | None = None,
    num_warmup: int = 100,
    num_steps: int = 160,
    sweeps: int = 5,
    num_chains: int = 4,
    step_size: float = 0.15,
    progress_bar: bool = True,
) -> EvidenceMaximum:
    """Maximise ``p(y | theta)``, with scores, functions, tau and sigma2 integrated out.

    Under the hinge, p(y | T) is the pseudo-likelihood (11), and so is what is maximised.

    Parameters
    ----------
    X, y
        Rows (n, p) and labels (n,).
    rng_key
        Random key.
    kernel
        ``"gaussian"``, ``"matern32"``, ``"matern52"``; or a callable that makes a kernel of its
        positive parameters, ``kernel(theta) -> (X1, X2) -> (n1, n2)``, written in JAX.
    coupling, likelihood, hyperparameters, row_weights, spare_rows
        The model; see :func:`bmsvm.prepare`.
    max_rows
        Most rows to look at. Of more, so many are chosen at random, the classes in proportion, and
        it is their marginal likelihood that is maximised. Default: all.
    start
        Where the ascent starts: a number, one per feature, or the parameters of a callable's
        kernel as an array or a pytree of arrays. Default: the median distance between rows.
    per_feature
        Whether the default start is one lengthscale per feature.
    bounds
        Between which each parameter of the kernel is looked for.
    also
        Which of ``"precision"`` (tau) and ``"noise_variance"`` (sigma2) are maximised over and not
        integrated out; their priors then play no part.
    init_params
        Where chains start, each value with a leading axis of chains; such as those of an earlier
        maximum.
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
    progress_bar
        Whether to show progress.

    Returns
    -------
    EvidenceMaximum
        A warning is given where it has not converged, or lies at a bound.
    """
    also = _check_also(also)
    for name, count in (("num_warmup", num_warmup), ("num_chains", num_chains)):
        check_count(name, count)
    check_count("num_steps", num_steps, smallest=4 * BATCHES)
    check_count("sweeps", sweeps)
    if sweeps > run.PIECE:
        raise ValueError(f"sweeps must be at most {run.PIECE}; got {sweeps}")
    check_positive("step_size", step_size)
    sampler = _sampler(likelihood, also)

    rows, classes, labels = check_rows_and_labels(X, y)
    if max_rows is not None:
        check_count("max_rows", max_rows, smallest=max(2, len(classes)))
    some = max_rows is not None and max_rows < len(rows)
    if some:
        rng = np.random.default_rng(np.asarray(jax.random.key_data(rng_key)).ravel())
        chosen = representative_rows(labels, cast(int, max_rows), rng)
        rows, y, spare_rows = rows[chosen], np.asarray(y)[chosen], 0
        row_weights = None if row_weights is None else np.asarray(row_weights)[chosen]
    log_bounds = np.log(check_bounds("bounds", bounds))
    log_theta, unravel = _start(start, rows, per_feature, log_bounds, isinstance(kernel, str))
    if isinstance(kernel, str) and log_theta.size not in (1, rows.shape[1]):
        raise ValueError(
            f"start must be a positive number, or one per feature, of which X has {rows.shape[1]}; "
            f"got {start!r}"
        )
    surface = _surface(
        gram_function(kernel, rows.astype(np.float64)),
        unravel,
        log_theta,
        also,
        X=rows,
        y=y,
        coupling=coupling,
        likelihood=likelihood,
        hyperparameters=hyperparameters,
        row_weights=row_weights,
        spare_rows=spare_rows,
    )
    limits = [log_bounds] * log_theta.size + [np.log(VARIANCE_BOUNDS)] * len(also)
    low, high = np.stack(limits, axis=1)
    at = np.concatenate([log_theta, np.zeros(len(also))])
    half = num_steps // 2
    keys = jax.random.split(rng_key, num_chains)
    tuning = num_warmup + num_steps * sweeps
    state = sampler.init(keys, tuning, init_params, (surface.problem(at),), {})
    state = _place(state, state.problem, surface.held(at))

    def advance(state: BMSVMState, count: int) -> tuple[BMSVMState, dict[str, jax.Array]]:
        numbers = jnp.asarray(count), jnp.asarray(1)
        ahead, drawn = run._advance(state, *numbers, blocks=sampler.blocks, collect=run.WATCHED)
        ahead = ahead._replace(problem=state.problem)
        check_finite(state, ahead, sampler.blocks, count)
        return ahead, drawn

    for done in range(0, num_warmup, run.PIECE):
        count = min(run.PIECE, num_warmup - done)
        state, _ = advance(state, count)

    path, gradients = np.zeros((2, num_steps, at.size))
    variances = np.zeros((num_steps, num_chains, len(VARIANCES)))
    squares = np.zeros_like(at)
    for step in (bar := tqdm(range(num_steps), desc="evidence", disable=not progress_bar)):
        problem = surface.problem(at)
        state = _place(state, problem, surface.held(at))
        state, drawn = advance(state, sweeps)
        gradient = surface.gradient(at, _draws(drawn, sweeps, problem), problem)
        path[step], gradients[step] = at, gradient
        for index, name in enumerate(VARIANCES):
            variances[step, :, index] = np.log(drawn[name][:sweeps]).mean(0)
        reach = step_size * min(1.0, num_steps / (4 * (step + 1))) ** DECAY
        change, squares = _uphill(gradient, squares, step)
        at = np.clip(at + reach * change, low, high)
        bar.set_postfix_str(" ".join(f"{x:.3g}" for x in np.exp(at[:4])), refresh=False)
    sampled = [index for index, name in enumerate(VARIANCES) if name not in also]
    rhat = _largest_rhat(variances[half:, :, sampled])
    found = path[half:].mean(0)
    state = _place(state, surface.problem(found), surface.held(found))
    maximum = _summary(found, path, gradients, rhat, half, low, high, also, unravel, state)
    return replace(maximum, num_rows=len(rows), state=None if also or some else state)


def _surface(
    gram: Callable[[Any], jax.Array],
    unravel: Callable[[Any], Any],
    log_theta: np.ndarray,
    also: tuple[str, ...],
    *,
    spare_rows: int,
    **model: Any,
) -> _Surface:
    """Compile the Gram matrix and its pull-back, and check the data at the starting values."""

    def of_logs(logs):
        return gram(unravel(jnp.exp(logs)))

    with jax.enable_x64(True):
        first = np.asarray(of_logs(jnp.asarray(log_theta)))
    return _Surface(
        prepare(kernel=cast(KernelFn, lambda *_: first), spare_rows=spare_rows, **model),
        jax.jit(of_logs),
        jax.jit(lambda logs, cotangent: jax.vjp(of_logs, logs)[1](cotangent)[0]),
        also,
        spare_rows,
    )


def _uphill(gradient: np.ndarray, squares: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide a gradient (d,) by the root of its mean square over recent steps; also return that."""
    squares = FORGET * squares + (1 - FORGET) * gradient**2
    root = np.sqrt(squares / (1 - FORGET ** (step + 1)))
    return gradient / np.maximum(root, np.finfo(float).tiny), squares


def _largest_rhat(values: np.ndarray) -> float:
    """R-hat of values (steps, chains, m), the largest of m; 1 where there are none."""
    if values.shape[2] == 0:
        return 1.0
    if values.shape[1] == 1:  # ArviZ wants two chains: the halves of the one
        halves = values[: len(values) // 2 * 2]
        values = halves.reshape(2, -1, values.shape[2]).swapaxes(0, 1)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "More chains", UserWarning)
        data = arviz.convert_to_dataset({"x": np.swapaxes(values, 0, 1)})
    return float(arviz.rhat(data)["x"].max())


def _summary(
    found: np.ndarray,
    path: np.ndarray,
    gradients: np.ndarray,
    rhat: float,
    half: int,
    low: np.ndarray,
    high: np.ndarray,
    also: tuple[str, ...],
    unravel: Callable[[Any], Any],
    state: BMSVMState,
) -> EvidenceMaximum:
    gradient, gradient_error = gradients[half:].mean(0), _batch_error(gradients[half:])
    log_error = _batch_error(path[half:])
    at_bound = ((found > high - 0.05) & (gradient > 0)) | ((found < low + 0.05) & (gradient < 0))
    still = np.abs(gradient) <= SIGNIFICANT * gradient_error
    first, last = (part.mean(0) for part in np.array_split(path[half:], 2))
    sure = (log_error <= TOLERANCE) & (np.abs(last - first) <= TOLERANCE)
    converged = bool(np.all((still & sure) | at_bound)) and rhat < MIXED
    size = found.size - len(also)
    if not converged:
        warnings.warn(
            "the ascent of the marginal likelihood has not converged: mean gradient "
            f"{np.round(gradient, 3)} with error {np.round(gradient_error, 3)}, error of the log "
            f"parameters {np.round(log_error, 3)}, drift {np.round(last - first, 3)}, R-hat of tau "
            f"and sigma2 {rhat:.2f}; use more num_steps, sweeps or num_chains, or start where it "
            "ended",
            stacklevel=3,
        )
    elif np.any(at_bound):
        warnings.warn(
            f"the marginal likelihood still rises at a bound: parameters {np.exp(found)}",
            stacklevel=3,
        )
    with jax.enable_x64(True):
        theta = jax.tree.map(np.asarray, unravel(jnp.exp(jnp.asarray(found[:size]))))
    if isinstance(theta, np.ndarray) and theta.ndim == 0:
        theta = float(theta)
    others = dict(zip(also, map(float, np.exp(found[size:])), strict=True))
    return EvidenceMaximum(
        lengthscale=theta,
        precision=others.get("precision"),
        noise_variance=others.get("noise_variance"),
        path=np.exp(path),
        gradients=gradients,
        gradient=gradient,
        gradient_error=gradient_error,
        log_error=log_error,
        rhat=rhat,
        converged=converged,
        init_params={
            name.lstrip("_"): np.asarray(state.z[name])
            for name in ("_scores", "noise_variance", "precision")
        },
    )
