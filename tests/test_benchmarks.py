"""The benchmark of probabilities: its splits, its rivals and its table."""

import json

import data
import numpy as np
import pytest
import quality
import rivals
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

SIZES = {
    "segment": (2310, 18, 7),
    "optdigits": (5620, 62, 10),
    "yeast": (1479, 8, 9),
    "ecoli": (327, 7, 5),
    "page_blocks": (5472, 10, 5),
}


@pytest.fixture(scope="module")
def three_classes():
    """60 rows around three centres, 20 new ones, their classes."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 3
    X = rng.normal(size=(80, 2)) + 1.5 * np.array([[0, 0], [1, 2], [2, 0]])[y]
    return X[:60], y[:60], X[60:], y[60:]


@pytest.mark.parametrize("name", SIZES)
def test_files_are_what_their_description_says(name):
    X, y = data.load(name, split=0)
    assert (*X.shape, y.max() + 1) == SIZES[name]
    assert np.isfinite(X).all()


@pytest.mark.parametrize("name", data.TRAINING_ROWS)
def test_splits_are_paired_and_have_every_class(name):
    for split in range(10):
        first, again = (data.stratified_split(name, split) for _ in range(2))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert len(first.train) == data.TRAINING_ROWS[name]
        assert len(first.test) <= data.TEST_ROWS
        classes = first.train_labels.max() + 1
        assert np.bincount(first.train_labels).min() >= 2
        assert np.bincount(first.test_labels, minlength=classes).min() >= 1


@pytest.mark.parametrize("kind", [kind for kind in rivals.BUILDERS if kind != "GP classifier"])
@pytest.mark.parametrize("classes", [2, 3])
def test_rivals_predict(kind, classes, three_classes):
    if kind == "CatBoost":
        pytest.importorskip("catboost")
    X, y, new, truth = three_classes
    y, truth = np.minimum(y, classes - 1), np.minimum(truth, classes - 1)
    p = rivals.rival(kind, seed=0).fit(X, y).predict_proba(new)
    assert p.shape == (20, classes)
    np.testing.assert_allclose(p.sum(1), 1)
    assert np.mean(p.argmax(1) == truth) > 0.6


def test_rivals_accept_a_class_of_two_rows(three_classes):
    X, y, new, _ = three_classes
    kept = (y < 2) | (np.cumsum(y == 2) <= 2)
    for kind in ("SVC ovo Platt", "SVC ovr temperature", "kernel logistic mode", "logistic"):
        p = rivals.rival(kind, seed=0).fit(X[kept], y[kept]).predict_proba(new)
        assert p.shape == (20, 3)


def test_coupling_recovers_probabilities_of_consistent_pairs():
    p = np.random.default_rng(1).dirichlet(np.ones(5), size=7)
    r = p[:, :, None] / (p[:, :, None] + p[:, None, :])
    r[:, np.arange(5), np.arange(5)] = 0
    np.testing.assert_allclose(rivals.coupled(r), p, atol=1e-7)


def test_sigmoid_is_that_of_scikit_learn(three_classes):
    """One versus rest, with the sigmoids that CalibratedClassifierCV fits to the same values."""
    X, y, new, _ = three_classes
    y = (y == 1).astype(int)
    model = CalibratedClassifierCV(SVC(gamma=0.5), cv=rivals.folds(y), ensemble=False).fit(X, y)
    gram = rbf_kernel(X, gamma=0.5)
    held_out = np.empty(len(y))
    for a, b in rivals.folds(y):
        held_out[b] = SVC(gamma=0.5).fit(X[a], y[a]).decision_function(X[b])
    slope, offset = rivals.sigmoid(held_out, y == 1)
    d = -rivals.ovo_decisions(1.0, gram, y, rbf_kernel(new, X, gamma=0.5))[:, 0]
    expected = model.predict_proba(new)[:, 1]
    np.testing.assert_allclose(1 / (1 + np.exp(-slope * d - offset)), expected, atol=1e-4)


def test_power_is_that_of_the_scores():
    """Labels drawn from softmax(3 f): within 4.5 standard errors (false alarm 1e-5)."""
    rng = np.random.default_rng(2)
    f = rng.normal(size=(4000, 4))
    p = softmax(3 * f, 1)
    y = (rng.random((4000, 1)) > p.cumsum(1)).sum(1)
    information = ((p * f**2).sum(1) - (p * f).sum(1) ** 2).sum()
    assert abs(rivals.Power(f, y).power - 3) < 4.5 / np.sqrt(information)


def test_power_is_finite_where_all_rows_are_right():
    y = np.arange(30) % 3
    p = rivals.Power(np.eye(3)[y], y)(np.eye(3))
    assert 0.9 < p[0, 0] < 0.999


def test_least_squares_leaves_one_out_in_closed_form(three_classes):
    X, y, _, _ = three_classes
    codes = np.eye(3)[y] - 1 / 3
    gamma, ridge, left_out = next(iter(rivals.left_out_scores(X, codes)))
    gram = rivals.gram_matrix(X, X, gamma)
    rest = np.arange(1, len(y))
    dual = np.linalg.solve(gram[np.ix_(rest, rest)] + ridge * np.eye(len(rest)), codes[rest])
    np.testing.assert_allclose(left_out[0], gram[0, rest] @ dual, rtol=1e-4)


def test_kernel_logistic_regression_is_at_its_mode(three_classes):
    """The gradient in the scores is zero: e_y - softmax(f) = alpha / v, f = K alpha."""
    X, y, _, _ = three_classes
    gram = rivals.gram_matrix(X, X, 0.3)
    basis, dual = rivals.spectral_basis(gram)
    w = rivals.softmax_mode(basis, y, 5.0, np.zeros((basis.shape[1], 3)), tol=1e-12)
    f = basis @ w
    np.testing.assert_allclose(gram @ (dual @ w), f, atol=1e-4)
    np.testing.assert_allclose(5 * basis.T @ (np.eye(3)[y] - softmax(f, 1)), w, atol=1e-2)


def record(name: str, split: int, kind: str, loss: float) -> dict:
    return {"data": name, "split": split, "kind": kind, "fit_seconds": 1.0, "log_loss": loss}


def test_table_counts_sets_ranks_and_gaps():
    losses = {"a": {"wine": (1, 2), "glass": (3, 3)}, "b": {"wine": (2, 3), "glass": (1, 2)}}
    records = [
        record(name, split, kind, loss)
        for kind, sets in losses.items()
        for name, values in sets.items()
        for split, loss in enumerate(values)
    ]
    text = quality.table(records, ["a", "b"])
    assert "| wine | 2 | 1.5000 | 2.5000 | best (-1.0000 ± 0.0000), b |" in text
    assert "| glass | 2 | 3.0000 | 1.5000 | behind (+1.5000 ± 0.5000), b |" in text
    assert "| average rank | | 1.50 | 1.50 | |" in text
    assert "a is best on 1 of 2 data sets" in text
    assert "a gap of +0.00" in text
    assert "brier" not in text


def test_table_pairs_classifiers_with_fewer_splits():
    records = [record("wine", split, "a", loss) for split, loss in enumerate((1, 9))]
    text = quality.table([*records, record("wine", 0, "b", 2)], ["a", "b"])
    assert "| wine | 2 | 5.0000 | 2.0000 (1) | best (-1.0000 ± nan), b |" in text


def test_finished_cells_are_kept(tmp_path):
    output, asked = tmp_path / "cells.jsonl", []

    def measured(name, split, kind):
        asked.append((name, split, kind))
        return record(name, split, kind, 0.5)

    quality.run(["wine"], 1, ["a"], output, measured)
    quality.run(["wine", "glass"], 2, ["a"], output, measured)
    assert asked == [("wine", 0, "a"), ("glass", 0, "a"), ("wine", 1, "a"), ("glass", 1, "a")]
    assert [json.loads(line) for line in output.read_text().splitlines()] == quality.kept(output)


def test_a_cell_has_every_score():
    found = quality.measure("wine", 0, "kernel least squares")
    assert set(found) == {"data", "split", "kind", "fit_seconds", *quality.SCORES}
    assert not {"unseen", "far"} & set(quality.measure("wine", 0, "logistic", False))


def test_committed_results_are_cells_of_the_protocol():
    cells = [(r["data"], r["split"], r["kind"]) for r in quality.kept(quality.RESULTS)]
    assert cells
    assert len(cells) == len(set(cells))
    names, splits, kinds = (set(each) for each in zip(*cells, strict=True))
    assert names <= set(data.TRAINING_ROWS)
    assert splits <= set(range(10))
    assert kinds <= {*quality.KINDS, *quality.SETTINGS}


def test_solvers_of_the_msvm_find_one_optimum():
    """Within the duality gaps that the table shows beside the times."""
    solvers = pytest.importorskip("msvm_solvers", exc_type=ImportError)
    found = solvers.measure("wine", None, 3.5, 1.0, "MSVM")
    assert all(found[name][1] < 1e-5 for name in ("bmsvm", "clarabel", "piqp"))
