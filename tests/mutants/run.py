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

from catalogue import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]
IGNORED = shutil.ignore_patterns("__pycache__")


def mutated(text: str, mutant: Mutant) -> str:
    """Text of a file with the mutant in it."""
    if text.count(mutant.right) != 1:
        raise ValueError(f"{mutant.file} has {text.count(mutant.right)} times {mutant.right!r}")
    return text.replace(mutant.right, mutant.wrong)


def run_tests(folder: Path, selection: str) -> tuple[int, str]:
    """Exit code of the tests of a copy, and the first that failed."""
    file, _, expression = selection.partition(" ")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += [f"tests/{file}", "-k", expression]
    command += ["-m", "not long and not slow"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\S+)", done.stdout, re.MULTILINE)
    return done.returncode, failed.group(1) if failed else done.stdout.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose names have this in them")
    parser.add_argument("--no-baseline", action="store_true", help="run no tests unmutated")
    given = parser.parse_args()
    chosen = [each for each in MUTANTS if given.only in each.name]
    good = True
    print("| mutant | file | noticed by | seconds |\n|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shutil.copy(ROOT / "pyproject.toml", folder)
        for name in ("bmsvm", "reproduction", "tests"):
            shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
        if not given.no_baseline:
            for selection in dict.fromkeys(each.tests for each in chosen):
                code, said = run_tests(folder, selection)
                if code != 0:
                    good = False
                    print(f"| none | | **{selection} fails without a mutant: {said}** | |")
        for mutant in chosen:
            path = folder / "bmsvm" / mutant.file
            original, began = path.read_text(encoding="utf-8"), time.perf_counter()
            path.write_text(mutated(original, mutant), encoding="utf-8")
            code, said = run_tests(folder, mutant.tests)
            path.write_text(original, encoding="utf-8")
            killed = code == 1
            good &= killed
            verdict = f"`{said}`" if killed else f"**survives: {said}**"
            seconds = time.perf_counter() - began
            print(f"| {mutant.name} | `{mutant.file}` | {verdict} | {seconds:.0f} |", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
