"""kernel="auto": Gaussian or Laplacian, by how least squares predict rows left out."""

import numpy as np
import pytest
import scipy.special
from scipy.spatial.distance import cdist, pdist

from bmsvm import BMSVMClassifier, ModeCV, load, save
from bmsvm.kernels import Gaussian, Laplacian, median_distance
from bmsvm.prediction.calibration import best_power
from bmsvm.prediction.squares import exact_roots, judge, least_squares
from bmsvm.selection import SquaresCV

RNG = np.random.default_rng(0)
X = RNG.normal(size=(160, 4))
BOXES = (X[:, 0] > 0.3).astype(int) + (X[:, 1] > -0.2)
"""Classes whose borders are steps in single features, as those of a decision tree."""
BALLS = np.digitize((X**2).sum(axis=1), [2.0, 4.5])
"""Classes whose borders are smooth, and aligned with no feature."""
CASES = {"boxes": (BOXES, Laplacian()), "balls": (BALLS, Gaussian())}


def refitted(gram, labels, tau):
    """Functions at each row by ridge regression of the codes on all others, with an intercept."""
    c = labels.max() + 1
    codes = (c * np.eye(c)[labels] - 1) / (c - 1)
    covariance = gram / tau + 1 / 0.01
    found = np.empty_like(codes)
    for i in range(len(labels)):
        rest = np.arange(len(labels)) != i
        solved = np.linalg.solve(
            covariance[np.ix_(rest, rest)] + np.eye(len(rest) - 1), codes[rest]
        )
        found[i] = covariance[i, rest] @ solved
    return found


@pytest.mark.parametrize("kernel", [Gaussian(), Laplacian()], ids=str)
def test_the_score_of_a_kernel_is_that_of_refitting(kernel):
    """Grids of theta and tau, each fit made again without each row, scored and averaged."""
    rows, labels = X[:30], BOXES[:30]
    city = isinstance(kernel, Laplacian)
    distances = cdist(rows, rows, "cityblock" if city else "euclidean")
    thetas = np.median(distances[np.triu_indices(30, 1)]) * 2.0 ** (np.arange(-4, 5) / 2)
    scores, functions = [], []
    for theta in thetas:
        gram = np.exp(-distances / theta) if city else np.exp(-0.5 * (distances / theta) ** 2)
        for tau in 10.0 ** (np.arange(-7, 3) / 2):
            f = refitted(gram, labels, tau)
            power, score = best_power(f, labels)
            scores.append(score)
            functions.append(power * f)
    found = judge(rows, kernel, labels, 3, np.ones(30))
    assert found.score == pytest.approx(scipy.special.logsumexp(scores), abs=1e-3)
    shares = scipy.special.softmax(scores).reshape(9, 10).sum(axis=1)
    assert found.lengthscale == pytest.approx(np.exp(shares @ np.log(thetas)), rel=1e-4)
    counted = scipy.special.softmax(scores)
    counted[counted < 1e-3 * counted.max()] = 0.0  # pairs of so little weight are left out
    average = np.tensordot(counted / counted.sum(), functions, 1)
    expected = scipy.special.log_softmax(average, axis=1)
    _, logs = least_squares(exact_roots(rows, kernel), labels, 3, np.ones(30))
    np.testing.assert_allclose(logs, expected, atol=1e-3)


def test_the_median_distance_is_that_of_the_kernel():
    assert median_distance(X, Laplacian()) == pytest.approx(np.median(pdist(X, "cityblock")))
    assert median_distance(X, Gaussian()) == median_distance(X) == np.median(pdist(X))


@pytest.mark.parametrize("method", [SquaresCV(), ModeCV()], ids=["squares", "modes"])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_that_suits_is_chosen(method, case):
    labels, expected = CASES[case]
    found = method.select(X, labels)
    assert found.kernel == expected
    assert method.select(X, labels, kernel="gaussian").kernel == Gaussian()
    # At its own lengthscale: a choice of the other's would be off by the ratio of the distances.
    given = method.select(X, labels, kernel=expected)
    assert given.lengthscale == found.lengthscale


@pytest.mark.parametrize("labels", [BOXES, BALLS], ids=["boxes", "balls"])
def test_pairs_that_count_predict_as_the_whole_grid(labels):
    every = [root for each in (Gaussian(), Laplacian()) for root in exact_roots(X, each)]
    pairs = ModeCV().select(X, labels).pairs
    assert 1 < len(pairs) < len(every)
    some = [root for kernel, theta in pairs for root in exact_roots(X, kernel, theta)]
    for one, other in zip(*(predicted(roots, labels) for roots in (some, every)), strict=True):
        np.testing.assert_allclose(one, other, atol=0.01)


def predicted(roots, labels):
    """Probabilities of the rows, each without its label, and of others."""
    fit, logs = least_squares(roots, labels, 3, np.ones(len(X)))
    return np.exp(logs), np.exp(fit.log_probabilities(X[:20] + 0.3))


def test_the_classifier_keeps_the_kernel_that_it_chose(tmp_path):
    model = BMSVMClassifier(likelihood="squared", num_samples=25, random_state=0).fit(X, BOXES)
    assert model.kernel == "auto"
    assert model.kernel_ == model.posterior_.kernel == Laplacian()
    save(model, tmp_path / "model.bmsvm")
    loaded = load(tmp_path / "model.bmsvm")
    assert loaded.kernel_ == Laplacian()
    np.testing.assert_array_equal(loaded.predict_proba(X[:9]), model.predict_proba(X[:9]))


def test_least_squares_averaged_over_both_kernels_predict_with_each():
    """The fit at the rows, with labels, is the sum of what each kernel's terms give there."""
    weights = np.ones(60)
    roots = [
        root
        for kernel in (Gaussian(), Laplacian())
        for root in exact_roots(X[:60], kernel, median_distance(X[:60], kernel))
    ]
    fit, _ = least_squares(roots, BALLS[:60], 3, weights)
    assert fit.kernels == (Gaussian(), Laplacian())
    gaussian, laplacian = fit.coefficients
    distances = {name: cdist(X[60:], X[:60], name) for name in ("euclidean", "cityblock")}
    theta, width = fit.lengthscales
    functions = fit.intercept + np.exp(-0.5 * (distances["euclidean"] / theta) ** 2) @ gaussian
    functions += np.exp(-distances["cityblock"] / width) @ laplacian
    expected = scipy.special.log_softmax(functions, axis=1)
    np.testing.assert_allclose(fit.log_probabilities(X[60:]), expected, atol=1e-9)


@pytest.mark.parametrize("given", [{"lengthscale": 1.5}, {"lengthscale": [1.0, 2.0, 1.0, 2.0]}])
def test_a_lengthscale_that_is_given_is_that_of_a_gaussian_kernel(given):
    model = BMSVMClassifier(likelihood="squared", num_samples=25, random_state=0, **given)
    assert model.fit(X, BOXES).kernel_ == Gaussian()
