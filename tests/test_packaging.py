"""The wheel and the source distribution stand alone, and what they need suits and is pinned."""

import itertools
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import bmsvm

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
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
    listed = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    extras = PROJECT["optional-dependencies"].values()
    for line in itertools.chain(PROJECT["dependencies"], *extras):
        name = re.match(r"[A-Za-z0-9_-]+", line).group(0).lower()
        assert name == "bmsvm" or f"| {name} |" in listed, name


def test_the_conda_recipe_needs_the_same():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    python, *others = recipe["requirements"]["run"]
    assert python == "python >=${{ python_min }}"
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert [each.replace(" ", "") for each in others] == PROJECT["dependencies"]


def test_every_file_names_the_same_version():
    """A release changes all of them; a version under development is in the package alone."""
    if "dev" in bmsvm.__version__:
        pytest.skip("a version under development")
    version = bmsvm.__version__
    assert f'version: "{version}"' in (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## \[(.+?)\]", changes, re.MULTILINE)[:2] == ["Unreleased", version]


def test_workflows_and_settings_are_yaml():
    yaml = pytest.importorskip("yaml")
    paths = [*ROOT.glob(".github/**/*.yml"), ROOT / ".readthedocs.yaml", ROOT / "CITATION.cff"]
    assert len(paths) > 5
    for path in [*paths, ROOT / ".pre-commit-config.yaml"]:
        assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict), path


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
    pins = ("--constraints", ROOT / "constraints.txt")
    said = run(sys.executable, ROOT / "tools" / "try_distribution.py", *pins, built, cwd=tmp_path)
    assert f"bmsvm {bmsvm.__version__} fits" in said
