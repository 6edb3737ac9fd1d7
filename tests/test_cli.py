"""Command line: what the commands do."""

import csv
import io
import os
import re
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
from bmsvm import cli
from bmsvm._settings import check_settings
from bmsvm.commands import fit as fit_command
from bmsvm.inference.samplers import NAMED as SAMPLERS
from bmsvm.kernels.functions import NAMED as KERNELS
from bmsvm.models.couplings import COUPLINGS
from bmsvm.models.likelihoods import LIKELIHOODS
from bmsvm.report.evaluation import evaluate
from bmsvm.selection import NAMED as METHODS
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
    read, fitting, warning, saved = err.splitlines()  # no progress bar: this is no terminal
    assert "18 rows, 2 features, 3 classes in 'colour'" in read
    assert "2 chains of at most 20 draws" in fitting
    assert warning.startswith("bmsvm: warning: ")  # twenty draws
    assert "--draws" in warning
    assert re.match(rf"bmsvm: saved {re.escape(str(target))} after [\d.]+ s; chains: 2 ", saved)
    loaded = bmsvm.load(target)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), fit().predict_proba(NEW))
    assert loaded.feature_names_in_.tolist() == ["width", "height"]


def test_fit_calls_independent_draws_so(capsys, data, tmp_path):
    target = tmp_path / "model.bmsvm"
    arguments = ["--target", "colour", "--drop", "id", "-o", target, "--likelihood", "squared"]
    code, _, err = run(capsys, "fit", data, *arguments, "--lengthscale", "1.5", "--seed", "0")
    assert code == 0
    _, fitting, verdict, saved = err.splitlines()
    assert fitting == "bmsvm: fitting at most 4 × 200 independent draws ..."
    assert verdict == "bmsvm: the draws are independent"
    assert re.search(r"; draws: 4 × \d+ independent draws, ", saved)
    _, out, _ = run(capsys, "summary", target)
    for text in (err, out):
        assert not re.search("chain|warm|R-hat|converged", text)


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
    colours = ("blue", "green", "red")
    intervals = [f"{part}_{name}" for part in ("lower", "upper") for name in colours]
    probabilities = [f"probability_{name}" for name in colours]
    assert list(rows[0]) == ["row", "label", *probabilities, *intervals, "epistemic"]
    assert [row["row"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert [row["label"] for row in rows] == bmsvm.load(model).predict(NEW).tolist()
    written = np.array([list(row.values())[2:] for row in rows])
    assert {len(number.split(".")[1]) for number in written.ravel()} == {6}
    numbers = np.hstack([*expected[:3], expected.epistemic[:, None]])
    np.testing.assert_allclose(written.astype(float), numbers, rtol=0, atol=5.01e-7)

    target = tmp_path / "predictions.csv"
    told = f"bmsvm: wrote {target}: 5 rows\n"
    assert run(capsys, "predict", model, new, "-o", target) == (0, "", told)
    assert target.read_text() == out


def test_another_process_predicts_the_same(capsys, model, new):
    """In single precision there, unlike here: the model brings its own."""
    _, expected, _ = run(capsys, "predict", model, new)
    command = [sys.executable, "-m", "bmsvm.cli", "predict", str(model), str(new)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    here, there = (
        np.array([list(row.values())[2:] for row in csv.DictReader(io.StringIO(text))], float)
        for text in (expected, done.stdout)
    )
    np.testing.assert_allclose(here, there, rtol=0, atol=1.01e-6)  # the last digit that is written


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
    monkeypatch.setattr("bmsvm.commands.demo.run_demo", lambda output: ran.append(output))
    assert run(capsys, "demo", "--output", tmp_path)[0] == 0
    assert ran == [tmp_path]


def test_the_options_are_those_of_the_package():
    """They are written out in bmsvm.cli, which imports nothing, so that help is quick."""
    known = {
        "likelihood": {"auto", *LIKELIHOODS},
        "coupling": COUPLINGS,
        "kernel": {"auto", *KERNELS} - {"precomputed"},
        "sampler": {"auto", *SAMPLERS},
    }
    for name, values in known.items():
        assert set(cli.CHOICES[name]) == set(values)
    assert set(cli.METHODS) == {"auto", "sample", *METHODS}
    options = cli._parser().parse_args(["fit", "x.csv", "--target=y", "-o=m"])
    model = fit_command._classifier(options)
    assert model.get_params() == bmsvm.BMSVMClassifier().get_params()
    for name in ("approximation", "standardize"):
        for value in cli.CHOICES[name]:
            options = cli._parser().parse_args(
                ["fit", "x.csv", "--target=y", "-o=m", f"--{name}={value}"]
            )
            check_settings(fit_command._classifier(options))


@pytest.mark.parametrize("command", ["fit", "predict", "summary", "report", "demo"])
def test_help_has_examples_that_are_understood(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    examples = [line for line in said.splitlines() if line.startswith(f"  bmsvm {command}")]
    assert len(examples) >= 2
    for line in examples:
        arguments = line.partition(">")[0].split()[1:]  # the rest is the shell's
        assert cli._parser().parse_args(arguments).command == command
    if command == "fit":
        for choices in cli.CHOICES.values():
            assert f"{{{','.join(choices)}}}" in said


def test_rows_are_named_by_a_column_and_the_level_is_taken(capsys, model, tmp_path):
    NEW.assign(name=["a", "b", "c", "d", "e"]).to_csv(tmp_path / "new.csv", index=False)
    arguments = ["predict", model, tmp_path / "new.csv", "--id", "name", "--level", "0.5"]
    rows = list(csv.DictReader(io.StringIO(run(capsys, *arguments)[1])))
    assert [row["name"] for row in rows] == ["a", "b", "c", "d", "e"]
    found = bmsvm.load(model).predict_uncertainty(NEW, level=0.5)
    written = [float(row["upper_red"]) for row in rows]
    np.testing.assert_allclose(written, found.upper[:, 2], rtol=0, atol=5.01e-7)
    held_out, page = tmp_path / "new.csv", tmp_path / "report.html"
    NEW.assign(name=["a", "b", "row c", "d", "e"], colour=TRUTH).to_csv(held_out, index=False)
    arguments = ["report", model, "--held-out", held_out, "--target", "colour", "-o", page]
    assert run(capsys, *arguments, "--id", "name")[0] == 0
    assert "row c" in Page(page.read_text(encoding="utf-8")).text


def test_labels_that_are_integers_are_sorted_as_such():
    assert fit_command._labels(["10", "9", "-1"]).tolist() == [10, 9, -1]
    for cells in (["10", "09"], ["1", "a"], ["1.0", "2.0"], ["1", str(10**20)]):
        assert fit_command._labels(cells).tolist() == cells


def test_dependencies_do_not_warn_the_user(model, new):
    """FutureWarnings and DeprecationWarnings are for developers."""
    command = [sys.executable, "-W", "always", "-m", "bmsvm", "summary", str(model)]
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_script_is_declared():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["bmsvm"] == "bmsvm.cli:main"


def test_the_report_of_held_out_rows(capsys, model, tmp_path):
    page, held_out = tmp_path / "report.html", tmp_path / "new.csv"
    NEW.assign(colour=TRUTH).iloc[:, ::-1].to_csv(held_out, index=False)
    arguments = ["report", model, "--held-out", held_out, "--target", "colour", "-o", page]
    assert run(capsys, *arguments) == (0, "", f"bmsvm: wrote {page}: 5 held-out rows\n")
    said = Page(page.read_text(encoding="utf-8")).text
    expected = evaluate(bmsvm.load(model), NEW, TRUTH).scores(np.full(3, 1 / 3))[1]
    assert f"{expected.value:.3f}" in said
    assert "line 6" in said  # the last row of the file
    told = run(capsys, "report", model, "-o", page, "--title", "Trees")
    assert told == (0, "", f"bmsvm: wrote {page}\n")
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
    expected = evaluate(numbered, NEW.to_numpy(), y).scores(np.full(3, 1 / 3))[1]
    assert f"{expected.value:.3f}" in page.read_text(encoding="utf-8")
