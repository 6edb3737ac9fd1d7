"""The wheel and the source distribution stand alone, and what they need suits and is pinned."""

import itertools
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TRY = """
import bmsvm, numpy as np
from bmsvm import BMSVMClassifier, datasets
assert {folder!r} in bmsvm.__file__, bmsvm.__file__
X, y = datasets.load_glass(return_X_y=True)
model = BMSVMClassifier(lengthscale=2.0, sampler="paper", likelihood="hinge", num_chains=1,
                        num_warmup=5, num_samples=5, random_state=0).fit(X[::5], y[::5] > 1)
assert np.isfinite(model.predict_proba(X[:3])).all()
"""

pytestmark = pytest.mark.skipif(
    not (ROOT / "constraints.txt").exists(), reason="needs the source tree"
)


def run(*command, cwd=ROOT):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode and re.search("Connection|No matching distribution|timed out", done.stderr):
        pytest.skip(f"no package index answers: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pins_are_exact_and_name_no_host():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert len(pins) > 30
    for pin in pins:
        assert re.fullmatch(r'[a-z0-9._-]+==[^ /:]+ ; python_version == "3\.\d+"', pin), pin


def test_licences_suit():
    """What is installed here has licences that the check knows."""
    pytest.importorskip("packaging")
    run(sys.executable, ROOT / "tools" / "dependencies.py", "check")


def test_what_is_listed_is_what_is_needed():
    """Every dependency of the project stands in the list of licences."""
    import tomllib

    listed = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    for line in itertools.chain(project["dependencies"], *extras):
        name = re.match(r"[A-Za-z0-9_-]+", line).group(0).lower()
        assert name == "bmsvm" or f"| {name} |" in listed, name


@pytest.mark.long
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_is_built_and_runs_in_an_empty_environment(kind, tmp_path):
    run(sys.executable, "-m", "venv", tmp_path / "build")
    python = tmp_path / "build" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "build")
    run(python, "-m", "build", "-q", f"--{kind}", "--outdir", tmp_path / "dist", ROOT)
    (built,) = (tmp_path / "dist").iterdir()
    if kind == "wheel":
        with zipfile.ZipFile(built) as archive:
            names = archive.namelist()
        assert not [name for name in names if not re.match(r"bmsvm[-/]", name)]
    else:
        with tarfile.open(built) as archive:
            names = [name.split("/", 1)[-1] for name in archive.getnames()]
        assert {"tests/oracle.py", "reproduction/table1.py", "constraints.txt"} <= set(names)
        assert "LICENSE" in names
    assert any(name.endswith("py.typed") for name in names)
    assert any(name.endswith("glass.csv") for name in names)
    run(sys.executable, "-m", "venv", tmp_path / "empty")
    python = tmp_path / "empty" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", built)
    run(python, "-I", "-c", TRY.format(folder=str(tmp_path)), cwd=tmp_path)
    assert "usage: bmsvm" in run(tmp_path / "empty" / "bin" / "bmsvm", "--help", cwd=tmp_path)
