"""Likelihoods of a label given the scores of its row: log p(y | z), one number per row.

Scores of a row sum to zero over the classes, and d = 1/(c - 1) is the margin offset: a perfect
row has 1 at its own class and -d elsewhere.

Scores are arguments of shape (n, c), but the arithmetic is on (c, n): it is faster with the long
axis last, and the compiler cancels the transposes of a caller that does the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

CODE_SPREAD = 0.5
"""Standard deviation s of scores around their code under ``squared``, in margin offsets d.

Half the margin offset is small compared with the distance between two codes. How closely functions
follow the codes then depends on sigma2, which is estimated."""


def margin_offset(n_classes: int) -> float:
    """Margin offset d = 1/(c - 1)."""
    return 1.0 / (n_classes - 1)


def rectify(x: jax.Array, smoothing: jax.Array | None = None) -> jax.Array:
    """``(x)_+``; with ``smoothing``, a parabola replaces its kink over ``|x| < smoothing``."""
    if smoothing is None:
        return jax.nn.relu(x)
    rounded = (x + smoothing) ** 2 / (4 * smoothing)
    return jnp.where(x < -smoothing, 0.0, jnp.where(x > smoothing, x, rounded))


def _excess(
    scores: jax.Array, labels: jax.Array, smoothing: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """``(z + d)_+`` for every class, shape (c, n), and for each row's own class, shape (n,)."""
    n_classes = scores.shape[-1]
    excess = rectify(scores.T + margin_offset(n_classes), smoothing)
    own = labels == jnp.arange(n_classes)[:, None]
    return excess, jnp.sum(jnp.where(own, excess, 0.0), axis=0)


def hinge(scores: jax.Array, labels: jax.Array, smoothing: jax.Array | None = None) -> jax.Array:
    """MSVM pseudo-likelihood ``-sum_{j != y} (z_j + d)_+``, eqs. (6) and (11).

    It is not normalised over the classes; section 2.2 moves the constant into the prior.

    Parameters
    ----------
    scores
        Latent scores, shape (n, c).
    labels
        Class indices, shape (n,).
    smoothing
        If given, the half-width over which the rectifier's kink is rounded off: an approximation
        whose gradient a sampler may follow, never the model.

    Returns
    -------
    jax.Array
        Log pseudo-likelihood of each row, shape (n,).
    """
    excess, own = _excess(scores, labels, smoothing)
    return own - excess.sum(0)


def normalized(
    scores: jax.Array, labels: jax.Array, smoothing: jax.Array | None = None
) -> jax.Array:
    """Normalised likelihood ``log softmax_j((z_j + d)_+)`` at the label, eq. (21).

    Shapes as in :func:`hinge`.
    """
    excess, own = _excess(scores, labels, smoothing)
    return own - jax.nn.logsumexp(excess, axis=0)


def class_codes(n_classes: int) -> np.ndarray:
    """Codes of the classes, shape (c, c): row y is 1 at y and -d elsewhere, and sums to zero."""
    return (n_classes * np.eye(n_classes) - 1) / (n_classes - 1)


def squared_scale(n_classes: int) -> float:
    """Return s, the standard deviation of scores around a code: :data:`CODE_SPREAD` times d."""
    return CODE_SPREAD * margin_offset(n_classes)


def squared(scores: jax.Array, labels: jax.Array, smoothing: jax.Array | None = None) -> jax.Array:
    """Pseudo-likelihood of the least-squares SVM, ``-|z - code_y|^2 / (2 s^2)``.

    Like the hinge it is not normalised over the classes; section 2.2 moves the constant into the
    prior. It is smooth, and ``smoothing`` does nothing. Shapes as in :func:`hinge`.
    """
    n_classes = scores.shape[-1]
    codes = jnp.asarray(class_codes(n_classes), scores.dtype)[:, labels]  # symmetric
    return -0.5 * jnp.sum((scores.T - codes) ** 2, axis=0) / squared_scale(n_classes) ** 2


def weigh(log_likelihoods: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Log likelihoods (n,) times the weights of their rows (n,); unchanged if these are None.

    A weight of 0 removes a row, even one whose log likelihood is minus infinity.
    """
    if weights is None:
        return log_likelihoods
    return jnp.where(weights > 0, weights * log_likelihoods, 0.0)


def log_mean_likelihood(
    scores: jax.Array, labels: jax.Array, likelihood: str, weights: jax.Array | None = None
) -> jax.Array:
    """Log of the mean of p(y | z) over several scores of each row, shape (n,).

    Parameters
    ----------
    scores
        Shape (n, J, c).
    labels, weights
        Class index and weight of each row, shape (n,).
    likelihood
        Name of the likelihood.
    """
    n, points, c = scores.shape
    each = LIKELIHOODS[likelihood](scores.reshape(-1, c), jnp.repeat(labels, points))
    logs = weigh(each.reshape(n, points), None if weights is None else weights[:, None])
    return jax.nn.logsumexp(logs, axis=1) - jnp.log(points)


def probabilities_by_class(scores: Sequence[jax.Array], likelihood: str) -> list[jax.Array]:
    """``p(y = j | z)`` of c arrays of scores, one a class: c arrays of the same shape.

    Eq. (21), also for the hinge, which is a pseudo-likelihood. Those of ``squared`` are the
    pseudo-likelihood normalised over the classes. Separate arrays for the classes let the
    arithmetic run along the long axes.
    """
    if likelihood == "squared":
        return _softmax(_code_logits(scores, 0.0))
    if likelihood in ("normalized", "hinge"):
        return _softmax([rectify(score + margin_offset(len(scores))) for score in scores])
    raise ValueError(
        f"likelihood must be one of {', '.join(map(repr, LIKELIHOODS))}; got {likelihood!r}"
    )


def _softmax(logits: Sequence[Any]) -> list[Any]:
    xp = np if isinstance(logits[0], np.ndarray) else jnp
    largest = functools.reduce(xp.maximum, logits)
    shares = [xp.exp(each - largest) for each in logits]
    inverse = 1.0 / functools.reduce(xp.add, shares)
    return [share * inverse for share in shares]


def _code_logits(functions: Sequence[Any], noise_variance: Any) -> list[Any]:
    """``log N(code_j; f, sigma2 + s^2)`` of c arrays of functions, up to a common term.

    ``code_j . f = kappa f_j`` with ``kappa = c/(c - 1)``, as f sums to zero.
    """
    c = len(functions)
    slope = c / (c - 1) / (noise_variance + squared_scale(c) ** 2)
    return [slope * function for function in functions]


def probabilities_given_functions(
    functions: Sequence[Any], noise: Sequence[Any], noise_variance: Any, likelihood: str
) -> list[Any]:
    """``p(y = j | f)``, with the noise of the scores integrated out: c arrays of shape (...).

    The mean of :func:`probabilities_by_class` over points of the noise. ``squared``, a
    pseudo-likelihood, is integrated first and then normalised over the classes: in closed form
    ``softmax_j(kappa f_j/(sigma2 + s^2))``, which needs no points. NumPy arrays stay in NumPy.

    Parameters
    ----------
    functions
        Class functions f, one array of shape (...) a class.
    noise
        Points of the noise of the scores, one array a class, of shape (..., J) up to leading axes.
    noise_variance
        sigma2, of shape (...) up to leading axes.
    likelihood
        Name of the likelihood.
    """
    if likelihood == "squared":
        return _softmax(_code_logits(functions, noise_variance))
    scores = [function[..., None] + e for function, e in zip(functions, noise, strict=True)]
    return [jnp.mean(p, axis=-1) for p in probabilities_by_class(scores, likelihood)]


def log_likelihood_given_functions(
    functions: jax.Array,
    noise: jax.Array,
    noise_variance: Any,
    labels: jax.Array,
    likelihood: str,
    weights: jax.Array | None = None,
) -> jax.Array:
    """``log E p(y | z)``, ``z ~ N(f, sigma2)``, of each row, shape (n,).

    By :func:`log_mean_likelihood` over points of the noise; in closed form under ``squared``:
    ``-k/2 log(1 + w sigma2/s^2) - |f - code_y|^2 / (2 (sigma2 + s^2/w))``.

    Parameters
    ----------
    functions
        Class functions f, shape (n, c).
    noise
        Points of the noise of the scores, shape (J, c).
    noise_variance
        sigma2.
    labels, weights
        Class index and weight of each row, shape (n,).
    likelihood
        Name of the likelihood.
    """
    if likelihood == "squared":
        c = functions.shape[-1]
        information = (1.0 if weights is None else weights) / squared_scale(c) ** 2
        flattened = 1 + information * noise_variance
        codes = jnp.asarray(class_codes(c), functions.dtype)[labels]
        distance = jnp.sum((functions - codes) ** 2, axis=-1)
        return -0.5 * ((c - 1) * jnp.log(flattened) + information * distance / flattened)
    return log_mean_likelihood(functions[:, None] + noise, labels, likelihood, weights)


def class_probabilities(scores: jax.Array, likelihood: str) -> jax.Array:
    """``p(y = j | z)`` of scores (..., c), the same shape; see :func:`probabilities_by_class`."""
    return jnp.stack(probabilities_by_class(jnp.unstack(scores, axis=-1), likelihood), axis=-1)


def exclusion_probabilities(functions: Any, axis: int = -1) -> Any:
    """``p(y != j | f) = exp(-(f_j + d)_+)``, eq. (20), of functions with an axis of c classes.

    NumPy arrays are worked on in NumPy, and so in float64 whatever precision JAX is set to.
    """
    xp = np if isinstance(functions, np.ndarray) else jnp
    return xp.exp(-xp.maximum(functions + margin_offset(functions.shape[axis]), 0.0))


LIKELIHOODS: dict[str, Callable[..., jax.Array]] = {
    "hinge": hinge,
    "normalized": normalized,
    "squared": squared,
}
