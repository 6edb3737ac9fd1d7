"""One predictive distribution: every number that a fitted model reports comes from its draws."""

import copy
import functools
import pickle
from dataclasses import replace

import numpy as np
import oracle
import pandas as pd
import pytest
from few_draws import few_draws
from scipy import stats
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV

from bmsvm import BMSVMClassifier, ModeCV, Nystrom, Paper, Sampled, load, save
from bmsvm.arviz import to_arviz
from bmsvm.plots.confusion import confusion_draws

WORDS = np.array(["blue", "green", "red"])
RNG = np.random.default_rng(0)
CODES = np.arange(32) % 3
X = RNG.normal(size=(32, 2)) + 2 * np.eye(3)[CODES][:, :2]
NEW = np.concatenate([2 * RNG.normal(size=(139, 2)), [[30.0, -30.0]]])
SHORT = {"num_chains": 2, "num_warmup": 40, "num_samples": 40, "random_state": 0}

SETTINGS = {
    "default": {},
    "chosen": {"lengthscale": ModeCV(grid=[0.8, 1.6], precisions=[0.1], repeats=1)},
    "calibrated": {"predictive": "calibrated"},
    "posterior": {"predictive": "posterior"},
    "hinge": {"likelihood": "hinge"},
    "independent": {"coupling": "independent", "sampler": Paper(thinning=1)},
    "two classes": {},
    "low rank": {"approximation": Nystrom(rank=8)},
    "low rank on a grid": {
        "approximation": Nystrom(rank=8),
        "lengthscale": Sampled(grid=[0.8, 1.2, 1.8]),
    },
}
CALIBRATED = {"default", "chosen", "calibrated", "hinge", "two classes"}
CALIBRATED |= {"low rank", "low rank on a grid"}
POOLED = CALIBRATED - {"calibrated", "hinge"}


NAMES = [
    *(name for name in SETTINGS if name != "low rank on a grid"),
    pytest.param("low rank on a grid", marks=pytest.mark.long),
]


@functools.cache
def fitted(name):
    labels = WORDS[CODES % 2 if name == "two classes" else CODES]
    with few_draws():
        return BMSVMClassifier(**{"lengthscale": 1.2, **SHORT, **SETTINGS[name]}).fit(X, labels)


@pytest.fixture(params=NAMES)
def model(request):
    return fitted(request.param)


def draws_of(model, rows):
    """Class probabilities of all draws at rows, shape (s, m, c)."""
    p = model.posterior_predictive(rows)["p"].values
    return p.reshape(-1, *p.shape[2:])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_calibrated_and_pooled(name):
    predictive = fitted(name).predictive_
    assert (predictive.calibration is not None) == (name in CALIBRATED)
    assert (predictive.squares is not None) == (name in POOLED)
    if name in CALIBRATED:
        assert (predictive.calibration.share > 0) == (name in POOLED)


def test_every_number_is_one_of_the_draws(model):
    """Mean, intervals and entropies, computed here from the draws of posterior_predictive."""
    draws, p = draws_of(model, NEW), model.predict_proba(NEW)
    found = model.predict_uncertainty(NEW, level=0.8)
    np.testing.assert_allclose(p, draws.mean(0), rtol=1e-10)
    np.testing.assert_array_equal(found.probabilities, p)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(NEW)), p)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.all(p > 0)
    lower, upper = np.quantile(draws, [0.1, 0.9], axis=0)
    np.testing.assert_allclose(found.lower, np.minimum(lower, p), rtol=1e-8)
    np.testing.assert_allclose(found.upper, np.maximum(upper, p), rtol=1e-8)
    np.testing.assert_allclose(found.entropy, stats.entropy(p, axis=1), atol=1e-6)
    aleatoric = stats.entropy(draws, axis=2).mean(0)
    np.testing.assert_allclose(found.aleatoric, aleatoric, atol=1e-6)


def test_intervals_and_entropies_are_in_order(model):
    found = model.predict_uncertainty(NEW)
    assert np.all(found.lower <= found.upper)
    assert np.all((found.lower >= 0) & (found.upper <= 1))
    assert np.all(found.aleatoric >= 0)
    assert np.all((found.epistemic >= 0) & (found.epistemic <= found.entropy))
    np.testing.assert_allclose(found.aleatoric + found.epistemic, found.entropy, atol=1e-9)
    wider = model.predict_uncertainty(NEW, level=0.99)
    assert np.all((wider.lower <= found.lower) & (wider.upper >= found.upper))


def test_a_row_does_not_depend_on_others(model):
    p, found = model.predict_proba(NEW), model.predict_uncertainty(NEW)
    for chosen in (np.array([139]), np.arange(1, 140), np.arange(140)[::-7]):
        np.testing.assert_array_equal(model.predict_proba(NEW[chosen]), p[chosen])
        for one, other in zip(model.predict_uncertainty(NEW[chosen]), found, strict=True):
            np.testing.assert_array_equal(one, other[chosen])


def test_labels_are_drawn_by_the_probabilities(model):
    """Counts of each class, and how they go with the probabilities. False alarm: 1e-4 each."""
    drawn = model.posterior_predictive(NEW)
    p = drawn["p"].values
    wrong = (drawn["y"].values[..., None] == model.classes_) - p
    z = [
        np.sum(by * wrong, axis=(0, 1, 2)) / np.sqrt(np.sum(by**2 * p * (1 - p), axis=(0, 1, 2)))
        for by in (np.ones_like(p), p)
    ]
    assert oracle.largest(np.array(z)) < oracle.threshold(1e-4, np.size(z))
    # Labels of two rows are independent given the draw: the same one has labels of its own.
    twice = model.posterior_predictive(NEW[[0, 0]])["y"].values
    assert np.mean(twice[..., 0] == twice[..., 1]) < 1


def test_arviz_has_the_same_numbers(model):
    data = to_arviz(model, new_rows=NEW[:9], log_likelihood=False)
    drawn = model.posterior_predictive(NEW[:9])
    np.testing.assert_array_equal(data["predictions"]["p"], drawn["p"])
    np.testing.assert_array_equal(model.classes_[data["predictions"]["y"].values], drawn["y"])
    replicated = model.classes_[data["posterior_predictive"]["y"].values]
    np.testing.assert_array_equal(replicated, model.posterior_predictive(X)["y"])


def test_the_confusion_matrix_is_of_the_same_draws(model):
    labels = model.classes_[model.posterior_.problem.labels[:32]]
    counts = confusion_draws(model, X, labels)
    for s, chosen in enumerate(draws_of(model, X).argmax(-1)):
        expected = np.zeros(counts.shape[1:], int)
        np.add.at(expected, (np.searchsorted(model.classes_, labels), chosen), 1)
        np.testing.assert_array_equal(counts[s], expected)


def test_files_and_pickles_have_the_same_numbers(model, tmp_path):
    save(model, tmp_path / "model.bmsvm")
    for again in (load(tmp_path / "model.bmsvm"), pickle.loads(pickle.dumps(model))):
        found = zip(again.predict_uncertainty(NEW), model.predict_uncertainty(NEW), strict=True)
        for one, other in found:
            np.testing.assert_array_equal(one, other)
        one, other = (each.posterior_predictive(NEW[:9]) for each in (again, model))
        for name in "fpy":
            np.testing.assert_array_equal(one[name], other[name])


# Decisions -------------------------------------------------------------------------------------


def test_predict_has_the_smallest_expected_loss():
    model = fitted("default")
    p, rng = model.predict_proba(NEW), np.random.default_rng(1)
    uneven = [[0, 1, 9], [5, 0, 1], [1, 1, 0]]
    for loss in (rng.uniform(size=(3, 3)), rng.normal(size=(3, 3)), uneven):
        expected = []
        for row in p:
            risks = [sum(row[j] * loss[j][k] for j in range(3)) for k in range(3)]
            expected.append(model.classes_[risks.index(min(risks))])
        np.testing.assert_array_equal(model.predict(NEW, loss=loss), expected)


@pytest.mark.parametrize("name", ["default", "two classes"])
def test_the_loss_of_an_error_is_predict_and_dear_errors_are_avoided(name):
    model = fitted(name)
    c, plain = len(model.classes_), model.predict(NEW)
    np.testing.assert_array_equal(model.predict(NEW, loss=1 - np.eye(c)), plain)
    dear = 1 - np.eye(c)
    dear[0] *= 20  # to miss the first class
    careful = model.predict(NEW, loss=dear)
    first = model.classes_[0]
    assert np.all(careful[plain == first] == first)
    assert np.sum(careful == first) > np.sum(plain == first)
    if c == 2:  # a threshold of the probability: 20 p > 1 - p
        np.testing.assert_array_equal(careful == first, model.predict_proba(NEW)[:, 0] > 1 / 21)


def test_a_loss_that_is_a_frame_is_read_by_its_labels():
    model, rng = fitted("default"), np.random.default_rng(2)
    ordered = pd.DataFrame(rng.uniform(size=(3, 3)), index=model.classes_, columns=model.classes_)
    expected = model.predict(NEW, loss=ordered.to_numpy())
    turned = ordered.loc[model.classes_[::-1], model.classes_[[1, 2, 0]]]
    for frame in (ordered, turned, pd.DataFrame(ordered.to_numpy())):
        np.testing.assert_array_equal(model.predict(NEW, loss=frame), expected)
    with pytest.raises(ValueError, match=r"^loss must have the classes .* as labels"):
        model.predict(NEW, loss=ordered.rename(columns={model.classes_[0]: "another"}))


@pytest.mark.parametrize(
    "loss",
    [
        *(np.eye(2), np.zeros((3, 4)), [1, 2, 3], np.full((3, 3), np.nan), "zero-one", {}, 1.0),
        *([[0, 1, np.inf], [1, 0, 1], [1, 1, 0]], [[0, 1], [1, 0, 1], [1, 1, 0]]),
    ],
)
def test_losses_that_are_none_are_named(loss):
    with pytest.raises(ValueError, match=r"^loss must be a matrix .* shape \(3, 3\)"):
        fitted("default").predict(NEW, loss=loss)


def test_thresholds_of_scikit_learn_work():
    model, labels = fitted("two classes"), WORDS[CODES % 2]
    second = model.predict_proba(NEW)[:, 1]
    settings = {"response_method": "predict_proba"}
    fixed = FixedThresholdClassifier(
        FrozenEstimator(model), threshold=0.2, pos_label=WORDS[1], **settings
    ).fit(X, labels)
    np.testing.assert_array_equal(fixed.predict(NEW), WORDS[(second >= 0.2).astype(int)])
    tuned = TunedThresholdClassifierCV(
        FrozenEstimator(model), cv="prefit", refit=False, **settings
    ).fit(X, labels)
    chosen = WORDS[(second >= tuned.best_threshold_).astype(int)]
    np.testing.assert_array_equal(tuned.predict(NEW), chosen)


# Conformal sets --------------------------------------------------------------------------------


def by_hand(model, predictive):
    """Held-out probabilities (n, c) and weights (n, s), without least squares; (n,) labels."""
    found, which = model.posterior_.held_out_draws()
    p, weights = found.probabilities[:32], found.weights[:32]
    assert np.all(which[:32] == np.arange(32))
    if predictive.calibration is None:
        return np.einsum("ncs,ns->nc", p, weights), weights
    a, _, g, _, eps, pi, counts = predictive.calibration
    mean, of_logs = (np.einsum("ncs,ns->nc", each, weights)[..., None] for each in (p, np.log(p)))
    q = np.exp(a * (np.log(mean) + g * (np.log(p) - of_logs)))
    q = (1 - eps) * q / q.sum(1, keepdims=True) + eps / p.shape[1]
    numbers = model.posterior_.loo_draws
    frequencies = np.random.default_rng(0).dirichlet(counts, numbers.max() + 1)[numbers].T
    q = (1 - pi) * q + pi * frequencies
    return np.einsum("ncs,ns->nc", q, weights), weights


@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("name", ["calibrated", "posterior", "hinge"])
def test_conformal_sets_compare_left_out_rows(name, by_class, monkeypatch):
    """Jackknife+ in its definition, from draws of new rows and weights of left-out rows.

    Held-out rows have some of the draws only, which are those that predict the new rows.
    """
    monkeypatch.setattr("bmsvm.prediction.training_rows.LOO_DRAWS", 20)
    model = copy.copy(fitted(name))
    model.predictive_ = predictive = replace(model.predictive_)  # without what it has cached
    own, weights = by_hand(model, predictive)
    draws = draws_of(model, NEW)[model.posterior_.loo_draws]
    assert weights.shape == (32, 20)
    for level in (0.5, 0.8):
        expected = np.empty((len(NEW), 3), bool)
        for y in range(3):
            rows = np.flatnonzero(y == CODES) if by_class else np.arange(32)
            at_new = weights[rows] @ draws[:, :, y]  # (rows, m)
            smaller = 1 - own[rows, CODES[rows]][:, None] < 1 - at_new
            expected[:, y] = smaller.sum(0) < level * (len(rows) + 1)
        found = model.prediction_sets(NEW, level, method="conformal", by_class=by_class)
        np.testing.assert_array_equal(found, expected)
        assert 0 < expected.mean() < 1


def test_conformal_sets_of_unrelated_labels_compare_frequencies():
    """A row with the same class as the candidate ties: it does not have the smaller score.

    Under ``squared`` all draws have equal weights, so that every row predicts by one average.
    """
    settings = {**SHORT, "lengthscale": 1.2, "likelihood": "squared"}
    model = BMSVMClassifier(**settings).fit(X, WORDS[CODES])
    predictive = model.predictive_
    counts = np.array([3.5, 20.5, 8.5])
    certain = predictive.calibration._replace(unrelated=1.0, counts=counts)
    predictive = replace(predictive, calibration=certain)
    rows = predictive.held_out_rows
    for level in (0.3, 0.6, 0.9):
        smaller = np.sum(counts[rows.labels][:, None] > counts, axis=0)  # of rows, for each class
        expected = np.tile(smaller < level * (len(rows.labels) + 1), (len(NEW), 1))
        found = predictive.conformal_sets(model.standardized_rows(NEW), level)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "independent"])
def test_conformal_sets_grow_with_the_level_and_survive_pickling(name):
    model = fitted(name)
    again = pickle.loads(pickle.dumps(model))
    for by_class in (False, True):
        sets = [
            model.prediction_sets(NEW, level, method="conformal", by_class=by_class)
            for level in (0.5, 0.75)
        ]
        assert sets[0].shape == (len(NEW), len(model.classes_))
        assert sets[0].dtype == bool
        assert np.all(sets[0] <= sets[1])
        assert sets[0].sum() < sets[1].sum()
        found = again.prediction_sets(NEW, 0.5, method="conformal", by_class=by_class)
        np.testing.assert_array_equal(found, sets[0])
    part = model.prediction_sets(NEW[5:9], 0.75, method="conformal", by_class=True)
    np.testing.assert_array_equal(part, sets[1][5:9])


def test_pickles_leave_cached_rows_out():
    predictive = fitted("default").predictive_
    assert len(predictive.held_out_rows.labels) == 32  # without the spare rows
    assert "held_out_rows" not in pickle.loads(pickle.dumps(predictive)).__dict__


def test_conformal_sets_of_independent_columns_are_refused():
    with pytest.raises(ValueError, match=r"leave-one-out .*'independent'"):
        fitted("independent").prediction_sets(NEW, method="conformal")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"level": 1.5}, "^level must be"),
        ({"level": "high"}, "^level must be"),
        ({"method": "jackknife"}, r"^method must be one of 'bayes', 'conformal'; got 'jackknife'"),
        ({"by_class": "red"}, "^by_class must be"),
        ({"method": "bayes", "by_class": True}, '^by_class=True needs method="conformal"'),
    ],
)
def test_arguments_of_sets_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        fitted("default").prediction_sets(NEW, **{"method": "conformal", **arguments})


# Weights of classes ----------------------------------------------------------------------------

CENTRES = np.array([[0.0, 0.0], [1.8, 0.0]])
FREQUENT = 0.85


def imbalanced(rng, n):
    """Rows of two Gaussians, of which the first is frequent, and their labels."""
    labels = (rng.uniform(size=n) > FREQUENT).astype(int)
    return rng.normal(size=(n, 2)) + CENTRES[labels], labels


@functools.cache
def imbalanced_fit(class_weight):
    rows, labels = imbalanced(np.random.default_rng(1), 300)
    settings = {**SHORT, "num_warmup": 60, "num_samples": 60, "lengthscale": 2.0}
    with few_draws():
        return BMSVMClassifier(class_weight=class_weight, **settings).fit(rows, labels), labels


def test_balanced_probabilities_are_of_a_population_of_equal_classes():
    """``p_w(y | x)`` is proportional to ``w_y p(y | x)``, and scores better under the weights."""
    (plain, labels), (balanced, _) = imbalanced_fit(None), imbalanced_fit("balanced")
    weights = 300 / (2 * np.bincount(labels))
    rows, truth = imbalanced(np.random.default_rng(2), 2000)
    p, q = plain.predict_proba(rows), balanced.predict_proba(rows)
    moved = p * weights / np.sum(p * weights, axis=1, keepdims=True)
    assert np.mean(np.abs(q - moved)) < 0.07
    assert np.mean(np.abs(q - p)) > 0.15
    # The truth, by Bayes' rule with equal classes.
    density = np.exp(-0.5 * ((rows[:, None] - CENTRES) ** 2).sum(-1))
    exact = density / density.sum(1, keepdims=True)
    assert np.mean(np.abs(q - exact)) < 0.08
    each = weights[truth]
    losses = [-np.average(np.log(r[np.arange(2000), truth]), weights=each) for r in (q, p)]
    assert losses[0] < losses[1]
    unweighted = [-np.mean(np.log(r[np.arange(2000), truth])) for r in (q, p)]
    assert unweighted[1] < unweighted[0]


def test_a_loss_moves_the_decisions_of_plain_probabilities():
    """Errors weighted as the classes are decide as the balanced fit does, nearly everywhere."""
    (plain, labels), (balanced, _) = imbalanced_fit(None), imbalanced_fit("balanced")
    weights = 300 / (2 * np.bincount(labels))
    rows, _ = imbalanced(np.random.default_rng(2), 2000)
    loss = weights[:, None] * (1 - np.eye(2))
    same = plain.predict(rows, loss=loss) == balanced.predict(rows)
    assert same.mean() > 0.9
    assert same.mean() > np.mean(plain.predict(rows) == balanced.predict(rows)) + 0.1
