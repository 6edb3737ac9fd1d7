"""Chains run in pieces: compiled once for each shape, watched, interrupted, and continued.

``numpyro.infer.MCMC`` carries :class:`~bmsvm.BMSVMGibbs` too, and compiles anew in every ``run``.
Here one program of a few sweeps serves warm-up and sampling, of any length, and of every later
fit of the same shape.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike
from tqdm.auto import tqdm

from bmsvm._validation import check_choice, check_sweeps
from bmsvm.checkpoint import PIECE, Checkpoint, digest_of_arrays
from bmsvm.inference.blocks import Block
from bmsvm.inference.finite import check_finite
from bmsvm.inference.gibbs import BMSVMGibbs, BMSVMState, sweep
from bmsvm.inference.programs import forget_old_programs, give_back_memory
from bmsvm.inference.sharding import place, to_host
from bmsvm.models.problem import Problem

__all__ = ["COLLECTED", "Run", "for_pickling", "run_chains", "unpickled", "values_of"]

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


def for_pickling(tree: Any) -> Any:
    """Return a pytree of arrays whose types do not depend on how JAX is set when it is unpickled.

    :func:`unpickled` undoes it.
    """
    return jax.tree.map(_on_host, tree)


def unpickled(tree: Any) -> Any:
    """Undo :func:`for_pickling`."""
    with jax.enable_x64(True):
        return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else jnp.asarray(leaf), tree)


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
    """Make ``count`` draws, ``thinning`` sweeps each; draws past ``count`` are zeros.

    The problem stays out of the loops and of what is returned, or it would be copied.
    """
    problem = state.problem

    def values(moving):
        return values_of(moving._replace(problem=problem), collect)

    def one_sweep(_, moving):
        return sweep(moving._replace(problem=problem), blocks)._replace(problem=cast(Any, None))

    def draw(i, carry):
        moving, kept = carry
        moving = jax.lax.fori_loop(0, thinning, one_sweep, moving)
        found = values(moving)
        return moving, {name: kept[name].at[i].set(found[name]) for name in collect}

    moving = state._replace(problem=cast(Any, None))
    shapes = jax.eval_shape(values, moving)
    empty = {name: jnp.zeros((PIECE, *like.shape), like.dtype) for name, like in shapes.items()}
    moving, kept = jax.lax.fori_loop(0, count, draw, (moving, empty))
    return moving, kept


@dataclass(frozen=True)
class Run:
    """Draws of some chains, and all that is needed to make more of them.

    samples
        Draws of each site, shape (chain, draw, ...); read from the store, if there is one, each
        time they are asked for.
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
    store
        Where draws go to as they are made; None where they stay in memory.
    mesh
        The devices over which rows and chains are spread; None where they are not.
    """

    samples: Mapping[str, np.ndarray]
    state: BMSVMState
    sampler: BMSVMGibbs
    thinning: int
    interrupted: bool = False
    seconds: float = 0.0
    store: Checkpoint | None = None
    mesh: Mesh | None = None

    @property
    def num_samples(self) -> int:
        """Draws made by each chain."""
        stored = getattr(self.samples, "num_samples", None)
        return next(iter(self.samples.values())).shape[1] if stored is None else stored

    def loaded(self) -> Run:
        """Return the run with all its draws in memory; :meth:`more` still goes on in the store."""
        return replace(self, samples=dict(self.samples))

    def __getstate__(self) -> dict[str, Any]:
        state = for_pickling(self.state)
        return {
            **self.__dict__,
            "samples": dict(self.samples),
            "state": state,
            "store": None,
            "mesh": None,
        }

    def __setstate__(self, fields: dict[str, Any]) -> None:
        self.__dict__.update({**fields, "state": unpickled(fields["state"])})

    def more(self, num_samples: int, *, progress_bar: bool = True) -> Run:
        """Continue where the chains stopped: the same draws as having run longer.

        Chains with a store go on in it.
        """
        check_sweeps("num_samples", num_samples)
        began, store = time.perf_counter(), self.store
        with contextlib.nullcontext() if store is None else store.opened():
            state, total = self.state, num_samples
            if store is not None:
                state, total = _last(store, state), self.num_samples + num_samples
                if store.progress.draws != self.num_samples:
                    raise ValueError(
                        f"these chains have {self.num_samples} draws, and their store has gone on "
                        f"to {store.progress.draws}: call run_chains again with the same store"
                    )
            state, pieces, interrupted = _draw(
                self.sampler,
                state,
                total,
                self.thinning,
                tuple(self.samples),
                "sample" if progress_bar else None,
                store=store,
                mesh=self.mesh,
            )
            if interrupted and store is not None:
                state, interrupted = _last(store, state), store.progress.draws < total
        samples = _join([self.samples, *pieces]) if store is None else store.draws()
        seconds = self.seconds + time.perf_counter() - began
        more = replace(self, samples=samples, state=state, interrupted=interrupted, seconds=seconds)
        if interrupted:
            _warn_of_interruption(more.num_samples - self.num_samples, num_samples)
        return more


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
    store: str | os.PathLike[str] | None = None,
    mesh: Mesh | None = None,
    progress_bar: bool = True,
) -> Run:
    """Run vectorised chains.

    An interruption (Ctrl-C) after the first draws returns those that are finished, with a warning;
    :meth:`Run.more` makes the rest. With a store nothing that is complete is ever lost, however
    the process ends: the same call goes on, and makes the same draws as if it had never stopped.
    Chains that leave the finite numbers stop with a :class:`bmsvm.inference.finite.NonFiniteError`
    that names the sweep, the block and the parameter.

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
    store
        A directory to which draws are written as they are made, every 50, together with where the
        chains stand; memory then does not grow with the chains. Needs ``bmsvm[store]``. Where it
        holds a run of the same data, key and settings already, that run goes on up to
        ``num_samples``, or is returned if it has as many or more; another run is refused.
    mesh
        Devices over which rows and chains are spread, from
        :func:`bmsvm.inference.sharding.make_mesh`. The draws are the same, up to rounding.
    progress_bar
        Whether to show progress.
    """
    check_sweeps("num_warmup", num_warmup, smallest=0)
    check_sweeps("num_samples", num_samples)
    check_sweeps("num_chains", num_chains)
    check_sweeps("thinning", thinning)
    problem = sampler.prepare(X) if y is None else sampler.prepare(X, y)
    compiles = forget_old_programs(problem)
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
    kept, earlier = None, 0.0
    with contextlib.ExitStack() as stack:
        if store is not None:
            kept = _store_of(store, sampler, state, num_warmup, thinning, collect)
            stack.enter_context(kept.opened())
            state = kept.begin(_moving(state))._replace(problem=state.problem)
            earlier = kept.progress.seconds
        state, _, interrupted = _draw(
            sampler,
            state,
            num_warmup,
            1,
            collect,
            "warm-up" if progress_bar else None,
            keep=False,
            store=kept,
            mesh=mesh,
        )
        pieces: list[dict[str, np.ndarray]] = []
        if not interrupted:
            fresh = tuned is not None and (kept is None or kept.progress.draws == 0)
            state = _begin(state, num_warmup) if fresh else state
            label = "sample" if progress_bar else None
            state, pieces, interrupted = _draw(
                sampler, state, num_samples, thinning, collect, label, store=kept, mesh=mesh
            )
        if kept is not None and interrupted:
            state, interrupted = _last(kept, state), kept.progress.draws < num_samples
    if compiles:
        give_back_memory()
    if not pieces and (kept is None or kept.progress.draws == 0):
        raise KeyboardInterrupt("interrupted before the first draws were finished")
    samples = _join(pieces) if kept is None else kept.draws()
    seconds = earlier + time.perf_counter() - began
    run = Run(samples, state, sampler, thinning, interrupted, seconds, kept, mesh)
    if interrupted:
        _warn_of_interruption(run.num_samples, num_samples)
    return run


def _store_of(
    path: str | os.PathLike[str],
    sampler: BMSVMGibbs,
    start: BMSVMState,
    num_warmup: int,
    thinning: int,
    collect: tuple[str, ...],
) -> Checkpoint:
    """Return the store of a run, which knows by what its draws are determined."""
    problem = start.problem
    fingerprint = {
        "num_chains": int(start.accept_prob.shape[0]),
        "num_warmup": int(num_warmup),
        "thinning": int(thinning),
        "collect": list(collect),
        "coupling": problem.coupling,
        "likelihood": problem.likelihood,
        "blocks": [block.name for block in sampler.blocks],
        "data": digest_of_arrays(problem),
        "start": digest_of_arrays(_moving(start)),
    }
    return Checkpoint(path, fingerprint, collect)


def _moving(state: BMSVMState) -> BMSVMState:
    """Return the part of a state that moves: all but the prepared data."""
    return state._replace(problem=None)  # type: ignore[arg-type]


def _last(store: Checkpoint, state: BMSVMState) -> BMSVMState:
    """Read where the chains of a store stand; ``state`` is one of them."""
    return store.last(_moving(state))._replace(problem=state.problem)


def _begin(state: BMSVMState, num_warmup: int) -> BMSVMState:
    """Count the sweeps of chains from the end of their warm-up."""
    count = jnp.asarray(num_warmup, jnp.int32)
    return state._replace(i=count, n_warmup=count)


def _warn_of_interruption(done: int, total: int) -> None:
    warnings.warn(
        f"interrupted: {done} of {total} draws were made; call more() on what is returned for "
        "the rest",
        stacklevel=3,
    )


def _join(pieces: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
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
    store: Checkpoint | None = None,
    mesh: Mesh | None = None,
) -> tuple[BMSVMState, list[dict[str, np.ndarray]], bool]:
    """Advance piece by piece; on interruption return what is finished.

    With a store the pieces go there, those that it has of ``total`` are not made again, and an
    interruption may leave it one piece ahead of what is returned.
    """
    pieces: list[dict[str, np.ndarray]] = []
    finished = 0
    if store is not None:
        finished = store.progress.draws if keep else store.progress.warmup
    program = functools.partial(_advance, blocks=sampler.blocks, collect=collect)
    if mesh is not None:
        state = place(state, mesh)
    try:
        with tqdm(total=total, initial=finished, desc=label, disable=label is None) as bar:
            while finished < total:
                count = min(PIECE, total - finished)
                ahead, drawn = program(state, jnp.asarray(count), jnp.asarray(thinning))
                ahead = ahead._replace(problem=state.problem)
                if mesh is not None:  # the compiler may have left something elsewhere
                    ahead = place(ahead, mesh)
                jax.block_until_ready(ahead.i)
                check_finite(state, ahead, sampler.blocks, count * thinning)
                piece = {
                    name: np.swapaxes(to_host(drawn[name])[:count], 0, 1)
                    for name in (collect if keep else ())
                }
                if store is not None:
                    store.commit(_moving(ahead), 0 if keep else count, piece)
                # All at once: an interruption must not come between a piece and its state.
                kept = [*pieces, piece] if store is None else pieces
                state, pieces, finished = ahead, kept, finished + count
                if label is not None:
                    bar.set_postfix_str(sampler.get_diagnostics_str(state), refresh=False)
                bar.update(count)
    except KeyboardInterrupt:
        return state, pieces, finished < total or not keep
    return state, pieces, False
