"""Command line: errors are one line that names the option, or the file, line and column."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import QUICK, fails, run, write_data, write_new
from small_models import NEW, X, Y, fit

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
        ("a,b\n1,2\n", "--target: {path} has no column 'y'; it has 'a', 'b'"),
        ("a,Y\n1,2\n", "it has 'a', 'Y'. Did you mean 'Y'?"),
        ("a,a,y\n1,2,x\n", "different names"),
        (",a,y\n1,2,x\n", "column 1 has none"),
        ("a,b,y\n1,2,x\n\n1,x\n", "line 4: 2 cells"),
        ("a,b,y\n1,2,x\n1,2,z,3\n", "line 3: 4 cells"),
        (
            "a,b,y\n1,2,x\n1,many,z\n",
            "'many' is not a finite number; remove a unit, write categories as columns of 0 and 1",
        ),
        ("a,b,y\n1,2,x\n1,1_0,z\n", "line 3, column 'b': '1_0' is not a finite number"),
        ("a,b,y\n1,2,x\n1,inf,z\n", "line 3, column 'b': 'inf' is not a finite number"),
        ("a,b,y\n1,2,x\n,1,z\n", "line 3, column 'a': the cell is empty, one of 1 in this column"),
        ("a,b,y\nNA,2,x\n,1,z\n", "line 2, column 'a': 'NA' is a missing value, one of 2 in this"),
        ("a,b,y\n1,2,x\n1,1,\n", "line 3, column 'y': the cell is empty"),
        ('a,b,y\n1,2,x\n1,"1,z\n', "line 3: "),
        ("y\nx\nz\n", "no features"),
        ("a;y\n1;x\n2;z\n", "must have commas between its columns, and points in its numbers"),
        ("a;y\n1,5;x\n2,5;z\n", "it has ';' between its columns"),
        (
            "a,y\n1,0.5\n2,1.5\n3,2.5\n4,3.5\n",
            "--target must be a column of classes; 'y' has 4 different values in 4 rows",
        ),
        ("a,y\n1,x\n2,x\n", "--target must be a column of at least 2 classes; 'y' has one, 'x'"),
        (b"a,y\n1,\xff\n", "must be text in UTF-8"),
    ],
)
def test_a_bad_table_is_one_line(capsys, tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    line = fails(capsys, "fit", path, "--target", "y", "-o", tmp_path / "model.bmsvm", "-q")
    assert message.format(path=path) in line
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
        (["summary", "data.csv"], "MODEL must be a file that bmsvm fit has written; 'data.csv'"),
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
            [*FIT, "--kernel=linear", "--lengthscale=squares-cv"],
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
    (tmp_path / "new.csv").write_text("depth\n2\n")
    line = fails(capsys, "predict", model, tmp_path / "new.csv")
    assert "no columns for 2 of the 2 features of the model: 'width', 'height'" in line


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
    assert "--output must be in a directory that exists" in line


def test_an_output_is_refused_before_any_work(capsys, monkeypatch, data, model, new, tmp_path):
    def work(*_, **__):
        raise AssertionError("fitted first")

    monkeypatch.setattr("bmsvm.commands.fit.BMSVMClassifier", work)
    fitting = ["fit", data, "--target", "colour", "--drop", "id", "-o"]
    assert "is a directory" in fails(capsys, *fitting, tmp_path)
    assert "must not be the file that is read" in fails(capsys, *fitting, data)
    assert "must not be the file that is read" in fails(capsys, "predict", model, new, "-o", model)
    refused = OSError(30, "Read-only file system")
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda **_: (_ for _ in ()).throw(refused))
    assert "(Read-only file system)" in fails(capsys, *fitting, tmp_path / "m.bmsvm")


def test_swapped_files_are_noticed(capsys, model, new, tmp_path):
    line = fails(capsys, "predict", new, model)
    assert f"MODEL and DATA are swapped: {str(model)!r} is the model file" in line
    assert f"Try: bmsvm predict {model} {new}" in line
    page = tmp_path / "report.html"
    line = fails(capsys, "report", new, "--held-out", model, "--target", "y", "-o", page)
    assert f"Try: bmsvm report {model} --held-out {new} --target COLUMN -o FILE" in line
    line = fails(capsys, "fit", model, "--target", "y", "-o", tmp_path / "m.bmsvm")
    assert f"DATA must be a CSV file; {str(model)!r} is a model file" in line


def test_a_model_of_another_kind_is_named(capsys, tmp_path):
    machine = bmsvm.LeastSquaresSVM(lengthscale=1.0, gamma=0.1).fit(X.to_numpy(), Y)
    bmsvm.save(machine, tmp_path / "machine.bmsvm")
    assert "is a LeastSquaresSVM" in fails(capsys, "summary", tmp_path / "machine.bmsvm")


def test_errors_and_warnings_speak_of_options(capsys):
    said = cli._in_options("num_samples must be at least 1. Fit again with a larger num_warmup")
    assert said == "--draws must be at least 1. Fit again with a larger --warmup"
    assert cli._in_options("kernel must be a kernel") == "--kernel must be a kernel"
    cli._show_warning("fit again with a larger num_warmup", UserWarning, "x.py", 1)
    assert capsys.readouterr().err == "bmsvm: warning: fit again with a larger --warmup\n"


def test_commands_that_cannot_be_understood(capsys):
    fit = ["fit", "x", "--target", "y", "-o", "z"]
    for arguments, named in (
        ([], "COMMAND"),
        (["fly"], "fly"),
        (["fit"], "--target"),
        ([*fit, "--draws", "a"], "--draws"),
        ([*fit, "--draws", "0"], "--draws"),
        ([*fit, "--seed", "-1"], "--seed"),
        (["predict", "m", "x", "--level", "90"], "--level"),
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
    assert "50 of 500 draws" in err.splitlines()[-1]
    assert bmsvm.load(target).run_.num_samples == 50
    assert "interrupted" in run(capsys, "summary", target)[1]


@pytest.mark.skipif(os.name != "posix", reason="pipes")
def test_a_reader_that_leaves_is_no_traceback(model, new):
    command = f'"{sys.executable}" -m bmsvm.cli predict "{model}" "{new}" | true'
    environment = {**os.environ, "PYTHONPATH": str(Path(bmsvm.__file__).parents[1])}
    done = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert done.stderr == ""
