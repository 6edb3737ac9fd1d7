"""The command line: what it prints, and how it fails."""

import csv
import io
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from small_models import NEW, X, Y, fit

import bmsvm
from bmsvm import cli
from bmsvm.inference import run as runner

QUICK = ["--likelihood", "hinge", "--preset", "gibbs", "--lengthscale", "1.5", "--seed", "0"]
QUICK += ["--chains", "2", "--warmup", "20", "--draws", "20"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data.csv"
    X.assign(id=[f"n{i}" for i in range(len(X))], colour=Y).to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.bmsvm"
    bmsvm.save(fit(), path)
    return path


@pytest.fixture
def new(tmp_path):
    path = tmp_path / "new.csv"
    NEW.assign(note="not, a number").iloc[:, ::-1].to_csv(path, index=False)
    return path


def run(capsys, *arguments):
    """Return the exit code, stdout and stderr of a command."""
    code = cli.main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def fails(capsys, *arguments, code=1):
    """Return the one line that a command fails with."""
    found, out, err = run(capsys, *arguments)
    assert found == code
    assert not out
    *warned, line = err.splitlines()
    assert all(each.startswith("bmsvm: warning: ") for each in warned)
    assert line.startswith("bmsvm: error: ")
    return line


def test_fit_is_what_the_classifier_does(capsys, data, tmp_path):
    target = tmp_path / "model.bmsvm"
    code, out, err = run(
        capsys, "fit", data, "--target", "colour", "--drop", "id", "-o", target, *QUICK
    )
    assert (code, out) == (0, "")
    assert "warm-up" in err  # the progress bar
    assert "bmsvm: warning: " in err  # twenty draws
    assert f"saved {target}" in err
    loaded = bmsvm.load(target)
    np.testing.assert_array_equal(loaded.predict_proba(NEW), fit().predict_proba(NEW))
    assert loaded.feature_names_in_.tolist() == ["width", "height"]


def test_fit_keeps_its_chains_and_takes_a_rank(capsys, data, tmp_path):
    pytest.importorskip("zarr")
    target, store = tmp_path / "model.bmsvm", tmp_path / "chains"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, *QUICK, "-q"]
    arguments += ["--features", "nystrom", "--rank", "5", "--checkpoint", store]
    assert run(capsys, *arguments)[0] == 0
    first = bmsvm.load(target)
    assert (store / "chains.npz").exists()
    assert first.problem_.factor.basis.shape[1] == 5
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
    for part in ("hinge", "2 chains of 20 draws", "largest R-hat", "smallest ESS", "6  blue"):
        assert part in out


def test_the_demo_runs(monkeypatch, capsys, tmp_path):
    ran = []
    monkeypatch.setattr("bmsvm.demo.run_demo", lambda output: ran.append(output))
    assert run(capsys, "demo", "--output", tmp_path)[0] == 0
    assert ran == [tmp_path]


def test_the_script_is_declared():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"]["bmsvm"] == "bmsvm.cli:main"


# Failing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: the first line should name the columns"),
        ("\n\n", "is empty"),
        ("a,y\n", "has a header and no rows"),
        ("a,b\n1,2\n", "has no column 'y'; it has 'a', 'b'"),
        ("a,a,y\n1,2,x\n", "line 1: two columns are called 'a'"),
        ("a,,y\n1,2,x\n", "line 1: column 2 has no name"),
        ("a,b,y\n1,2,x\n\n1,x\n", "line 4: 2 cells, where the header has 3"),
        ("a,b,y\n1,2,x\n1,2,z,3\n", "line 3: 4 cells, where the header has 3"),
        ("a,b,y\n1,2,x\n1,many,z\n", "line 3, column 'b': 'many' is not a finite number"),
        ("a,b,y\n1,2,x\n1,1_0,z\n", "line 3, column 'b': '1_0' is not a finite number"),
        ("a,b,y\n1,2,x\n1,inf,z\n", "line 3, column 'b': 'inf' is not a finite number"),
        ("a,b,y\n1,2,x\n,1,z\n", "line 3, column 'a': the cell is empty"),
        ("a,b,y\n1,2,x\n1,1,\n", "line 3, column 'y': the cell is empty"),
        ('a,b,y\n1,2,x\n1,"1,z\n', "line 3: not CSV"),
        ("y\nx\nz\n", "has no columns but 'y'"),
        ("a,y\n1,x\n2,x\n", "y must have at least 2 classes"),
        (b"a,y\n1,\xff\n", "not text in UTF-8"),
    ],
)
def test_a_bad_table_is_one_line(capsys, tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    line = fails(capsys, "fit", path, "--target", "y", "-o", tmp_path / "model.bmsvm", "-q")
    assert message in line
    assert not (tmp_path / "model.bmsvm").exists()


def test_a_byte_order_mark_and_quotes_are_read(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes('\ufeff"a, b", y\r\n" 1e-3 ","two\nlines"\r\n'.encode())
    table = cli.read_table(path)
    assert table.columns == ["a, b", "y"]
    assert table.rows == [["1e-3", "two\nlines"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "none.bmsvm", "new.csv"], "none.bmsvm: No such file"),
        (["summary", "data.csv"], "cannot load 'data.csv'"),
        (["fit", "none.csv", "--target", "y", "-o", "m.bmsvm"], "none.csv: No such file"),
        (["fit", "data.csv", "--target", "colour", "-o", "m.bmsvm"], "line 2, column 'id': 'n0'"),
        (["fit", "data.csv", "--target", "colour", "--drop", "x", "-o", "m"], "no column 'x'"),
        (
            ["fit", "data.csv", "--target", "colour", "--drop", "id", "-o", "m", "--draws", "0"],
            "num_samples must be an integer of at least 1",
        ),
        (
            ["fit", "data.csv", "--target=colour", "--drop=id", "-o=m", "--lengthscale=wide"],
            "lengthscale must be",
        ),
    ],
)
def test_failures_are_one_line(capsys, monkeypatch, data, arguments, message):
    monkeypatch.chdir(data.parent)
    assert message in fails(capsys, *arguments)


def test_missing_features_are_named(capsys, model, tmp_path):
    (tmp_path / "new.csv").write_text("height,depth\n1,2\n")
    line = fails(capsys, "predict", model, tmp_path / "new.csv")
    assert "lacks 'width'; it has 'height', 'depth'" in line


def test_features_without_names_are_taken_in_order(capsys, model, new, tmp_path):
    nameless = bmsvm.load(model)
    del nameless.feature_names_in_
    bmsvm.save(nameless, tmp_path / "nameless.bmsvm")
    assert "has 3 columns" in fails(capsys, "predict", tmp_path / "nameless.bmsvm", new)
    NEW.to_csv(tmp_path / "bare.csv", index=False)
    _, expected, _ = run(capsys, "predict", model, new)
    assert run(capsys, "predict", tmp_path / "nameless.bmsvm", tmp_path / "bare.csv")[1] == expected


def test_a_model_that_cannot_be_written_says_so(capsys, data, tmp_path):
    target = tmp_path / "none" / "model.bmsvm"
    line = fails(
        capsys, "fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK
    )
    assert "No such file or directory; nothing was saved, there is no file" in line


def test_commands_that_cannot_be_understood(capsys):
    for arguments in (
        [],
        ["fly"],
        ["fit"],
        ["fit", "x", "--target", "y", "-o", "z", "--draws", "a"],
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "error: " in line


def test_an_interruption_before_the_first_draw(capsys, monkeypatch, data, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "_advance", interrupted)
    target = tmp_path / "model.bmsvm"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK]
    assert "interrupted" in fails(capsys, *arguments, code=130)
    assert not target.exists()


def test_an_interruption_keeps_the_draws_that_were_made(capsys, monkeypatch, data, tmp_path):
    original, calls = runner._advance, []

    def interrupted(*arguments, **settings):
        calls.append(1)
        if len(calls) == 4:  # after warm-up and two pieces
            raise KeyboardInterrupt
        return original(*arguments, **settings)

    monkeypatch.setattr(runner, "_advance", interrupted)
    target = tmp_path / "model.bmsvm"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK]
    code, _, err = run(capsys, *arguments, "--draws", "500")
    assert code == 130
    assert "interrupted: 100 of 500 draws were made" in err
    assert bmsvm.load(target).run_.num_samples == 100
    assert "interrupted" in run(capsys, "summary", target)[1]


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_leaves_is_no_traceback(model, new):
    command = f'"{sys.executable}" -m bmsvm.cli predict "{model}" "{new}" | true'
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
