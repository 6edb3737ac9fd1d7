"""The benchmark of honesty: its problems, its numbers and its tables."""

import functools
from pathlib import Path
from types import SimpleNamespace

import honesty
import numpy as np
import pytest
from scipy.stats import entropy

from bmsvm.prediction.uncertainty import accept, prediction_sets


class Oracle:
    """Says p(y | x) of the new rows of a problem, with intervals of a given half width."""

    def __init__(self, problem, half_width=0.0):
        self.p, self.half_width = problem.truth, half_width

    def predict_uncertainty(self, X, level):
        p = self.p if len(X) == len(self.p) else np.full((len(X), 3), 1 / 3)
        return SimpleNamespace(
            probabilities=p,
            lower=p - self.half_width,
            upper=p + self.half_width,
            aleatoric=entropy(p, axis=1),
            epistemic=np.zeros(len(p)),
        )

    def prediction_sets(self, X, level, method, by_class=False):
        return prediction_sets(self.p, level) if method == "bayes" else np.ones(self.p.shape, bool)

    def predict_reject(self, X, error):
        return np.ma.MaskedArray(self.p.argmax(1), mask=~accept(self.p, error))


@pytest.mark.parametrize("name", honesty.SIMULATORS)
def test_problems_are_repeatable_and_have_every_class(name):
    rows = honesty.TRAINING_ROWS[name]
    first, again, other = (honesty.simulate(name, rows, replicate) for replicate in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.rows, other.rows)
    assert len(first.rows) == len(first.labels) == rows
    assert len(first.new) == len(first.truth) > 50
    np.testing.assert_allclose(first.truth.sum(1), 1)
    assert np.all(np.bincount(first.labels, minlength=first.truth.shape[1]) > 0)


def test_labels_are_drawn_by_their_probabilities():
    """Within 4.5 standard errors (false alarm 2e-5 for three classes)."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=20_000)
    labels = honesty.drawn_labels(rng, p)
    wrong = np.eye(3)[labels] - p
    assert np.all(np.abs(wrong.sum(0)) < 4.5 * np.sqrt((p * (1 - p)).sum(0)))
    assert np.all(np.abs((p * wrong).sum(0)) < 4.5 * np.sqrt((p**3 * (1 - p)).sum(0)))


def test_the_truth_scores_perfectly():
    problem = honesty.simulate("blobs", 150, 0)
    found = honesty.interval_scores(Oracle(problem), problem)
    assert found["coverage"] == 1
    assert found["width"] == found["kl"] == found["epistemic"] == 0
    assert found["truth"] == pytest.approx(found["aleatoric"]) == entropy(problem.truth.T).mean()
    away = honesty.interval_scores(Oracle(problem, half_width=-0.1), problem)
    assert away["coverage"] == 0
    sets = honesty.set_scores(Oracle(problem), problem)
    assert [each["level"] for each in sets] == 3 * list(honesty.LEVELS)
    for each in sets:
        assert each["coverage"] >= each["level"]
        assert each["coverage"] == pytest.approx(sum(each["covered"]) / 300)
    assert sets[-1]["size"] == 3
    assert sets[-1]["coverage"] == pytest.approx(1)
    rejected = honesty.rejection_scores(Oracle(problem), problem)
    assert 0 < rejected["accepted"] < 1
    assert 0.04 < rejected["error"] <= 0.05


def test_nothing_is_accepted_of_pure_noise():
    problem = honesty.simulate("noise", 150, 0)
    found = honesty.rejection_scores(Oracle(problem), problem)
    assert found == {"accepted": 0.0, "error": None}


def made_up(cell):
    """Record of a cell without a fit."""
    problem = honesty.simulate(cell.problem, 40, cell.replicate)
    model = Oracle(problem, half_width=0.05 * cell.replicate)
    record = {**cell._asdict(), "seconds": 1.0, **honesty.interval_scores(model, problem)}
    record["by_class"] = problem.truth.sum(axis=0).tolist()
    record["sets"] = honesty.set_scores(model, problem)
    record["rejection"] = honesty.rejection_scores(model, problem)
    if cell.problem == "blobs":
        record["far"] = honesty.far_scores(model)
    return record


def test_a_part_computes_the_cells_that_are_missing(tmp_path):
    output, asked = tmp_path / "cells.jsonl", []

    def measured(cell):
        asked.append(cell)
        return made_up(cell)

    wanted = functools.partial(honesty.cells, problems=["blobs", "noise"], settings=["default"])
    honesty.run(wanted(["far"], replicates=1), output, measured)
    assert asked == [("blobs", 150, 0, "default")]
    honesty.run(wanted(["intervals", "sets", "far"], replicates=2), output, measured)
    expected = [("noise", 150, 0), ("blobs", 150, 1), ("noise", 150, 1)]
    assert asked[1:] == [(*each, "default") for each in expected]
    honesty.run(wanted(["sets"], replicates=2), output, measured)
    assert len(asked) == 4


def test_theta_is_not_sampled_with_very_many_rows():
    found = set(honesty.cells(["rows"], [], 1, list(honesty.SETTINGS)))
    assert ("gp", 2200, 0, "default") in found
    assert ("gp", 600, 0, "sampled") in found
    assert ("gp", 2200, 0, "sampled") not in found


def test_tables_have_means_over_replicates():
    parts, problems, settings = list(honesty.PARTS), ["blobs", "noise"], ["default", "squared"]
    records = [made_up(cell) for cell in honesty.cells(parts, problems, 2, ["default"])]
    found = honesty.tables(records, parts, problems, settings)
    lines = {name: table.splitlines() for name, table in found.items()}
    assert lines["intervals"][2].startswith("| blobs | default | 2 | 1.000 ± 0.000 | 0.050 | 0.000")
    assert len(lines["intervals"]) == 2 + 2
    assert len(lines["rows"]) == 2 + len(honesty.MORE_ROWS)
    assert "| noise | default | conformal | 1.000 ± 0.000, 3.00 |" in found["sets"]
    assert lines["sets"][-1].endswith("| 1.000 |")
    assert lines["rejection"][-1] == "| noise | default | 0.000 | none accepted |"
    assert lines["far"][3].split(" | ")[1:3] == ["largest probability", "0.333"]


def test_the_documentation_has_a_place_for_each_table():
    text = (Path(__file__).parents[1] / "docs" / "trust.md").read_text(encoding="utf-8")
    for name, table in honesty.tables([], list(honesty.PARTS), [], []).items():
        header = table.splitlines()[0]
        assert text.count(f"{honesty.marker(name)}\n{header}\n") == 1


def test_tables_go_below_their_comments():
    text = f"a\n\n{honesty.marker('far')}\n| old |\n|---|\n\nb\n{honesty.marker('rows')}\nc\n"
    once = honesty.with_tables(text, {"far": "| new |\n", "rows": "| 1 |\n", "sets": "| 2 |\n"})
    assert once == text.replace("| old |\n|---|\n", "| new |\n").replace("\nc", "\n| 1 |\nc")
