"""Many posterior fits of one shape as one program: leave-one-out fits, or splits.

A fit is a lane of a batch. Lanes share a problem but for some of its fields, which have a leading
axis of lanes. Leave-one-out lanes differ in labels and weights only: a row of weight 0 has no say
in the posterior, so that all of them share one Gram matrix and one eigenbasis, and their products
with it are one matrix product. The left-out row's label is replaced before anything sees it.
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

PILOTS = 10
"""Chains that tune the moves of leave-one-out fits, each blind to the rows of its fits."""

LEAVE_ONE_OUT_PAIRS, SPLIT_PAIRS = 8, 1
"""Pairs of opposite points, drawn for each draw, over which the noise of scores is averaged."""

WATCHED_ROWS = 8
"""Test rows of a split whose functions are watched for R-hat."""


class Schedule(NamedTuple):
    """How long chains run.

    pilot
        Sweeps in which pilot chains tune the moves of leave-one-out fits; 0 where nothing is tuned.
    warmup
        Sweeps that are dropped; in splits moves are tuned in them.
    draws, thinning
        Draws that are kept, and the sweeps of each.
    """

    pilot: int
    warmup: int
    draws: int
    thinning: int


class Targets(NamedTuple):
    """Rows that are predicted, with a leading axis of lanes.

    row
        Number of the left-out row, shape (); None for splits.
    inside, remainder
        Features Phi* (m, r) and ``k** - |Phi*|^2`` (m,), theta being fixed; or, where it is on a
        grid, squared distances (m, n) and remainders (G, m).
    """

    row: jax.Array | None = None
    inside: jax.Array | None = None
    remainder: jax.Array | None = None


@dataclass(frozen=True)
class Stack:
    """Fits of one shape.

    problem
        What lanes have in common.
    varied
        Fields of the problem by lane.
    targets
        Rows to predict by lane.
    blind
        Rows that a lane must not know, (lanes, n) of booleans; None for splits.
    labels
        Labels of all rows, shape (n,), of leave-one-out fits.
    """

    problem: Problem
    varied: dict[str, Any]
    targets: Targets
    blind: np.ndarray | None = None
    labels: np.ndarray | None = None

    @property
    def n_lanes(self) -> int:
        """Number of fits."""
        return len(jax.tree.leaves(self.varied)[0])


class Drawn(NamedTuple):
    """What a run leaves of its draws.

    exclusion, probabilities
        Means over draws of ``p(y != j)``, eq. (20), and of ``p(y = j)``, eq. (21), for the
        predicted rows: shapes (lanes, m, c).
    traces
        ``log_noise_variance``, ``log_precision``, (draws, lanes), ``functions`` at predicted rows,
        (draws, lanes, q), and ``log_lengthscale`` where it is sampled.
    """

    exclusion: np.ndarray
    probabilities: np.ndarray
    traces: dict[str, np.ndarray]


# Problems ------------------------------------------------------------------------------------


def completed_problem(problem: Problem) -> Problem:
    """Problem for the completed sweep: c columns, each of which has all rows."""
    return replace(problem, coupling="independent", masked=None)


def _prepared(rows: np.ndarray, labels: np.ndarray, settings: dict[str, Any]) -> Problem:
    """Problem with a complete basis, so that problems of one size have one shape."""
    settings = dict(settings)
    completed, theta = settings.pop("completed"), settings["lengthscale"]
    problem = prepare(rows, labels, **settings)
    if theta != "sample":
        problem = with_gram(problem, kernels.gram_of("gaussian", rows, theta))
    return completed_problem(problem) if completed else problem


def _hidden(labels: np.ndarray, blind: np.ndarray) -> dict[str, jax.Array]:
    """Labels and weights of lanes (lanes, n) that do not know some rows."""
    dtype = jnp.result_type(float)
    return {
        "labels": jnp.asarray(np.where(blind, 0, labels), jnp.int32),
        "row_weights": jnp.asarray(~blind, dtype),
    }


def leave_one_out_stack(data: Data, left_out: Sequence[int], settings: dict[str, Any]) -> Stack:
    """Stack the fits that each leave one row out.

    Parameters
    ----------
    data
        All rows; they are standardised together, which needs no labels.
    left_out
        Numbers of the rows that are left out, one for each fit.
    settings
        Arguments of :func:`bmsvm.models.prepare`, and ``completed``.
    """
    rows = standardized(data.rows)
    # The labels only say how many classes there are; every lane brings its own.
    any_labels = np.arange(len(rows)) % data.n_classes
    problem = _prepared(rows, any_labels, settings)
    blind = np.asarray(left_out)[:, None] == np.arange(len(rows))
    targets = Targets(row=jnp.asarray(np.asarray(left_out), jnp.int32))
    return Stack(problem, _hidden(data.labels, blind), targets, blind, data.labels)


def split_stack(data: Data, parts: Sequence[Part], settings: dict[str, Any]) -> Stack:
    """Stack the fits to the training rows of splits, each standardised by its own."""
    problems, features = [], []
    for part in parts:
        train = data.rows[part.train]
        rows, tested = standardized(train), standardized(data.rows[part.test], train)
        labels = data.labels[part.train]
        if len(np.unique(labels)) < data.n_classes:
            raise ValueError("a split must have a row of each class to learn from")
        problem = _prepared(rows, labels, settings)
        problems.append(problem)
        features.append(_features(rows, tested, problem, settings["lengthscale"]))
    varied = {
        name: jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *[getattr(each, name) for each in problems]
        )
        for name in ("labels", "factor", "grid")
        if getattr(problems[0], name) is not None
    }
    targets = Targets(None, *(jnp.stack(each) for each in zip(*features, strict=True)))
    return Stack(problems[0], varied, targets)


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
    if theta != "sample":
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
    """Where lanes stand: one leading axis of lanes throughout."""

    key: jax.Array
    position: Position
    memory: tuple[Any, ...]


def _lane_problem(problem: Problem, varied: dict[str, Any]) -> Problem:
    return replace(problem, **varied)


@functools.partial(jax.jit, static_argnames=("blocks",))
def _begin(keys, varied, problem: Problem, *, blocks: tuple[Block, ...]) -> _Carry:
    """Start as in section 5: perfect scores, sigma2 and tau from their priors."""

    def one(key, varied):
        here = _lane_problem(problem, varied)
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

    return jax.vmap(one)(keys, varied)


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

    One program serves warm-up and sampling: without ``keep`` nobody looks at the draws.
    """

    def sweep(i, carry: _Carry) -> _Carry:
        def one(key, position, memory, varied):
            here = _lane_problem(problem, varied)
            key, *keys = jax.random.split(key, len(blocks) + 1)
            phase = Phase(i, n_tuned)
            position, memory, _ = in_turn(blocks, keys, position, memory, here, phase)
            return _Carry(key, position, memory)

        return jax.vmap(one)(*carry, varied)

    def look(carry: _Carry):
        def one(key, position, varied, targets):
            here = _lane_problem(problem, varied)
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

        return jax.vmap(one)(carry.key, carry.position, varied, targets)

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


def _advanced(
    carry: _Carry,
    stack: Stack,
    blocks: tuple[Block, ...],
    sizes: tuple[int, int],
    *,
    first: int,
    tuned: int,
    report: Callable[[int], None],
    keep: bool = True,
) -> tuple[_Carry, list[Any]]:
    """Make ``sizes`` draws, of so many sweeps each, piece by piece; and what was kept of them."""
    draws, thinning = sizes
    pieces = []
    for begin in range(0, draws, PIECE):
        count = min(PIECE, draws - begin)
        numbers = (first + begin * thinning, tuned, count, thinning)
        carry, (sums, kept) = _advance(
            carry,
            stack.varied,
            stack.targets,
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
    return carry, pieces


def _pilots(key, stack: Stack, blocks, sweeps: int, report) -> _Carry:
    """Lanes that stand where chains stand which are tuned, and have not seen the lanes' rows."""
    assert stack.blind is not None
    assert stack.labels is not None
    n = stack.blind.shape[1]
    group = np.arange(n) % PILOTS
    blind = group == np.arange(PILOTS)[:, None]
    targets = Targets(row=jnp.zeros(PILOTS, jnp.int32))
    pilots = Stack(stack.problem, _hidden(stack.labels, blind), targets, blind, stack.labels)
    carry = _begin(jax.random.split(key, PILOTS), pilots.varied, pilots.problem, blocks=blocks)
    carry, _ = _advanced(
        carry, pilots, blocks, (sweeps, 1), first=0, tuned=sweeps, report=report, keep=False
    )
    of_lane = group[np.argmax(stack.blind, axis=1)]
    position, memory = jax.tree.map(lambda leaf: leaf[of_lane], (carry.position, carry.memory))
    keys = jax.random.split(jax.random.fold_in(key, 1), stack.n_lanes)
    return _Carry(keys, position, memory)


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
    key = jax.random.key(seed)
    piloted = schedule.pilot > 0 and stack.blind is not None
    pilot = schedule.pilot if piloted else 0
    # A sweep of the few pilots counts as what it costs beside one of all lanes.
    weight = PILOTS / max(stack.n_lanes, PILOTS)
    total = pilot * weight + schedule.warmup + schedule.draws * schedule.thinning
    if piloted:
        carry = _pilots(key, stack, blocks, pilot, lambda n: report(n * weight / total))
        first, tuned = pilot, 0
    else:
        keys = jax.random.split(key, stack.n_lanes)
        carry = _begin(keys, stack.varied, stack.problem, blocks=blocks)
        first, tuned = 0, schedule.warmup
    advanced = functools.partial(
        _advanced, stack=stack, blocks=blocks, tuned=tuned, report=lambda n: report(n / total)
    )
    carry, _ = advanced(carry, sizes=(schedule.warmup, 1), first=first, keep=False)
    sizes = schedule.draws, schedule.thinning
    _, pieces = advanced(carry, sizes=sizes, first=first + schedule.warmup)
    excluded, chances = (
        sum(parts) / schedule.draws for parts in zip(*(each for each, _ in pieces), strict=True)
    )
    traces = {name: np.concatenate([kept[name] for _, kept in pieces]) for name in pieces[0][1]}
    return Drawn(excluded, chances, traces)
