"""Many posterior fits of one shape as one program: leave-one-out fits, or splits.

Chains are lanes of a batch, and lanes come in groups that share a basis and the tuning of their
moves. Leave-one-out lanes differ in labels and weights only: a row of weight 0 has no say in the
posterior, so that all of them share one Gram matrix and one eigenbasis, and their products with it
are one matrix product. A left-out row's label is replaced before anything sees it. A split is a
group of its own, whose lanes are its chains.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm import kernels
from bmsvm.experiments.completed import row_cavity, seen_of
from bmsvm.experiments.protocol import Data, Part, standardized
from bmsvm.inference.blocks import Block, Phase, in_turn, memories
from bmsvm.inference.gibbs import perfect_scores
from bmsvm.models import likelihoods
from bmsvm.models.conditionals import intercept_collapsed, project, weights_full
from bmsvm.models.couplings import class_vector, to_columns
from bmsvm.models.hierarchy import Position, noise_prior, precision_prior
from bmsvm.models.problem import Problem, prepare
from bmsvm.models.regram import with_gram

__all__ = [
    "Drawn",
    "Schedule",
    "Stack",
    "Targets",
    "leave_one_out_stack",
    "run_stack",
    "split_stack",
]

PIECE = 25
"""Draws between two looks at the progress bar."""

GROUPS = 10
"""Of leave-one-out fits: each tunes its moves blind to all rows that its fits leave out."""

LEAST_LANES = 12
"""Fits of a group at the least, where there are enough: fewer make poor use of a product."""

LEAVE_ONE_OUT_PAIRS, SPLIT_PAIRS = 8, 1
"""Pairs of opposite points, drawn for each draw, over which the noise of scores is averaged."""

WATCHED_ROWS = 8
"""Test rows of a split whose functions are watched for R-hat."""


class Schedule(NamedTuple):
    """How long chains run.

    pilot
        Sweeps in which groups of leave-one-out fits tune their moves; 0 where nothing is tuned.
    warmup
        Sweeps that are dropped; in splits moves are tuned in them.
    draws, thinning
        Draws that each chain keeps, and the sweeps of each.
    """

    pilot: int
    warmup: int
    draws: int
    thinning: int


class Targets(NamedTuple):
    """Rows that are predicted.

    row
        Number of the left-out row of each fit, with a leading axis of lanes; None for splits.
    inside, remainder
        Features Phi* (m, r) and ``k** - |Phi*|^2`` (m,), theta being fixed; or, where it is on a
        grid, squared distances (m, n) and remainders (G, m).
    """

    row: jax.Array | None = None
    inside: jax.Array | None = None
    remainder: jax.Array | None = None


LANES = Targets(0, None, None)  # type: ignore[arg-type]
"""Which of the targets have an axis of lanes."""


class Group(NamedTuple):
    """Lanes that share a basis and the tuning of their moves.

    shared
        Fields of the problem in which groups differ.
    varied
        Fields of the problem by lane.
    targets
        Rows to predict.
    hidden
        Fields of the problem by lane while moves are tuned, in which no lane knows a row that any
        lane of the group leaves out; None for splits, which have nothing to hide.
    """

    shared: dict[str, Any]
    varied: dict[str, Any]
    targets: Targets
    hidden: dict[str, Any] | None = None


@dataclass(frozen=True)
class Stack:
    """Fits of one shape.

    problem
        What all have in common.
    groups
        Of equal size, run one after the other by one program.
    n_lanes
        Lanes of a group.
    fits
        Places of the leave-one-out fits among the lanes of all groups, shape (fits,); None for
        splits, where a group is a fit and its lanes are chains.
    """

    problem: Problem
    groups: tuple[Group, ...]
    n_lanes: int
    fits: np.ndarray | None = None


class Drawn(NamedTuple):
    """What a run leaves of its draws.

    exclusion, probabilities
        Means over draws of ``p(y != j)``, eq. (20), and of ``p(y = j)``, eq. (21), for the
        predicted rows: shapes (fits, m, c).
    traces
        ``log_noise_variance``, ``log_precision``, (chains, draws, fits), ``functions`` at predicted
        rows, (chains, draws, fits, q), and ``log_lengthscale`` where it is sampled.
    """

    exclusion: np.ndarray
    probabilities: np.ndarray
    traces: dict[str, np.ndarray]


# Problems ------------------------------------------------------------------------------------


def completed_problem(problem: Problem) -> Problem:
    """Problem for the completed sweep: c columns, each of which has all rows."""
    return replace(problem, coupling="independent", masked=None)


def _is_sampled(theta: Any) -> bool:
    return isinstance(theta, str)


def _prepared(rows: np.ndarray, labels: np.ndarray, settings: dict[str, Any]) -> Problem:
    """Problem with a complete basis, so that problems of one size have one shape."""
    settings = dict(settings)
    completed, theta = settings.pop("completed"), settings["lengthscale"]
    problem = prepare(rows, labels, **settings)
    if not _is_sampled(theta):
        problem = with_gram(problem, kernels.gram_of("gaussian", rows, theta))
    return completed_problem(problem) if completed else problem


def _without(labels: np.ndarray, blind: np.ndarray) -> dict[str, jax.Array]:
    """Labels and weights of lanes (lanes, n) that do not know some rows."""
    dtype = jnp.result_type(float)
    return {
        "labels": jnp.asarray(np.where(blind, 0, labels), jnp.int32),
        "row_weights": jnp.asarray(~blind, dtype),
    }


def blocks_of_rows(left_out: Sequence[int]) -> list[np.ndarray]:
    """Rows of each group of leave-one-out fits, of equal number: some are there twice."""
    count = min(GROUPS, -(-len(left_out) // LEAST_LANES))
    size = -(-len(left_out) // count)
    return [np.resize(np.asarray(left_out)[group::count], size) for group in range(count)]


def leave_one_out_stack(
    data: Data,
    left_out: Sequence[int],
    settings: dict[str, Any],
    own_settings: Sequence[dict[str, Any]] | None = None,
) -> Stack:
    """Stack the fits that each leave one row out.

    Parameters
    ----------
    data
        All rows; they are standardised together, which needs no labels.
    left_out
        Numbers of the rows that are left out, one for each fit.
    settings
        Arguments of :func:`bmsvm.models.prepare`, and ``completed``.
    own_settings
        Lengthscale and hyperparameters of each of ``blocks_of_rows``, beside the settings.
    """
    rows = standardized(data.rows)
    # The labels only say how many classes there are; every lane brings its own.
    any_labels = np.arange(len(rows)) % data.n_classes
    first = {} if own_settings is None else own_settings[0]
    problem = _prepared(rows, any_labels, {**settings, **first})
    numbers = np.arange(len(rows))
    groups = []
    for number, own in enumerate(blocks_of_rows(left_out)):
        shared: dict[str, Any] = {}
        if own_settings is not None:
            here = _prepared(rows, any_labels, {**settings, **own_settings[number]})
            shared = {"factor": here.factor, "hyper": here.hyper}
        groups.append(
            Group(
                shared,
                _without(data.labels, own[:, None] == numbers),
                Targets(row=jnp.asarray(own, jnp.int32)),
                _without(data.labels, np.tile(np.isin(numbers, own), (len(own), 1))),
            )
        )
    fits = np.arange(len(left_out))
    places = fits % len(groups) * len(own) + fits // len(groups)
    return Stack(problem, tuple(groups), len(own), places)


def split_stack(
    data: Data, parts: Sequence[Part], settings: dict[str, Any], chains: int = 1
) -> Stack:
    """Stack the fits to the training rows of splits, each standardised by its own.

    Each is a group, whose lanes are its chains.
    """
    groups = []
    for part in parts:
        train = data.rows[part.train]
        rows, tested = standardized(train), standardized(data.rows[part.test], train)
        labels = data.labels[part.train]
        if len(np.unique(labels)) < data.n_classes:
            raise ValueError("a split must have a row of each class to learn from")
        problem = _prepared(rows, labels, settings)
        shared = {
            name: getattr(problem, name)
            for name in ("labels", "factor", "grid")
            if getattr(problem, name) is not None
        }
        features = _features(rows, tested, problem, settings["lengthscale"])
        groups.append(Group(shared, {}, Targets(None, *features)))
    return Stack(problem, tuple(groups), chains)


def _features(
    rows: np.ndarray, tested: np.ndarray, problem: Problem, theta: float | str
) -> tuple[jax.Array, jax.Array]:
    """Features of test rows; see :class:`Targets`."""

    def inside_at(value, factor):
        in_float64 = kernels.Factor(*(cast(Any, np.asarray(each, float)) for each in factor))
        values = np.exp(-distances / (2 * value**2))
        return values @ kernels.projection(in_float64)

    squares = np.sum(tested**2, axis=1)[:, None] + np.sum(rows**2, axis=1)
    distances = np.maximum(squares - 2 * tested @ rows.T, 0.0)
    if not _is_sampled(theta):
        inside = inside_at(theta, problem.factor)
        return jnp.asarray(inside), jnp.asarray(np.maximum(1 - np.sum(inside**2, axis=1), 0.0))
    assert problem.grid is not None
    remainders = [
        np.maximum(1 - np.sum(inside_at(float(value), factor) ** 2, axis=1), 0.0)
        for value, *factor in zip(
            np.asarray(problem.grid.values), *map(np.asarray, problem.grid.factors), strict=True
        )
    ]
    return jnp.asarray(distances, jnp.float32), jnp.asarray(np.stack(remainders))


# Chains --------------------------------------------------------------------------------------


class _Carry(NamedTuple):
    """Where the lanes of a group stand: a leading axis of lanes, but for the memory they share."""

    key: jax.Array
    position: Position
    memory: tuple[Any, ...]


@functools.partial(jax.jit, static_argnames=("blocks",))
def _begin(keys, shared, varied, problem: Problem, *, blocks: tuple[Block, ...]) -> _Carry:
    """Start as in section 5: perfect scores, sigma2 and tau from their priors."""

    def one(key, varied):
        here = replace(problem, **shared, **varied)
        key, key_noise, key_precision = jax.random.split(key, 3)
        scores = perfect_scores(here)
        if here.row_weights is not None:
            scores = jnp.where(here.row_weights[:, None] > 0, scores, 0.0)
        if here.coupling == "sum_to_zero":
            scores = to_columns(scores, here.labels, here.coupling)
        shape = here.factor.eigenvalues.shape[0], here.n_columns
        position = Position(
            columns=scores,
            intercept=jnp.zeros(here.n_columns, scores.dtype),
            weights=jnp.zeros(shape, scores.dtype),
            noise_variance=noise_prior(here).sample(key_noise),
            precision=precision_prior(here).sample(key_precision),
            kernel=here.first_kernel(),
        )
        return _Carry(key, position, memories(blocks, position, here))

    carry = jax.vmap(one)(keys, varied)
    return carry._replace(memory=_pooled(carry.memory))


def _pooled(memory: Any) -> Any:
    """Pool what lanes have learned: the mean of numbers, and the counts that all have."""

    def one(leaf):
        return leaf.mean(0) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf[0]

    return jax.tree.map(one, memory)


def _predict(
    key: jax.Array, position: Position, targets: Targets, problem: Problem
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Exclusion and class probabilities, (m, c), and functions, (m, c), of one draw."""
    here = problem.at(position.kernel)
    columns, noise = position.columns, position.noise_variance
    key, key_nodes = jax.random.split(key)
    pairs = SPLIT_PAIRS if targets.row is None else LEAVE_ONE_OUT_PAIRS
    nodes = jax.random.normal(key_nodes, (pairs, problem.n_columns), columns.dtype)
    nodes = jnp.concatenate([nodes, -nodes])
    if targets.row is not None:
        seen_row = seen_of(columns.T, position.precision, here)
        cavity = row_cavity(targets.row, columns[targets.row], seen_row, here)
        middle = cavity.mean[None]
        spread = jnp.sqrt(noise * jnp.maximum(cavity.variance - 1, 0.0))
        functions = middle[:, None] + spread * nodes
        scores = middle[:, None] + jnp.sqrt(noise * cavity.variance) * nodes
    else:
        key_intercept, key_weights, key_rest = jax.random.split(key, 3)
        precision, seen = position.precision, project(columns, here)
        intercept = intercept_collapsed(seen, precision, noise, here).sample(key_intercept)
        weights = weights_full(seen, intercept, precision, noise, here).sample(key_weights)
        inside, remainder = cast(jax.Array, targets.inside), cast(jax.Array, targets.remainder)
        if problem.grid is None:
            middle = intercept + inside @ weights
        else:
            theta = problem.grid.values[position.kernel].astype(inside.dtype)
            values = jnp.exp(-inside / (2 * theta**2))
            coefficients = kernels.projection(here.factor) @ weights
            middle = intercept + (values @ coefficients.astype(inside.dtype)).astype(noise.dtype)
            remainder = remainder[position.kernel]
        rest = jax.random.normal(key_rest, middle.shape, middle.dtype)
        middle = middle + jnp.sqrt(noise / precision * remainder)[:, None] * rest
        functions = middle[:, None]
        scores = middle[:, None] + jnp.sqrt(noise) * nodes
    functions, scores, middle = (
        class_vector(each, problem.coupling) for each in (functions, scores, middle)
    )
    excluded = likelihoods.exclusion_probabilities(functions).mean(1)
    chances = likelihoods.class_probabilities(scores, problem.likelihood).mean(1)
    return excluded, chances, middle


@functools.partial(jax.jit, static_argnames=("blocks",), donate_argnums=(0,))
def _advance(
    carry: _Carry,
    shared: dict[str, Any],
    varied: dict[str, Any],
    targets: Targets,
    problem: Problem,
    first: jax.Array,
    n_tuned: jax.Array,
    count: jax.Array,
    thinning: jax.Array,
    keep: jax.Array,
    *,
    blocks: tuple[Block, ...],
) -> tuple[_Carry, Any]:
    """Make ``count`` draws, of sweeps that are counted from ``first``; sums and traces of them.

    One program serves warm-up and sampling: without ``keep`` nobody looks at the draws. Since the
    lanes share their memory, they make the same number of steps, and their products with the basis
    are one.
    """
    problem = replace(problem, **shared)

    def sweep(i, carry: _Carry) -> _Carry:
        def one(key, position, varied):
            here = replace(problem, **varied)
            key, *keys = jax.random.split(key, len(blocks) + 1)
            phase = Phase(i, n_tuned)
            position, memory, _ = in_turn(blocks, keys, position, carry.memory, here, phase)
            return _Carry(key, position, memory)

        moved = jax.vmap(one)(carry.key, carry.position, varied)
        memory = jax.lax.cond(i < n_tuned, lambda: _pooled(moved.memory), lambda: carry.memory)
        return moved._replace(memory=memory)

    def look(carry: _Carry):
        def one(key, position, varied, targets):
            here = replace(problem, **varied)
            key = jax.random.fold_in(key, 0x70)
            excluded, chances, functions = _predict(key, position, targets, here)
            trace = {
                "log_noise_variance": jnp.log(position.noise_variance),
                "log_precision": jnp.log(position.precision),
                "functions": functions[:WATCHED_ROWS].ravel(),
            }
            for name, value in here.kernel_values(position.kernel).items():
                trace[f"log_{name}"] = jnp.log(value)
            return (excluded, chances), trace

        return jax.vmap(one, in_axes=(0, 0, 0, LANES))(carry.key, carry.position, varied, targets)

    sums, trace = jax.eval_shape(look, carry)
    empty = (
        jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), sums),
        jax.tree.map(lambda like: jnp.zeros((PIECE, *like.shape), like.dtype), trace),
    )

    def looked(i, carry, totals, kept):
        sums, trace = look(carry)
        totals = jax.tree.map(jnp.add, totals, sums)
        return totals, jax.tree.map(lambda all_, one: all_.at[i].set(one), kept, trace)

    def draw(i, both):
        carry, seen = both
        begin = first + i * thinning
        carry = jax.lax.fori_loop(begin, begin + thinning, sweep, carry)
        seen = jax.lax.cond(keep, lambda: looked(i, carry, *seen), lambda: seen)
        return carry, seen

    return jax.lax.fori_loop(0, count, draw, (carry, empty))


def _run_group(
    key: jax.Array,
    group: Group,
    stack: Stack,
    blocks: tuple[Block, ...],
    schedule: Schedule,
    report: Callable[[int], None],
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Means over draws, with an axis of lanes, and traces (draws, lanes, ...) of a group."""
    hidden = group.varied if group.hidden is None else group.hidden
    keys = jax.random.split(key, stack.n_lanes)
    carry = _begin(keys, group.shared, hidden, stack.problem, blocks=blocks)
    pilot = 0 if group.hidden is None else schedule.pilot
    tuned = schedule.warmup if group.hidden is None else pilot
    pieces = []
    for varied, first, draws, thinning, keep in (
        (hidden, 0, pilot, 1, False),
        (group.varied, pilot, schedule.warmup, 1, False),
        (group.varied, pilot + schedule.warmup, schedule.draws, schedule.thinning, True),
    ):
        for begin in range(0, draws, PIECE):
            count = min(PIECE, draws - begin)
            numbers = (first + begin * thinning, tuned, count, thinning)
            carry, (sums, kept) = _advance(
                carry,
                group.shared,
                varied,
                group.targets,
                stack.problem,
                *(jnp.asarray(each, jnp.int32) for each in numbers),
                jnp.asarray(keep),
                blocks=blocks,
            )
            jax.block_until_ready(carry.position.precision)
            if keep:
                totals = [np.asarray(each, np.float64) for each in sums]
                pieces.append((totals, {name: np.asarray(x)[:count] for name, x in kept.items()}))
            report(count * thinning)
    means = [
        sum(parts) / schedule.draws for parts in zip(*(each for each, _ in pieces), strict=True)
    ]
    traces = {name: np.concatenate([kept[name] for _, kept in pieces]) for name in pieces[0][1]}
    return means, traces


def run_stack(
    seed: int,
    stack: Stack,
    blocks: tuple[Block, ...],
    schedule: Schedule,
    report: Callable[[float], None] = lambda share: None,
) -> Drawn:
    """Run all fits of a stack.

    Parameters
    ----------
    seed
        Of the random keys.
    stack
        The fits.
    blocks
        Of one sweep.
    schedule
        How long.
    report
        Is told which share of the whole has been done since it was told last.
    """
    pilot = 0 if stack.fits is None else schedule.pilot
    total = pilot + schedule.warmup + schedule.draws * schedule.thinning
    total *= len(stack.groups)
    found = [
        _run_group(key, group, stack, blocks, schedule, lambda n: report(n / total))
        for key, group in zip(
            jax.random.split(jax.random.key(seed), len(stack.groups)), stack.groups, strict=True
        )
    ]
    excluded, chances = (
        np.stack(each) for each in zip(*(means for means, _ in found), strict=True)
    )  # (groups, lanes, m, c)
    # (draws, groups, lanes, ...)
    traces = {name: np.stack([each[name] for _, each in found], 1) for name in found[0][1]}
    if stack.fits is None:
        chains = {name: np.moveaxis(x, 2, 0) for name, x in traces.items()}
        return Drawn(excluded.mean(1), chances.mean(1), chains)
    fits = stack.fits
    flat = {name: x.reshape(1, len(x), -1, *x.shape[3:])[:, :, fits] for name, x in traces.items()}
    excluded, chances = (x.reshape(-1, *x.shape[2:])[fits] for x in (excluded, chances))
    return Drawn(excluded, chances, flat)
