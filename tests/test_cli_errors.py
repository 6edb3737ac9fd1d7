"""Command line: errors are one line that names the option, or the file, line and column."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import QUICK, fails, run, write_data, write_new
from small_models import NEW, fit

import bmsvm
from bmsvm import cli
from bmsvm._tables import read_table
from bmsvm.inference import run as runner

FIT = ["fit", "data.csv", "--target=colour", "--drop=id", "-o=m"]


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have a header"),
        ("\n\n", "must have a header"),
        ("a,y\n", "must have a header and rows"),
        ("a,b\n1,2\n", "has no column 'y'; it has 'a', 'b'"),
        ("a,a,y\n1,2,x\n", "different names"),
        ("a,,y\n1,2,x\n", "different names"),
        ("a,b,y\n1,2,x\n\n1,x\n", "line 4: 2 cells"),
        ("a,b,y\n1,2,x\n1,2,z,3\n", "line 3: 4 cells"),
        ("a,b,y\n1,2,x\n1,many,z\n", "line 3, column 'b': 'many' is not a finite number"),
        ("a,b,y\n1,2,x\n1,1_0,z\n", "line 3, column 'b': '1_0' is not a finite number"),
        ("a,b,y\n1,2,x\n1,inf,z\n", "line 3, column 'b': 'inf' is not a finite number"),
        ("a,b,y\n1,2,x\n,1,z\n", "line 3, column 'a': the cell is empty"),
        ("a,b,y\n1,2,x\n1,1,\n", "line 3, column 'y': the cell is empty"),
        ('a,b,y\n1,2,x\n1,"1,z\n', "line 3: "),
        ("y\nx\nz\n", "no features"),
        ("a,y\n1,x\n2,x\n", "--target must have at least 2 classes"),
        (b"a,y\n1,\xff\n", "utf-8"),
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
    table = read_table(path)
    assert table.columns == {"a, b": ["1e-3"], "y": ["two\nlines"]}
    assert table.numbers(["a, b"]).tolist() == [[0.001]]
    assert table.lines == [3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "none.bmsvm", "new.csv"], "none.bmsvm: No such file"),
        (["summary", "data.csv"], "cannot load 'data.csv'"),
        (["fit", "none.csv", "--target", "y", "-o", "m.bmsvm"], "none.csv: No such file"),
        (["fit", "data.csv", "--target", "colour", "-o", "m.bmsvm"], "line 2, column 'id': 'n0'"),
        (["fit", "data.csv", "--target", "colour", "--drop", "x", "-o", "m"], "no column 'x'"),
        (
            [*FIT, "--rank=5"],
            "--rank needs --approximation",
        ),
        (
            [*FIT, "--checkpoint=c"],
            "--seed must be",
        ),
        (
            [*FIT, "--kernel=linear", "--lengthscale=evidence"],
            "--lengthscale",
        ),
    ],
)
def test_failures_are_one_line(capsys, monkeypatch, data, arguments, message):
    monkeypatch.chdir(data.parent)
    assert message in fails(capsys, *arguments)


def test_missing_features_are_named(capsys, model, tmp_path):
    (tmp_path / "new.csv").write_text("height,depth\n1,2\n")
    line = fails(capsys, "predict", model, tmp_path / "new.csv")
    assert "'width'; it has 'height', 'depth'" in line


def test_features_without_names_are_taken_in_order(capsys, model, new, tmp_path):
    nameless = bmsvm.load(model)
    del nameless.feature_names_in_
    bmsvm.save(nameless, tmp_path / "nameless.bmsvm")
    assert "must have 2 columns" in fails(capsys, "predict", tmp_path / "nameless.bmsvm", new)
    NEW.to_csv(tmp_path / "bare.csv", index=False)
    _, expected, _ = run(capsys, "predict", model, new)
    assert run(capsys, "predict", tmp_path / "nameless.bmsvm", tmp_path / "bare.csv")[1] == expected


def test_a_model_that_cannot_be_written_says_so(capsys, data, tmp_path):
    target = tmp_path / "none" / "model.bmsvm"
    line = fails(
        capsys, "fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK
    )
    assert "No such file or directory" in line


def test_commands_that_cannot_be_understood(capsys):
    fit = ["fit", "x", "--target", "y", "-o", "z"]
    for arguments, named in (
        ([], "command"),
        (["fly"], "fly"),
        (["fit"], "--target"),
        ([*fit, "--draws", "a"], "--draws"),
        ([*fit, "--draws", "0"], "--draws"),
        ([*fit, "--lengthscale", "wide"], "--lengthscale"),
        ([*fit, "--lengthscale", "-1"], "--lengthscale"),
        ([*fit, "--sampler", "nuts"], "--sampler"),
    ):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "error: " in line
        assert named in line


def test_an_interruption_before_the_first_draw(capsys, monkeypatch, data, tmp_path):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "advance_chains", interrupted)
    target = tmp_path / "model.bmsvm"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK]
    assert "interrupted" in fails(capsys, *arguments, code=130)
    assert not target.exists()


def test_an_interruption_keeps_the_draws_that_were_made(capsys, monkeypatch, data, tmp_path):
    original, calls = runner.advance_chains, []

    def interrupted(*arguments, **settings):
        calls.append(1)
        if len(calls) == 4:  # after warm-up and two pieces
            raise KeyboardInterrupt
        return original(*arguments, **settings)

    monkeypatch.setattr(runner, "advance_chains", interrupted)
    target = tmp_path / "model.bmsvm"
    arguments = ["fit", data, "--target", "colour", "--drop", "id", "-o", target, "-q", *QUICK]
    code, _, err = run(capsys, *arguments, "--draws", "500")
    assert code == 130
    assert "100 of 500 draws" in err.splitlines()[-1]
    assert bmsvm.load(target).run_.num_samples == 100
    assert "interrupted" in run(capsys, "summary", target)[1]


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_leaves_is_no_traceback(model, new):
    command = f'"{sys.executable}" -m bmsvm.cli predict "{model}" "{new}" | true'
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
