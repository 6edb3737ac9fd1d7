"""The chain driver: runs chains in chunks, compiles once for each shape, interrupts and resumes.

``numpyro.infer.MCMC`` runs :class:`~bmsvm.BMSVMGibbs` too, but compiles again in every ``run``.
Here one compiled program of a few sweeps is used for warm-up and sampling of any length, and for
later fits of the same shape.
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import jax
import numpy as np
from jax.typing import ArrayLike
from numpyro.util import is_prng_key

from bmsvm._arrays import for_pickling, unpickled
from bmsvm._progress import progress
from bmsvm._validation import check_choice, check_positive, check_sweeps, said
from bmsvm.checkpoint import CHUNK, Checkpoint
from bmsvm.inference.gibbs import BMSVMGibbs
from bmsvm.inference.samplers import Table
from bmsvm.inference.state import (
    BMSVMState,
    advance_chains,
    moving_part,
    sites_of,
    with_shared,
)
from bmsvm.inference.store import last_state, store_of
from bmsvm.inference.table import check_tabled
from bmsvm.inference.tabled import table_advancing, table_state
from bmsvm.models.problem import Problem, check_precision

Enough = Callable[[Mapping[str, np.ndarray]], bool]
"""``enough(samples)``: whether the draws, (chain, draw, ...) for each site, are enough."""

Ended = Literal["complete", "enough", "interrupted", "time"]
"""How a run ended: with all draws, with enough draws, by Ctrl-C, or at the time limit."""

Advance = Callable[
    [BMSVMState, int, int, tuple[str, ...]], tuple[BMSVMState, dict[str, jax.Array | np.ndarray]]
]
"""``(state, count, thinning, collect) -> (state, draws of shape (count, chain, ...))``."""


@dataclass(frozen=True)
class Run:
    """Draws of chains, with the state that is needed to continue them.

    samples
        Draws of each site, shape (chain, draw, ...). If there is a store, they are read from it on
        each access.
    state
        The current state of the chains.
    kernel
        The kernel that made them.
    thinning
        Sweeps for each draw.
    ended
        How the run ended; see :data:`Ended`.
    seconds
        Elapsed time, including warm-up and compilation.
    store
        Where draws are written as they are made; None if they stay in memory.
    """

    samples: Mapping[str, np.ndarray]
    state: BMSVMState
    kernel: BMSVMGibbs
    thinning: int
    ended: Ended = "complete"
    seconds: float = 0.0
    store: Checkpoint | None = None

    def __repr__(self) -> str:
        """Return the sizes; the arrays would fill pages."""
        chains = self.state.accept_prob.shape[0]
        names = ", ".join(self.samples)
        return f"Run({chains} x {self.num_samples} draws, {self.ended}, {self.problem}: {names})"

    @property
    def problem(self) -> Problem:
        """The prepared data."""
        return self.state.problem

    @property
    def independent(self) -> bool:
        """Whether the draws are independent, and the chains only numbers of them."""
        return isinstance(self.kernel.sampler_of(self.problem), Table)

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C or the time limit ended the run before all draws were made."""
        return self.ended in ("interrupted", "time")

    @property
    def num_samples(self) -> int:
        """Draws made by each chain."""
        stored = getattr(self.samples, "num_samples", None)
        return next(iter(self.samples.values())).shape[1] if stored is None else stored

    def loaded(self) -> Run:
        """Return the run with all draws in memory; :meth:`more` still appends to the store."""
        return replace(self, samples=dict(self.samples))

    def __getstate__(self) -> dict[str, Any]:
        moving = for_pickling(self.state._replace(problem=cast(Any, None)))
        return {
            **self.__dict__,
            "samples": dict(self.samples),
            "state": (moving, self.state.problem),
            "store": None,
        }

    def __setstate__(self, fields: dict[str, Any]) -> None:
        moving, problem = fields["state"]
        self.__dict__.update({**fields, "state": unpickled(moving)._replace(problem=problem)})

    def more(self, num_samples: int) -> Run:
        """Continue the chains; the draws are the same as those of one longer run.

        Draws are appended to the store, if there is one.
        """
        check_sweeps("num_samples", num_samples)
        began, store = time.perf_counter(), self.store
        with contextlib.nullcontext() if store is None else store.opened():
            state, total = self.state, num_samples
            if store is not None:
                state, total = last_state(store, state), self.num_samples + num_samples
                if store.progress.draws != self.num_samples:
                    raise ValueError(
                        f"these chains have {self.num_samples} draws and their store has "
                        f"{store.progress.draws}: call run_chains again with the same store"
                    )
            state, pieces, ended = _draw(
                self.kernel,
                state,
                total,
                self.thinning,
                tuple(self.samples),
                store=store,
            )
            if ended == "interrupted" and store is not None:
                state, ended = last_state(store, state), _ended(store, total)
        samples = _join([self.samples, *pieces]) if store is None else store.draws()
        seconds = self.seconds + time.perf_counter() - began
        more = replace(self, samples=samples, state=state, ended=ended, seconds=seconds)
        if more.interrupted:
            _warn_of_interruption(more.num_samples - self.num_samples, num_samples)
        return more


def run_chains(
    kernel: BMSVMGibbs,
    rng_key: jax.Array,
    X: ArrayLike | Problem,
    y: ArrayLike | None = None,
    *,
    num_warmup: int = 1000,
    num_samples: int = 1000,
    num_chains: int = 4,
    thinning: int | None = None,
    collect: Sequence[str] | None = None,
    init_params: dict[str, ArrayLike] | None = None,
    store: str | os.PathLike[str] | None = None,
    enough: Enough | None = None,
    max_time: float | None = None,
) -> Run:
    """Run vectorised chains.

    An interruption (Ctrl-C) after the first draws returns those that are finished, with a warning;
    :meth:`Run.more` makes the rest. With a store complete chunks survive the end of the process:
    the same call resumes, and makes the same draws as an uninterrupted run.
    Chains with non-finite values raise a :class:`bmsvm.inference.NonFiniteError` that names
    the sweep and the parameter.

    Parameters
    ----------
    kernel
        The sampler, and the model if X and y are not a prepared problem.
    rng_key
        Random key, which is split into one for each chain.
    X, y
        Rows (n, p) and labels (n,); or a prepared problem.
    num_warmup
        Sweeps in which the sampler tunes itself, which are dropped. ``sampler="table"`` needs none.
    num_samples
        Draws of each chain.
    num_chains
        Number of chains.
    thinning
        Sweeps for each draw. Default: that of the sampler.
    collect
        Sites to keep: ``noise_variance``, ``precision``, ``intercept`` (c,), ``weights`` (r, k),
        ``scores`` (n, c), unless they come from a table with a basis of low rank, ``lengthscale``
        or the kernel's other parameters if they are sampled; and ``accept_prob``, ``step_size``,
        ``num_steps``, ``lengthscale_accept_prob``. Default: all of them.
    init_params
        Initial values of the chains, each with a leading axis of chains; see
        :meth:`BMSVMGibbs.init`.
    store
        A directory to which draws are written as they are made, every 25, together with the state
        of the chains, so that memory does not grow with the chains. Needs ``bmsvm[store]``. If it
        holds a run of the same data, key and settings already, that run continues up to
        ``num_samples``, or is returned if it has as many or more; another run is refused.
    enough
        Called every 25 draws with all draws so far; the chains end if it returns True. It must
        depend on its argument only, or a run with a store would not resume exactly.
    max_time
        Seconds after which the chains end with the draws that are finished, marked by
        ``ended="time"``. Warm-up takes at most half of it, and at least 25 draws are made.
    """
    if max_time is not None:
        check_positive("max_time", max_time)
    check_sweeps("num_warmup", num_warmup, smallest=0)
    check_sweeps("num_samples", num_samples)
    check_sweeps("num_chains", num_chains)
    if not isinstance(kernel, BMSVMGibbs):
        raise ValueError(f"kernel must be a BMSVMGibbs(...); got {type(kernel).__name__}")
    if not is_prng_key(rng_key):
        got = said(rng_key) if np.ndim(rng_key) == 0 else f"shape {np.shape(rng_key)}"
        raise ValueError(
            "rng_key must be a random key of JAX, such as jax.random.key(0), in "
            f"run_chains(kernel, rng_key, X, y); got {got}"
        )
    if kernel.is_block:
        raise ValueError("a block BMSVMGibbs(model=...) runs in numpyro.infer.Gibbs only")
    if isinstance(X, Problem):
        kernel.check_settings(X)
    problem = kernel.prepare(X) if y is None else kernel.prepare(X, y)
    thinning = kernel.sampler_of(problem).thinning if thinning is None else thinning
    check_sweeps("thinning", thinning)
    tabled = isinstance(kernel.sampler_of(problem), Table)
    if tabled:
        _check_table(problem, init_params)
        num_warmup = 0
    began = time.perf_counter()
    budget = np.inf if max_time is None else max_time
    if tabled:
        state = table_state(rng_key, problem, num_chains)
    else:
        state = start_chains(
            kernel,
            rng_key,
            problem,
            num_chains=num_chains,
            num_warmup=num_warmup,
            init_params=init_params,
        )
    chosen = _checked_sites(collect, tuple(sites_of(state)))
    kept, earlier = None, 0.0
    with contextlib.ExitStack() as stack:
        if store is not None:
            kept = store_of(store, kernel, state, num_warmup, thinning, chosen)
            stack.enter_context(kept.opened())
            state = with_shared(kept.begin(moving_part(state)), state)
            earlier = kept.progress.seconds
        state, _, ended = _draw(
            kernel, state, num_warmup, 1, chosen, keep=False, store=kept, until=began + budget / 2
        )
        if ended == "time":
            state = state._replace(n_warmup=state.i)
        pieces: list[dict[str, np.ndarray]] = []
        if ended != "interrupted":
            state, pieces, ended = _draw(
                kernel,
                state,
                num_samples,
                thinning,
                chosen,
                store=kept,
                enough=enough,
                until=began + budget,
            )
        if kept is not None and ended == "interrupted":
            state, ended = last_state(kept, state), _ended(kept, num_samples)
    if not pieces and (kept is None or kept.progress.draws == 0):
        raise KeyboardInterrupt("interrupted before the first draws were finished")
    samples = _join(pieces) if kept is None else kept.draws()
    seconds = earlier + time.perf_counter() - began
    run = Run(samples, state, kernel, thinning, ended, seconds, kept)
    if run.interrupted:
        _warn_of_interruption(run.num_samples, num_samples)
    return run


def start_chains(
    kernel: BMSVMGibbs,
    rng_key: jax.Array,
    problem: Problem,
    *,
    num_chains: int,
    num_warmup: int,
    init_params: Mapping[str, ArrayLike] | None = None,
) -> BMSVMState:
    """Return vectorised chains at their starting points."""
    keys = jax.random.split(rng_key, num_chains)
    return kernel.start(keys, num_warmup, init_params, problem)


def _check_table(problem: Problem, init_params: Any) -> None:
    """Raise ``ValueError`` for what makes no sense with independent draws."""
    check_tabled('sampler="table"', problem)
    if init_params is not None:
        raise ValueError(
            'init_params must be None with sampler="table", whose draws are independent; '
            f"got {init_params!r}"
        )


def _advancing(kernel: BMSVMGibbs, state: BMSVMState) -> Advance:
    """Return the function that makes a chunk of draws of a kernel."""
    if isinstance(kernel.sampler_of(state.problem), Table):
        return table_advancing(state)
    check_precision(state.problem)
    algorithm = kernel.algorithm(state.problem)

    def advance(
        state: BMSVMState, count: int, thinning: int, collect: tuple[str, ...]
    ) -> tuple[BMSVMState, dict[str, Any]]:
        return advance_chains(state, algorithm, count, thinning, collect)

    return advance


def _checked_sites(collect: Sequence[str] | None, known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the sites to keep, or raise ``ValueError`` for one that the chains do not have."""
    chosen = known if collect is None else tuple(dict.fromkeys(collect))
    if not chosen:
        raise ValueError(f"collect must name a site, of {', '.join(known)}; got none")
    for name in chosen:
        check_choice("collect", name, known)
    return chosen


def _ended(store: Checkpoint, total: int) -> Ended:
    """Return how an interrupted run with a store ended: the store may have all draws."""
    return "interrupted" if store.progress.draws < total else "complete"


def _warn_of_interruption(done: int, total: int) -> None:
    warnings.warn(
        f"interrupted: {done} of {total} draws were made; call more() on the result for the rest",
        stacklevel=3,
    )


def _join(pieces: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([p[name] for p in pieces], axis=1) for name in pieces[0]}


def _draw(
    kernel: BMSVMGibbs,
    state: BMSVMState,
    total: int,
    thinning: int,
    collect: tuple[str, ...],
    *,
    keep: bool = True,
    store: Checkpoint | None = None,
    enough: Enough | None = None,
    until: float = np.inf,
) -> tuple[BMSVMState, list[dict[str, np.ndarray]], Ended]:
    """Advance chunk by chunk; on interruption return the finished chunks.

    With a store the chunks are written to it, and those that it already has are not made again. An
    interruption may leave the store one chunk ahead of the returned state.
    """
    pieces: list[dict[str, np.ndarray]] = []
    finished = 0
    if store is not None:
        finished = store.progress.draws if keep else store.progress.warmup
    if finished >= total:
        return state, pieces, "complete"
    try:
        advance = _advancing(kernel, state)
        name = "sample" if keep else "warm-up"
        with progress(total, name, initial=finished, unit="draw" if keep else "sweep") as bar:
            while finished < total:
                if finished and time.perf_counter() > until:
                    return state, pieces, "time"
                if finished and enough is not None:
                    made = _join(pieces) if store is None else store.draws()
                    if enough(made):
                        return state, pieces, "enough"
                count = min(CHUNK - finished % CHUNK, total - finished)
                ahead, drawn = advance(state, count, thinning, collect)
                piece = {
                    site: np.swapaxes(np.asarray(drawn[site]), 0, 1)
                    for site in (collect if keep else ())
                }
                if store is not None:
                    store.commit(moving_part(ahead), 0 if keep else count, piece)
                # All at once: an interruption must not come between a chunk and its state.
                kept = [*pieces, piece] if store is None else pieces
                state, pieces, finished = ahead, kept, finished + count
                if not bar.disable:
                    bar.set_postfix_str(kernel.get_diagnostics_str(state), refresh=False)
                bar.update(count)
    except KeyboardInterrupt:
        unfinished = finished < total or not keep
        return state, pieces, "interrupted" if unfinished else "complete"
    return state, pieces, "complete"
