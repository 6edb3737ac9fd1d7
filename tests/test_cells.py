"""Cells of the experiments: stored, resumed, and computed in processes that end."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import joblib
import pytest

from reproduction.cells import run_cells

ROOT = Path(__file__).resolve().parents[1]
CELLS = {name: {"number": number} for number, name in enumerate(("one", "two", "three"))}


def squared(number):
    return {"square": number**2}


def test_finished_cells_are_not_computed_again(tmp_path):
    computed = []

    def interrupted(number):
        if number == 2:
            raise KeyboardInterrupt
        computed.append(number)
        return squared(number)

    with pytest.raises(KeyboardInterrupt):
        run_cells(interrupted, CELLS, tmp_path, progress=False)
    assert computed == [0, 1]
    again = []

    def resumed(number):
        again.append(number)
        return squared(number)

    with joblib.parallel_config(backend="threading"):
        found = run_cells(resumed, CELLS, tmp_path, jobs=2, progress=False)
    assert again == [2]
    assert {name: each["square"] for name, each in found.items()} == {
        "one": 0,
        "two": 1,
        "three": 4,
    }
    assert list(found) == list(CELLS)
    assert not list(tmp_path.rglob("*.tmp"))


def test_a_failing_cell_says_why_and_the_others_are_kept(tmp_path):
    def fails(number):
        if number == 1:
            raise ValueError("one is too many")
        return squared(number)

    with pytest.raises(ValueError, match="one is too many"):
        run_cells(fails, CELLS, tmp_path, progress=False)
    assert [path.stem for path in (tmp_path / "cells").iterdir()] == ["one"]


def test_cells_of_another_run_are_refused(tmp_path):
    run_cells(squared, CELLS, tmp_path, progress=False)
    with pytest.raises(ValueError, match="pass another --out"):
        run_cells(squared, {"one": {"number": 5}}, tmp_path, progress=False)


@pytest.mark.parametrize("text", ['{"square": ', "[]", '{"square": 1}', "\x00"])
def test_a_damaged_cell_is_refused(text, tmp_path):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "two.json").write_text(text)
    with pytest.raises(ValueError, match=r"two\.json is damaged: remove it"):
        run_cells(squared, CELLS, tmp_path, progress=False)


SLEEPERS = """
import os, sys, time
from pathlib import Path
from reproduction.cells import run_cells

def sleep(number):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(300)

run_cells(sleep, {str(n): {"number": n} for n in range(2)}, Path(sys.argv[2]), jobs=2)
"""


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_processes_end_with_the_one_that_waits(how, tmp_path):
    seen, out = tmp_path / "seen", tmp_path / "out"
    seen.mkdir()
    command = [sys.executable, "-c", SLEEPERS, str(seen), str(out)]
    waiting = subprocess.Popen(command, stderr=subprocess.DEVNULL, cwd=ROOT)
    until = time.monotonic() + 120
    while len(list(seen.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    workers = [int(path.name) for path in seen.iterdir()]
    assert len(workers) == 2
    waiting.send_signal(how)
    assert waiting.wait(timeout=60) != 0
    while (left := [each for each in workers if _runs(each)]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left
    assert not list(out.rglob("*.json"))


def _runs(process: int) -> bool:
    """Whether there is such a process, other than one that ended and was not waited for."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
