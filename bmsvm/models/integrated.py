"""The model with the noise of the scores integrated out: labels given functions.

``p(y | f, sigma) = E L(y | f + sigma e)``, e standard normal, has no closed form for more than two
classes. Here the mean is over J points of e (:func:`bmsvm.models.quadrature.noise_nodes`), the same
for every row: a model whose noise takes J values. docs/scale.md measures the difference. Without
the scores a sweep has r and not n coordinates for each column, and sigma, which the scores of n
rows determine to one part in sqrt(n), is free to move.

The weights and the intercept of each column are one array x (k, r + 1): weights v, and the
intercept divided by a constant ``intercept_scale``. The variances are ``logs``, (log sigma, log d)
with ``d = tau/sigma2``.

The likelihoods (11) and (21) are written here a second time, with their slopes, for speed: one
pass makes value and gradient at a fifth of the cost of automatic differentiation
(benchmarks/cost.py). Tests compare them with :mod:`bmsvm.models.likelihoods`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.models.couplings import class_map
from bmsvm.models.hierarchy import log_noise_prior, log_precision_prior
from bmsvm.models.likelihoods import margin_offset, rectify, weigh
from bmsvm.models.problem import Problem

ROWS = 2048
"""Rows that are worked on at a time: what comes of them stays in the processor's cache."""


def check_integrable(what: str, coupling: str) -> None:
    """Raise ``ValueError`` if scores cannot be integrated out of the model.

    ``what`` names, in the message, the setting that needs it.
    """
    if coupling != "sum_to_zero":
        raise ValueError(
            f'{what} needs coupling="sum_to_zero", in which all columns observe a row; '
            f"got {coupling!r}"
        )


def check_nodes(what: str, coupling: str, likelihood: str) -> None:
    """Raise ``ValueError`` if a model cannot be integrated over points of the noise here."""
    check_integrable(what, coupling)
    if likelihood not in _AT_NODES:
        raise ValueError(
            f'{what} needs likelihood="hinge" or "normalized"; got {likelihood!r}, whose scores '
            "are integrated out in closed form: pass sampler=Table()"
        )


class _Slopes(NamedTuple):
    """Log likelihood (n,), and its derivatives by functions (k, n) and by log scale (n,)."""

    value: jax.Array
    functions: jax.Array
    log_scale: jax.Array


class _Node(NamedTuple):
    """Likelihood of rows (n,) at one point of the noise, and derivatives by their scores, c (n,).

    Both relative to ``exp(level)``.
    """

    share: jax.Array
    slopes: list[jax.Array]


def _normalized(
    heights: Sequence[jax.Array],
    own: Sequence[jax.Array],
    weights: jax.Array | None,
    scale: jax.Array,
    noises: jax.Array,
) -> tuple[jax.Array, Callable[[Sequence[jax.Array]], _Node]]:
    """Eq. (21): level, and the likelihood of scores ``heights + noise``.

    Exponentials are relative to the largest of a row without noise, and of at most ``limit``, so
    that nothing overflows.
    """
    limit = 0.9 * float(np.log(jnp.finfo(heights[0].dtype).max))
    offset = margin_offset(len(heights))
    top = rectify(functools.reduce(jnp.maximum, heights) + offset)
    relative = [height + (offset - top) for height in heights]
    least = jnp.exp(-jnp.minimum(top, limit))

    def at(noise):
        grown = [jnp.exp(jnp.minimum(h + e, limit)) for h, e in zip(relative, noise, strict=True)]
        # exp((x)_+) is max(exp(x), 1).
        each = [jnp.maximum(value, least) for value in grown]
        total = functools.reduce(jnp.add, each)
        mine = [jnp.where(is_own, value, 0.0) for is_own, value in zip(own, each, strict=True)]
        share = functools.reduce(jnp.add, mine) / total
        by_log = share
        if weights is not None:
            share = jnp.exp(weigh(jnp.log(share), weights))
            by_log = weights * share
        # Not by_log / total: the compiler makes one quotient by total^2 of it, which underflows.
        slopes = [
            jnp.where(value > least, jnp.where(is_own, by_log, 0.0) - by_log * (value / total), 0.0)
            for is_own, value in zip(own, grown, strict=True)
        ]
        return _Node(share, slopes)

    return jnp.zeros_like(top), at


def _hinge(
    heights: Sequence[jax.Array],
    own: Sequence[jax.Array],
    weights: jax.Array | None,
    scale: jax.Array,
    noises: jax.Array,
) -> tuple[jax.Array, Callable[[Sequence[jax.Array]], _Node]]:
    """Eq. (11), as :func:`_normalized`; its level is the log likelihood where it is largest."""
    offset = margin_offset(len(heights))

    def log_likelihood(scores):
        others = [
            jnp.where(is_own, 0.0, rectify(score + offset))
            for is_own, score in zip(own, scores, strict=True)
        ]
        return weigh(-functools.reduce(jnp.add, others), weights)

    def larger(level, noise):
        moved = [height + scale * e for height, e in zip(heights, noise, strict=True)]
        return jnp.maximum(level, log_likelihood(moved)), None

    level, _ = jax.lax.scan(larger, jnp.full_like(heights[0], -jnp.inf), noises)

    def at(noise):
        scores = [height + e for height, e in zip(heights, noise, strict=True)]
        share = jnp.exp(log_likelihood(scores) - level)
        by_log = share if weights is None else weights * share
        slopes = [
            jnp.where(is_own | (score <= -offset), 0.0, -by_log)
            for is_own, score in zip(own, scores, strict=True)
        ]
        return _Node(share, slopes)

    return level, at


_AT_NODES = {"normalized": _normalized, "hinge": _hinge}


def _with_slopes(
    functions: jax.Array, log_scale: jax.Array, nodes: jax.Array, problem: Problem
) -> _Slopes:
    """``log E L(y | f + sigma e)`` of each row with its derivatives, in one loop over the nodes.

    All of it runs class by class along the rows: nothing of size n J is kept.
    """
    dtype = functions.dtype
    to_classes = jnp.asarray(class_map(problem.coupling, problem.n_classes), dtype)  # (k, c)
    heights = jnp.unstack(to_classes.T @ functions)
    own = [problem.labels == j for j in range(problem.n_classes)]
    scale = jnp.exp(log_scale)
    weights = problem.row_weights
    weights = None if weights is None else weights.astype(dtype)
    noises = nodes.astype(dtype) @ to_classes  # (J, c)
    level, at_noise = _AT_NODES[problem.likelihood](heights, own, weights, scale, noises)

    def add(carry, node):
        total, slopes, by_scale = carry
        here = at_noise([scale * e for e in node])
        slopes = [slope + more for slope, more in zip(slopes, here.slopes, strict=True)]
        for more, e in zip(here.slopes, node, strict=True):
            by_scale = by_scale + more * e
        return (total + here.share, slopes, by_scale), None

    zero = jnp.zeros_like(level)
    (total, slopes, by_scale), _ = jax.lax.scan(
        add, (zero, [zero] * problem.n_classes, zero), noises
    )
    total = jnp.maximum(total, jnp.finfo(dtype).tiny)  # of a weight far above one
    value = level + (jnp.log(total) - math.log(len(nodes)))
    return _Slopes(value, to_classes @ (jnp.stack(slopes) / total), scale * by_scale / total)


class _Sums(NamedTuple):
    """Log likelihood of rows, a scalar, and its derivatives, in JAX's default type.

    By weights times ``sqrt(lambda)``, shape (k, r); by the intercept, shape (k,); by
    (log sigma, log d), shape (2,).
    """

    value: jax.Array
    weights: jax.Array
    intercept: jax.Array
    logs: jax.Array


def _sums_of(
    weights: jax.Array,
    intercept: jax.Array,
    logs: jax.Array,
    nodes: jax.Array,
    problem: Problem,
) -> _Sums:
    """Sum over all rows of a problem."""
    wide = jnp.result_type(float)
    basis = problem.factor.basis
    functions = weights @ basis.T + intercept[:, None]
    slopes = _with_slopes(functions, log_scales(logs, problem), nodes, problem)
    left = _share_left(logs, problem)
    by_logs = jnp.stack([slopes.log_scale * (1 - left), -0.5 * slopes.log_scale * left])
    return _Sums(
        jnp.sum(slopes.value, dtype=wide),
        (slopes.functions @ basis).astype(wide),
        jnp.sum(slopes.functions, axis=1, dtype=wide),
        jnp.sum(by_logs, axis=1, dtype=wide),
    )


def _by_pieces(function: Callable[[Problem], _Sums], problem: Problem) -> _Sums:
    """Sum over :data:`ROWS` rows at a time."""
    count = min(ROWS, problem.n_rows)
    whole, rest = divmod(problem.n_rows, count)
    rows = _Rows.of(problem)

    def some(start: jax.typing.ArrayLike, size: int) -> _Sums:
        def cut(leaf):
            return jax.lax.dynamic_slice_in_dim(leaf, start, size)

        return function(jax.tree.map(cut, rows).put_in(problem))

    shapes = jax.eval_shape(lambda: some(0, count))
    total = jax.tree.map(lambda like: jnp.zeros(like.shape, like.dtype), shapes)
    total = jax.lax.fori_loop(
        0, whole, lambda i, total: jax.tree.map(jnp.add, total, some(i * count, count)), total
    )
    if rest:
        total = jax.tree.map(jnp.add, total, some(whole * count, rest))
    return total


class _Rows(NamedTuple):
    """What a problem has of each row."""

    basis: Any
    labels: jax.Array
    row_weights: jax.Array | None
    remainder: jax.Array | None

    @classmethod
    def of(cls, problem: Problem) -> _Rows:
        """Take the rows out of a problem."""
        basis = problem.factor.basis
        return cls(basis, problem.labels, problem.row_weights, problem.remainder)

    def put_in(self, problem: Problem) -> Problem:
        """Give a problem these rows."""
        return replace(
            problem,
            factor=problem.factor._replace(basis=self.basis),
            labels=self.labels,
            row_weights=self.row_weights,
            remainder=self.remainder,
        )


@jax.custom_vjp
def log_marginal_likelihood(
    x: jax.Array,
    logs: jax.Array,
    intercept_scale: jax.typing.ArrayLike,
    nodes: jax.Array,
    problem: Problem,
) -> jax.Array:
    """``sum_i log p(y_i | f_i, s_i)``, the noise integrated out: a scalar, in JAX's default type.

    One pass over the basis, some rows at a time, makes the value and its gradient: the products in
    the type of the basis, the sums in JAX's default type.

    Parameters
    ----------
    x
        Weights of each column and, last, its intercept over ``intercept_scale``: (k, r + 1).
    logs
        (log sigma, log d), shape (2,).
    intercept_scale
        A scalar.
    nodes
        Points of the noise, shape (J, k).
    problem
        The prepared data.
    """
    return _forward(x, logs, intercept_scale, nodes, problem)[0]


def _forward(x, logs, intercept_scale, nodes, problem):
    basis, roots = problem.factor.basis, jnp.sqrt(problem.factor.eigenvalues)
    weights = (x[:, :-1] * roots).astype(basis.dtype)
    intercept = (intercept_scale * x[:, -1]).astype(basis.dtype)
    sums = _by_pieces(lambda rows: _sums_of(weights, intercept, logs, nodes, rows), problem)
    by_x = jnp.append(sums.weights * roots, intercept_scale * sums.intercept[:, None], axis=1)
    return sums.value, (by_x.astype(x.dtype), sums.logs.astype(logs.dtype))


def _backward(slopes, cotangent):
    return *(cotangent * slope for slope in slopes), None, None, None


log_marginal_likelihood.defvjp(_forward, _backward)


def functions_of(
    x: jax.Array, problem: Problem, intercept_scale: jax.typing.ArrayLike
) -> jax.Array:
    """Column functions ``1 b' + Phi v`` at the rows, shape (k, n), in the type of the basis."""
    basis, eigenvalues = problem.factor
    weights = (x[:, :-1] * jnp.sqrt(eigenvalues)).astype(basis.dtype)
    intercept = (intercept_scale * x[:, -1:]).astype(basis.dtype)
    return weights @ basis.T + intercept


def log_scales(logs: jax.Array, problem: Problem) -> jax.Array:
    """Log of the scale of each row's noise at (log sigma, log d), shape (n,), basis' type.

    What a basis of low rank leaves of the functions, of variance ``sigma2/tau`` times the row's
    remainder, is each row's own, and so is part of its noise.
    """
    dtype = problem.factor.basis.dtype
    if problem.remainder is None:
        return jnp.full(problem.n_rows, logs[0].astype(dtype))
    return logs[0].astype(dtype) + 0.5 * jnp.log1p(_left(logs, problem))


def _left(logs: jax.Array, problem: Problem) -> jax.Array:
    """Variance of what the basis leaves of each row over sigma2, shape (n,), basis' type."""
    dtype = problem.factor.basis.dtype
    if problem.remainder is None:
        return jnp.zeros((), dtype)
    return jnp.exp(-logs[1] - 2 * logs[0]).astype(dtype) * problem.remainder.astype(dtype)


def _share_left(logs: jax.Array, problem: Problem) -> jax.Array:
    """Part of each row's noise that the basis leaves: minus twice the slope by log d of its log."""
    left = _left(logs, problem)
    return left / (1 + left)


def logs_of(noise_variance: jax.Array, precision: jax.Array) -> jax.Array:
    """Return (log sigma, log d) of sigma2 and tau, shape (2,)."""
    log_scale = 0.5 * jnp.log(noise_variance)
    return jnp.stack([log_scale, jnp.log(precision) - 2 * log_scale])


def variances_of(logs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return sigma2 and tau of (log sigma, log d)."""
    return jnp.exp(2 * logs[0]), jnp.exp(logs[1] + 2 * logs[0])


def log_prior(
    x: jax.Array, logs: jax.Array, problem: Problem, intercept_scale: jax.Array
) -> jax.Array:
    """Log prior density of x and (log sigma, log d), up to a constant: eqs. (15)-(17)."""
    noise_variance, precision = variances_of(logs)
    ratio = jnp.exp(logs[1])
    k, size = x.shape[0], x[:, :-1].size
    intercept = intercept_scale * x[:, -1]
    eta = problem.hyper.intercept_precision
    return (
        0.5 * (size * logs[1] - ratio * jnp.sum(x[:, :-1] ** 2))
        - k * logs[0]
        - 0.5 * eta / noise_variance * jnp.sum(intercept**2)
        + log_noise_prior(noise_variance, problem)
        + log_precision_prior(precision, problem)
        + 2 * logs[0]  # d sigma2
        + logs[1]
        + 2 * logs[0]  # d tau
    )


def log_posterior(
    x: jax.Array,
    logs: jax.Array,
    intercept_scale: jax.Array,
    nodes: jax.Array,
    problem: Problem,
) -> jax.Array:
    """Log posterior density of x (k, r + 1) and (log sigma, log d), up to a constant."""
    likelihood = log_marginal_likelihood(x, logs, intercept_scale, nodes, problem)
    return likelihood + log_prior(x, logs, problem, intercept_scale)


def fisher_information(
    functions: jax.Array, logs: jax.Array, nodes: jax.Array, problem: Problem
) -> jax.Array:
    """Return what labels would tell of the column functions of their rows, shape (k, k, n).

    ``sum_y p(y) g_y g_y'`` with g_y the slope of ``log p(y | f)`` at (log sigma, log d).
    """
    log_scale = log_scales(logs, problem)
    plain = replace(problem, row_weights=None)
    labels = [jnp.full_like(problem.labels, label) for label in range(problem.n_classes)]
    each = [
        _with_slopes(functions, log_scale, nodes, replace(plain, labels=same)) for same in labels
    ]
    chances = jax.nn.softmax(jnp.stack([one.value for one in each]), axis=0)  # of the hinge too
    information: Any = sum(
        chance * one.functions[:, None] * one.functions[None]
        for chance, one in zip(chances, each, strict=True)
    )
    if problem.row_weights is None:
        return information
    return information * problem.row_weights.astype(information.dtype)
