"""Arguments and files of tests of the command line."""

from small_models import NEW, X, Y

from bmsvm import cli

QUICK = ["--likelihood", "hinge", "--sampler", "gibbs", "--lengthscale", "1.5", "--seed", "0"]
QUICK += ["--chains", "2", "--warmup", "20", "--draws", "20"]


def write_data(path):
    """Write training rows with a column of names and one of labels."""
    X.assign(id=[f"n{i}" for i in range(len(X))], colour=Y).to_csv(path, index=False)
    return path


def write_new(path):
    """Write new rows with a column that is not a number, in another order."""
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
    *before, line = err.splitlines()
    said = ("bmsvm: warning: ", "bmsvm: read ", "bmsvm: fitting ")
    assert all(each.startswith(said) for each in before)
    assert line.startswith("bmsvm: error: ")
    return line
