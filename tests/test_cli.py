"""Command line: what the commands do."""

import csv
import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import QUICK, fails, run, write_data, write_new
from pages import Page
from small_models import NEW, fit

import bmsvm
from bmsvm.report.evaluation import evaluate
from bmsvm.summary import summarise_model

TRUTH = np.array(["blue", "green", "red", "red", "blue"])


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.csv")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bmsvm"
    bmsvm.save(fit(), path)
    return path


@pytest.fixture
def new(tmp_path):
    return write_new(tmp_path / "new.csv")


def test_fit_is_what_the_classifier_does(capsys, data, tmp_path):
    target = tmp_path / "model.bmsvm"
    code, out, err = run(
        capsys, "fit", data, "--target", "colour", "--drop", "id", "-o", target, *QUICK
    )
    assert (code, out) == (0, "")
    warning, saved = err.splitlines()  # no progress bar, since this is no terminal
    assert warning.startswith("bmsvm: warning: ")  # twenty draws
    assert "--draws" in warning
    assert str(target) in saved
    loaded = bmsvm.load(target)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), fit().predict_proba(NEW))
    assert loaded.feature_names_in_.tolist() == ["width", "height"]


@pytest.mark.parametrize(("how", "given"), [("standard", "standard"), ("none", None)])
def test_fit_takes_a_scaling(how, given, capsys, data, tmp_path):
    target = tmp_path / "model.bmsvm"
    arguments = ["--target", "colour", "--drop", "id", "-o", target, *QUICK, "-q"]
    assert run(capsys, "fit", data, *arguments, "--standardize", how)[0] == 0
    expected = fit(standardize=given).predict_proba(NEW)
    np.testing.assert_array_equal(bmsvm.load(target).predict_proba(NEW), expected)


def test_fit_keeps_its_chains_and_takes_a_rank(capsys, data, tmp_path):
    pytest.importorskip("zarr")
    target, store = tmp_path / "model.bmsvm", tmp_path / "chains"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, *QUICK, "-q"]
    arguments += ["--approximation", "nystrom", "--rank", "5", "--checkpoint", store]
    assert run(capsys, *arguments)[0] == 0
    first = bmsvm.load(target)
    assert (store / "chains.npz").exists()
    assert first.posterior_.problem.factor.basis.shape[1] == 5
    assert run(capsys, *arguments)[0] == 0  # all is there already
    np.testing.assert_array_equal(bmsvm.load(target).predict_proba(NEW), first.predict_proba(NEW))


def test_predict_writes_labels_probabilities_and_doubt(capsys, model, new, tmp_path):
    code, out, _ = run(capsys, "predict", model, new)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = bmsvm.load(model).predict_uncertainty(NEW)
    assert list(rows[0]) == [
        "label",
        "probability_blue",
        "probability_green",
        "probability_red",
        "epistemic",
    ]
    assert [row["label"] for row in rows] == bmsvm.load(model).predict(NEW).tolist()
    chances = np.array([[float(x) for x in list(row.values())[1:4]] for row in rows])
    np.testing.assert_array_equal(chances, expected.probabilities)
    np.testing.assert_array_equal([float(row["epistemic"]) for row in rows], expected.epistemic)

    code, nothing, _ = run(capsys, "predict", model, new, "-o", tmp_path / "predictions.csv")
    assert (code, nothing) == (0, "")
    assert (tmp_path / "predictions.csv").read_text() == out


def test_another_process_predicts_the_same(capsys, model, new):
    """In single precision there, unlike here: the model brings its own."""
    _, expected, _ = run(capsys, "predict", model, new)
    command = [sys.executable, "-m", "bmsvm.cli", "predict", str(model), str(new)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    here, there = (
        np.array([list(row.values())[1:] for row in csv.DictReader(io.StringIO(text))], float)
        for text in (expected, done.stdout)
    )
    np.testing.assert_allclose(here, there, rtol=1e-6)


def test_summary_describes_the_model(capsys, model):
    code, out, err = run(capsys, "summary", model)
    assert (code, err) == (0, "")
    summary = summarise_model(bmsvm.load(model))
    for name, value in summary.facts.items():
        assert f"{name}:" in out
        assert value in out
    assert summary.verdict in out
    for name, count in summary.classes:
        assert f"{count}  {name}" in out


def test_the_demo_runs(monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr("bmsvm.cli.run_demo", lambda output: ran.append(output))
    assert run(capsys, "demo", "--output", tmp_path)[0] == 0
    assert ran == [tmp_path]


def test_the_script_is_declared():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["bmsvm"] == "bmsvm.cli:main"


def test_the_report_of_held_out_rows(capsys, model, tmp_path):
    page, held_out = tmp_path / "report.html", tmp_path / "new.csv"
    NEW.assign(colour=TRUTH).iloc[:, ::-1].to_csv(held_out, index=False)
    arguments = ["report", model, "--held-out", held_out, "--target", "colour", "-o", page]
    assert run(capsys, *arguments) == (0, "", "")
    said = Page(page.read_text(encoding="utf-8")).text
    expected = evaluate(bmsvm.load(model), NEW, TRUTH).scores()[1]
    assert f"{expected.value:.3f}" in said
    assert "line 6" in said  # the last row of the file
    assert run(capsys, "report", model, "-o", page, "--title", "Trees") == (0, "", "")
    said = Page(page.read_text(encoding="utf-8")).text
    assert "Trees" in said
    assert "line 6" not in said
    assert "--held-out and --target" in fails(capsys, *arguments[:4], "-o", page)
    NEW.assign(colour="pink").to_csv(held_out, index=False)
    line = fails(capsys, *arguments)
    assert "line 2, column 'colour': 'pink'" in line


def test_the_report_reads_labels_as_the_model_has_them(capsys, model, tmp_path):
    numbered = bmsvm.load(model)
    numbered.classes_ = np.array([1, 2, 3])
    del numbered.feature_names_in_  # features are then taken in order
    saved, held_out, page = (tmp_path / name for name in ("m.bmsvm", "new.csv", "report.html"))
    bmsvm.save(numbered, saved)
    y = np.array([1, 2, 3, 3, 1])
    pd.DataFrame({"a": NEW.iloc[:, 0], "y": y, "b": NEW.iloc[:, 1]}).to_csv(held_out, index=False)
    command = ["report", saved, "--held-out", held_out, "--target", "y", "-o", page]
    assert run(capsys, *command)[0] == 0
    expected = evaluate(numbered, NEW.to_numpy(), y).scores()[1]
    assert f"{expected.value:.3f}" in page.read_text(encoding="utf-8")
