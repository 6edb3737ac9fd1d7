"""Chains run in pieces: compiled once for each shape, watched, interrupted, and continued.

``numpyro.infer.MCMC`` carries :class:`~bmsvm.BMSVMGibbs` too, and compiles anew in every ``run``.
Here one program of a few sweeps serves warm-up and sampling, of any length, and of every later
fit of the same shape.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from tqdm.auto import tqdm

from bmsvm._validation import check_choice, check_count
from bmsvm.inference.blocks import Block
from bmsvm.inference.finite import check_finite
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState, sweep
from bmsvm.models.problem import Problem

__all__ = ["COLLECTED", "Run", "run_chains", "values_of"]

PIECE = 50
"""Draws between two looks at the progress bar; what an interruption can lose."""

COLLECTED = ("scores", "noise_variance", "precision", "intercept")
"""Sites that are kept unless something else is asked for."""

PREDICTIVE = ("noise_variance", "precision", "intercept", "weights", "scores")
"""Sites that a classifier predicts from."""

WATCHED = (*PREDICTIVE, "accept_prob", "step_size", "num_steps")
"""Those and what the sampler says of each draw. Chains advanced with the same blocks and the same
sites share one compiled program."""

FIELDS = (
    *COLLECTED,
    "weights",
    "accept_prob",
    "step_size",
    "num_steps",
    "lengthscale_accept_prob",
)


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key)


def _on_host(leaf: jax.Array) -> Any:
    """Return a leaf for pickling: JAX would give arrays its float type of the time of unpickling.

    Python numbers stay what they are to JAX, or the program of the chains would not be found again.
    """
    if _is_key(leaf):
        return leaf
    return leaf.item() if leaf.aval.weak_type and leaf.ndim == 0 else np.asarray(leaf)


def values_of(state: BMSVMState, collect: tuple[str, ...]) -> dict[str, jax.Array]:
    """Sites of the current draw, of each chain that the state holds."""
    sites = {name.lstrip("_"): value for name, value in state.z.items()}
    return {name: sites[name] if name in sites else getattr(state, name) for name in collect}


@functools.partial(jax.jit, static_argnames=("blocks", "collect"))
def _advance(
    state: BMSVMState,
    count: jax.Array,
    thinning: jax.Array,
    *,
    blocks: tuple[Block, ...],
    collect: tuple[str, ...],
) -> tuple[BMSVMState, dict[str, jax.Array]]:
    """Make ``count`` draws, ``thinning`` sweeps each; draws past ``count`` are zeros."""
    shapes = jax.eval_shape(functools.partial(values_of, collect=collect), state)
    empty = {name: jnp.zeros((PIECE, *like.shape), like.dtype) for name, like in shapes.items()}

    def draw(i, carry):
        state, kept = carry
        state = jax.lax.fori_loop(0, thinning, lambda _, s: sweep(s, blocks), state)
        values = values_of(state, collect)
        return state, {name: kept[name].at[i].set(values[name]) for name in collect}

    return jax.lax.fori_loop(0, count, draw, (state, empty))


@dataclass(frozen=True)
class Run:
    """Draws of some chains, and all that is needed to make more of them.

    samples
        Draws of each site, shape (chain, draw, ...).
    state
        Where the chains stand.
    sampler
        The kernel that made them.
    thinning
        Sweeps for each draw.
    interrupted
        Whether fewer draws were made than asked for.
    seconds
        Time it took, warm-up and compiling included.
    """

    samples: dict[str, np.ndarray]
    state: BMSVMState
    sampler: BMSVMGibbs
    thinning: int
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def num_samples(self) -> int:
        """Draws made by each chain."""
        return next(iter(self.samples.values())).shape[1]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "state": jax.tree.map(_on_host, self.state)}

    def __setstate__(self, fields: dict[str, Any]) -> None:
        with jax.enable_x64(True):
            state = jax.tree.map(
                lambda leaf: leaf if _is_key(leaf) else jnp.asarray(leaf), fields["state"]
            )
        self.__dict__.update({**fields, "state": state})

    def more(self, num_samples: int, *, progress_bar: bool = True) -> Run:
        """Continue where the chains stopped: the same draws as having run longer."""
        check_count("num_samples", num_samples)
        began = time.perf_counter()
        state, pieces, interrupted = _draw(
            self.sampler,
            self.state,
            num_samples,
            self.thinning,
            tuple(self.samples),
            "sample" if progress_bar else None,
        )
        if interrupted:
            _warn_of_interruption(pieces, num_samples)
        return replace(
            self,
            samples=_join([self.samples, *pieces]),
            state=state,
            interrupted=interrupted,
            seconds=self.seconds + time.perf_counter() - began,
        )


def run_chains(
    sampler: BMSVMGibbs,
    rng_key: jax.Array,
    X: ArrayLike | Problem,
    y: ArrayLike | None = None,
    *,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 4,
    thinning: int = 1,
    collect: Sequence[str] | None = None,
    init_params: dict[str, ArrayLike] | None = None,
    tuned: BMSVMState | None = None,
    progress_bar: bool = True,
) -> Run:
    """Run vectorised chains.

    An interruption (Ctrl-C) after the first draws returns those that are finished, with a warning;
    :meth:`Run.more` makes the rest. Chains that leave the finite numbers stop with a
    :class:`bmsvm.inference.finite.NonFiniteError` that names the sweep, the block and the
    parameter.

    Parameters
    ----------
    sampler
        The kernel.
    rng_key
        Random key, from which each chain's is split.
    X, y
        Rows (n, p) and labels (n,); or a prepared problem.
    num_warmup
        Sweeps in which the sampler tunes itself, which are dropped.
    num_samples
        Draws of each chain.
    num_chains
        Number of chains.
    thinning
        Sweeps for each draw.
    collect
        Sites to keep: of ``scores`` (n, c), ``noise_variance``, ``precision``, ``intercept`` (c,),
        ``lengthscale`` or the kernel's other parameters where they are sampled, ``weights``
        (r, k), ``accept_prob``, ``step_size``, ``num_steps``, ``lengthscale_accept_prob``.
        Default: the first four, and the kernel's parameters where they are sampled.
    init_params
        Where chains start, each value with a leading axis of chains; see
        :meth:`BMSVMGibbs.init`.
    tuned
        Chains of the same shape, such as those of :func:`bmsvm.maximize_evidence`, to go on from.
        They tune themselves no more, and warm-up is only dropped.
    progress_bar
        Whether to show progress.
    """
    check_count("num_warmup", num_warmup, smallest=0)
    check_count("num_samples", num_samples)
    check_count("num_chains", num_chains)
    check_count("thinning", thinning)
    problem = sampler.prepare(X) if y is None else sampler.prepare(X, y)
    theta = tuple(jax.eval_shape(lambda: problem.kernel_values(problem.first_kernel())))
    collect = tuple(dict.fromkeys((*COLLECTED, *theta) if collect is None else collect))
    if not collect:
        raise ValueError(f"collect must name a site, of {', '.join((*FIELDS, *theta))}; got none")
    if "lengthscale" in collect and "lengthscale" not in theta:
        raise ValueError('collect names "lengthscale", which is fixed: pass lengthscale="sample"')
    for name in collect:
        check_choice("collect", name, (*FIELDS, *theta))
    began = time.perf_counter()
    keys = jax.random.split(rng_key, num_chains)
    if tuned is None:
        state = sampler.init(keys, num_warmup, init_params, (problem,), {})
    else:
        state = _begin(tuned._replace(problem=problem), num_warmup)
    state, _, interrupted = _draw(
        sampler, state, num_warmup, 1, collect, "warm-up" if progress_bar else None, keep=False
    )
    if not interrupted:
        state = state if tuned is None else _begin(state, num_warmup)
        label = "sample" if progress_bar else None
        state, pieces, interrupted = _draw(sampler, state, num_samples, thinning, collect, label)
        if pieces:
            if interrupted:
                _warn_of_interruption(pieces, num_samples)
            seconds = time.perf_counter() - began
            return Run(_join(pieces), state, sampler, thinning, interrupted, seconds)
    raise KeyboardInterrupt("interrupted before the first draws were finished")


def _begin(state: BMSVMState, num_warmup: int) -> BMSVMState:
    """Count the sweeps of chains from the end of their warm-up."""
    count = jnp.asarray(num_warmup, jnp.int32)
    return state._replace(i=count, n_warmup=count)


def _warn_of_interruption(pieces: list[dict[str, np.ndarray]], total: int) -> None:
    done = sum(next(iter(piece.values())).shape[1] for piece in pieces)
    warnings.warn(
        f"interrupted: {done} of {total} draws were made; call more() on what is returned for "
        "the rest",
        stacklevel=3,
    )


def _join(pieces: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([p[name] for p in pieces], axis=1) for name in pieces[0]}


def _draw(
    sampler: BMSVMGibbs,
    state: BMSVMState,
    total: int,
    thinning: int,
    collect: tuple[str, ...],
    label: str | None,
    *,
    keep: bool = True,
) -> tuple[BMSVMState, list[dict[str, np.ndarray]], bool]:
    """Advance piece by piece; on interruption return what is finished."""
    pieces: list[dict[str, np.ndarray]] = []
    finished = 0
    program = functools.partial(_advance, blocks=sampler.blocks, collect=collect)
    try:
        with tqdm(total=total, desc=label, disable=label is None) as bar:
            while finished < total:
                count = min(PIECE, total - finished)
                ahead, drawn = program(state, jnp.asarray(count), jnp.asarray(thinning))
                jax.block_until_ready(ahead.i)
                check_finite(state, ahead, sampler.blocks, count * thinning)
                piece = {
                    name: np.swapaxes(np.asarray(drawn[name])[:count], 0, 1)
                    for name in (collect if keep else ())
                }
                # All at once: an interruption must not come between a piece and its state.
                state, pieces, finished = ahead, [*pieces, piece], finished + count
                if label is not None:
                    bar.set_postfix_str(sampler.get_diagnostics_str(state), refresh=False)
                bar.update(count)
    except KeyboardInterrupt:
        return state, pieces, finished < total or not keep
    return state, pieces, False
