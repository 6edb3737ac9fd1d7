"""Install each given wheel or sdist in an empty environment, and fit a model with it.

``python tools/try_distribution.py dist/*`` runs outside the source tree, so that what is missing in
a file is missed. ``make dist`` calls it.
"""

import argparse
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

TRY = """
import sys, warnings
warnings.simplefilter("error", FutureWarning)
import bmsvm, numpy as np
from bmsvm import BMSVMClassifier, datasets
assert sys.argv[1] in bmsvm.__file__, bmsvm.__file__
X, y = datasets.load_glass(return_X_y=True)
model = BMSVMClassifier(lengthscale=2.0, sampler="paper", likelihood="hinge", num_chains=1,
                        num_warmup=5, num_samples=5, random_state=0).fit(X[::5], y[::5] > 1)
found = model.predict_proba(X[:3])
assert np.isfinite(found).all()
bmsvm.save(model, "model.bmsvm")
np.testing.assert_array_equal(bmsvm.load("model.bmsvm").predict_proba(X[:3]), found)
print("bmsvm", bmsvm.__version__, "fits, predicts, saves and loads")
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its output; if it fails, show what it said and stop."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command[:4]))} failed:\n{done.stderr}")
    return done.stdout


def try_distribution(path: Path, constraints: Path | None) -> None:
    """Install one wheel or sdist, fit a model with it, and call the command of the package."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder).resolve()
        venv.create(place / "empty", with_pip=True)
        python = place / "empty" / "bin" / "python"
        pins = [] if constraints is None else ["-c", constraints.resolve()]
        run(python, "-m", "pip", "install", "-q", *pins, path.resolve(), cwd=place)
        print(f"{path.name}: {run(python, '-I', '-c', TRY, place, cwd=place).strip()}")
        usage = run(place / "empty" / "bin" / "bmsvm", "--help", cwd=place)
        if "usage: bmsvm" not in usage:
            sys.exit(f"bmsvm --help printed:\n{usage}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="wheels or sdists")
    parser.add_argument("--constraints", type=Path, help="versions to install")
    arguments = parser.parse_args()
    for path in arguments.paths:
        try_distribution(path, arguments.constraints)


if __name__ == "__main__":
    main()
