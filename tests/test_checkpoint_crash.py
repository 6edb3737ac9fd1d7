"""Checkpoints survive Ctrl-C, full disks and kill -9: complete draws are never lost."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from stored_runs import assert_same, interrupted_after, run

from bmsvm.checkpoint import CHUNK, RECORD

pytest.importorskip("zarr", reason="stores need zarr, the extra bmsvm[store]")


@pytest.fixture(scope="module")
def whole():
    return run().samples


@pytest.mark.parametrize("piece", [1, 5])
def test_an_interrupted_run_resumes(whole, piece, tmp_path):
    """Ctrl-C just after a piece is committed, in warm-up and in the draws."""
    with interrupted_after(piece):
        if piece == 1:
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path)
        else:
            with pytest.warns(UserWarning, match="50 of 130"):
                part = run(tmp_path)
            assert part.interrupted
            assert_same(part.more(80).samples, whole)
    assert_same(run(tmp_path).samples, whole)


def test_every_moment_of_a_crash_leaves_what_was_complete(whole, tmp_path, monkeypatch):
    """The directory is copied at every renaming of a file; each copy is what a crash would leave.

    Files are only ever written under other names, so that these are all the moments there are.
    Zarr writes from several threads. One at a time renames, so no file moves while it is copied.
    """
    copies, original, alone = [], os.replace, threading.Lock()

    def moment():
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "store", copies[-1])

    def replace(source, target):
        with alone:
            moment()
            original(source, target)
            moment()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)  # of our own files
        patch.setattr(Path, "replace", replace)  # of Zarr's
        run(tmp_path / "store", num_samples=70)
    assert len(copies) > 20
    expected = {name: value[:, :75] for name, value in whole.items()}
    for copy in copies:
        assert_same(run(copy, num_samples=75).samples, expected)
        assert not list(copy.rglob("*.partial"))


@pytest.mark.parametrize("target", ["draws.zarr", RECORD])
def test_a_full_disk_keeps_what_was_complete_and_says_so(whole, target, tmp_path, monkeypatch):
    run(tmp_path, num_samples=50)
    if target == RECORD:  # which is smaller than the draws
        record = (tmp_path / RECORD).read_bytes()

        def full(*_, **__):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(np, "savez", full)
        with pytest.raises(OSError, match=r"50 .*draws") as caught:
            run(tmp_path)
        monkeypatch.undo()
        assert caught.value.errno == errno.ENOSPC
        assert (tmp_path / RECORD).read_bytes() == record
    else:
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError, match=r"50 .*draws") as caught:
                run(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.errno == errno.EFBIG
    assert_same(run(tmp_path).samples, whole)


# Killed processes ------------------------------------------------------------------------------

CHILD = """
import sys
sys.path.insert(0, {tests!r})
import conftest, stored_runs
stored_runs.run(sys.argv[1], num_samples=int(sys.argv[2]))
"""


def resume_until_done(store, draws, kills, rng):
    """Start the run repeatedly, and kill it ``kills`` times, after it has written some records.

    So few that about half of the run is left after the last kill, but at least one. Return how many
    draws were complete at each kill.
    """
    script, seen = CHILD.format(tests=str(Path(__file__).parent)), []
    record, records = store / RECORD, max(1, draws // CHUNK // (2 * kills))
    for kill in range(kills + 1):
        child = subprocess.Popen([sys.executable, "-c", script, str(store), str(draws)])
        if kill < kills:
            for _ in range(records):
                began = time.monotonic()
                wait_for_change(record, child)
            time.sleep(rng.uniform(0, time.monotonic() - began))  # while it makes the next record
            child.send_signal(signal.SIGKILL)
        child.wait()
        if record.exists():
            seen.append(run_progress(store))
    assert child.returncode == 0
    return seen


def wait_for_change(record, child):
    before = record.stat().st_mtime_ns if record.exists() else None
    while child.poll() is None and (not record.exists() or record.stat().st_mtime_ns == before):
        time.sleep(0.002)


def run_progress(store):
    with np.load(store / RECORD) as record:
        return json.loads(str(record["record"]))["progress"]["draws"]


def check_kills(tmp_path, draws, kills):
    expected = run(num_samples=draws).samples
    seen = resume_until_done(tmp_path / "store", draws, kills, random.Random(kills))
    print(f"draws complete at each kill: {seen}")
    assert seen == sorted(seen)
    assert_same(run(tmp_path / "store", num_samples=draws).samples, expected)
    assert len(set(seen)) > 2  # some came in the middle of things


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_run_resumed_is_bit_identical(tmp_path):
    check_kills(tmp_path, draws=750, kills=2)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_run_killed_fifty_times_is_bit_identical(tmp_path):
    check_kills(tmp_path, draws=8000, kills=50)
