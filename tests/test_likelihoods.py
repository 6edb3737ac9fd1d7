"""The likelihoods against plain loops over the paper's formulas, and its binary special cases."""

import math

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from bmsvm.models.likelihoods import (
    LIKELIHOODS,
    class_probabilities,
    hinge,
    margin_offset,
    normalized,
)

N = 6
CLASSES = range(2, 8)
FEW = settings(deadline=None, max_examples=25, derandomize=True, database=None)
every_slope = pytest.mark.parametrize("name", ["hinge", "normalized"])
every_count = pytest.mark.parametrize("n_classes", CLASSES)
COMPILED = {name: jax.jit(function) for name, function in LIKELIHOODS.items()}


def score_matrices(n_classes: int) -> st.SearchStrategy[np.ndarray]:
    """Scores whose rows sum to zero, small, large and at the kink."""
    entries = st.floats(-50, 50) | st.sampled_from([0.0, -1.0 / (n_classes - 1), 1.0])
    return arrays(float, (N, n_classes - 1), elements=entries).map(
        lambda free: np.column_stack([free, -free.sum(1)])
    )


def label_vectors(n_classes: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.int32, N, elements=st.integers(0, n_classes - 1))


@every_count
@FEW
@given(data=st.data())
def test_hinge_sums_the_excess_of_the_wrong_classes(n_classes: int, data: st.DataObject) -> None:
    scores, labels = data.draw(score_matrices(n_classes)), data.draw(label_vectors(n_classes))
    expected = np.zeros(N)
    for i in range(N):
        for j in range(n_classes):
            if j != labels[i]:
                expected[i] -= max(scores[i, j] + 1 / (n_classes - 1), 0.0)
    np.testing.assert_allclose(COMPILED["hinge"](scores, labels), expected, rtol=1e-12, atol=1e-12)


@every_count
@FEW
@given(data=st.data())
def test_normalized_is_a_softmax_of_the_excess(n_classes: int, data: st.DataObject) -> None:
    scores = data.draw(score_matrices(n_classes))
    found = np.stack(
        [COMPILED["normalized"](scores, np.full(N, j, np.int32)) for j in range(n_classes)], axis=1
    )
    np.testing.assert_allclose(np.exp(found).sum(1), 1.0, rtol=1e-12)
    for i in range(N):
        excess = [max(z + 1 / (n_classes - 1), 0.0) for z in scores[i]]
        top = max(excess)
        log_total = top + math.log(sum(math.exp(e - top) for e in excess))
        np.testing.assert_allclose(found[i], np.array(excess) - log_total, rtol=1e-12, atol=1e-12)


@every_count
@FEW
@given(data=st.data())
def test_the_two_agree_on_the_odds_of_the_classes(n_classes: int, data: st.DataObject) -> None:
    # Eq. (21) is eq. (6) normalised over the labels.
    scores = data.draw(score_matrices(n_classes))
    both = {
        name: np.stack(
            [function(scores, np.full(N, j, np.int32)) for j in range(n_classes)], axis=1
        )
        for name, function in COMPILED.items()
    }
    gap = both["hinge"] - both["normalized"]
    np.testing.assert_allclose(gap, gap[:, :1] * np.ones(n_classes), rtol=1e-12, atol=1e-10)


@FEW
@given(f=st.floats(-30, 30), sign=st.sampled_from([1, -1]))
def test_two_classes_are_the_binary_machines_of_section_6(f: float, sign: int) -> None:
    # Class 0 is y = +1 and class 1 is y = -1; f is the score of class 0.
    scores = np.tile([f, -f], (N, 1))
    labels = np.full(N, 0 if sign == 1 else 1, np.int32)
    found = COMPILED["hinge"](scores, labels)
    np.testing.assert_allclose(found, -max(1 - sign * f, 0.0), rtol=1e-12, atol=1e-12)
    margin = 2 * sign * f if abs(f) <= 1 else sign * (f + math.copysign(1, f))
    expected = -np.logaddexp(0.0, -margin)
    found = COMPILED["normalized"](scores, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-14)


@every_count
def test_a_perfect_row_costs_nothing_under_the_hinge(n_classes: int) -> None:
    offset = margin_offset(n_classes)
    assert offset == 1 / (n_classes - 1)
    labels = jnp.arange(n_classes)
    scores = jnp.where(jnp.eye(n_classes) > 0, 1.0, -offset)
    np.testing.assert_allclose(hinge(scores, labels), 0.0, atol=1e-15)
    expected = 1 + offset - np.log(np.exp(1 + offset) + n_classes - 1)
    np.testing.assert_allclose(normalized(scores, labels), expected, rtol=1e-14)


@every_slope
@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3, 1e8])
def test_gradients_are_finite_even_at_the_kink(name: str, n_classes: int, size: float) -> None:
    offset = 1 / (n_classes - 1)
    rng = np.random.default_rng(0)
    scores = size * rng.normal(size=(N, n_classes))
    scores[0] = -offset
    labels = np.arange(N) % n_classes
    value, gradient = jax.value_and_grad(lambda z: LIKELIHOODS[name](z, labels).sum())(scores)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    assert np.abs(gradient).max() <= 1


@every_slope
@FEW
@given(data=st.data())
def test_gradients_are_slopes_away_from_the_kink(name: str, data: st.DataObject) -> None:
    scores, labels = data.draw(score_matrices(4)), data.draw(label_vectors(4))
    step = 1e-5
    scores = np.where(np.abs(scores + 1 / 3) < 10 * step, scores + 0.01, scores)
    gradient = GRADIENTS[name](scores, labels)
    direction = np.random.default_rng(1).choice([-1.0, 1.0], scores.shape)
    ahead = COMPILED[name](scores + step * direction, labels).sum()
    behind = COMPILED[name](scores - step * direction, labels).sum()
    slope = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * direction), slope, atol=1e-6)


GRADIENTS = {
    name: jax.jit(jax.grad(lambda z, labels, f=function: f(z, labels).sum()))
    for name, function in LIKELIHOODS.items()
}


@every_slope
@FEW
@given(data=st.data(), width=st.sampled_from([0.01, 0.3]))
def test_smoothing_stays_within_a_quarter_of_its_width(
    name: str, data: st.DataObject, width: float
) -> None:
    # The parabola is at most width/4 above the rectifier, at the kink, and each class adds one.
    scores, labels = data.draw(score_matrices(4)), data.draw(label_vectors(4))
    gap = COMPILED[name](scores, labels, width) - COMPILED[name](scores, labels)
    assert np.abs(gap).max() <= 3 * width / 4 + 1e-9


@FEW
@given(data=st.data())
def test_class_probabilities_are_the_likelihoods_of_the_labels(data: st.DataObject) -> None:
    scores = data.draw(score_matrices(4)) + 1e-3 * np.arange(4)  # no ties
    labels = np.arange(4, dtype=np.int32)
    each = [np.exp(COMPILED["normalized"](scores, np.full(N, label, np.int32))) for label in labels]
    found = class_probabilities(jnp.asarray(scores), "normalized")
    np.testing.assert_allclose(found, np.stack(each, axis=1), atol=1e-12)
