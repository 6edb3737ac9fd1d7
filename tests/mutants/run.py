"""Put each mutant into a copy of the package and run its tests: all must fail.

``python tests/mutants/run.py`` (make mutants) prints a table; the exit code is 1 if one survives,
or if a selection of tests does not pass without its mutant.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.catalogue import MUTANTS  # noqa: E402
from mutants.mutate import module_path, mutated  # noqa: E402

COPIED = ("bmsvm", "reproduction", "tests")
IGNORED = shutil.ignore_patterns("__pycache__")


def run_tests(folder: Path, selection: str) -> tuple[int, str]:
    """Exit code of the tests of a copy, and the first that failed."""
    file, _, expression = selection.partition(" ")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [f"tests/{file}", "-k", expression]
    command += ["-m", "not long and not slow"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\S+)", done.stdout, re.MULTILINE)
    said = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, failed.group(1) if failed else said[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="mutants whose name, place or tests match this expression"
    )
    parser.add_argument("--no-baseline", action="store_true", help="run no tests unmutated")
    given = parser.parse_args()
    chosen = [
        each
        for each in MUTANTS
        if re.search(given.only, f"{each.name} {each.function} {each.tests}")
    ]
    good = True
    print("| mutant | function | noticed by | seconds |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
        if not given.no_baseline:
            for selection in dict.fromkeys(each.tests for each in chosen):
                code, said = run_tests(folder, selection)
                if code != 0:
                    good = False
                    print(f"| none | | **{selection} fails without a mutant: {said}** | |")
        for mutant in chosen:
            path = module_path(folder, mutant)
            original, began = path.read_text(encoding="utf-8"), time.perf_counter()
            path.write_text(mutated(original, mutant), encoding="utf-8")
            code, said = run_tests(folder, mutant.tests)
            path.write_text(original, encoding="utf-8")
            killed = code == 1
            good &= killed
            verdict = f"`{said}`" if killed else f"**survives: {said}**"
            seconds = time.perf_counter() - began
            print(
                f"| {mutant.name} | `{mutant.function}` | {verdict} | {seconds:.0f} |", flush=True
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
