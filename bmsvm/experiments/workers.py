"""Pieces of an experiment in processes of their own, or wherever joblib is told to run them.

Each process keeps to one thread. How far a piece has come is told by a small file, which whoever
waits looks at now and then; where there is no common disk only finished pieces count.
"""

from __future__ import annotations

import functools
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import joblib
from threadpoolctl import threadpool_limits

from bmsvm.experiments.store import Named

__all__ = ["run_pieces"]

Piece = TypeVar("Piece", bound=Named)
Report = Callable[[float], None]
Work = Callable[[Any, Report], dict[str, Any]]

SECONDS = 0.5
"""Between two looks at how far pieces have come."""

STEP = 0.002
"""Share of a piece that is worth telling."""

ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Environment of a process whose linear algebra, XLA's among it, has one thread."""

XLA_FLAG = "--xla_cpu_multi_thread_eigen=false"


def _settle_in() -> None:
    """Set the environment that XLA reads when it is first used in this process.

    Ctrl-C is left to the process that waits, which ends this one.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(ONE_THREAD)
    flags = os.environ.get("XLA_FLAGS", "")
    if XLA_FLAG not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {XLA_FLAG}".strip()


@functools.cache
def _end_with(parent: int) -> None:
    """End this process, a child of the one that waits, when that is gone: killed, perhaps."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(SECONDS)
        os._exit(1)

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


def _run(work: Work, piece: Piece, parent: int, telling: Path) -> tuple[Piece, dict[str, Any]]:
    """Run one piece, here or far away."""
    if os.getpid() != parent:
        _settle_in()
        _end_with(parent)
    done = told = 0.0
    path = telling / piece.name

    def report(share: float) -> None:
        nonlocal done, told
        done += share
        if done - told >= STEP and telling.is_dir():
            told = done
            fresh = path.with_suffix(f".{os.getpid()}")
            fresh.write_text(repr(done))
            fresh.replace(path)

    # Matrices are small here: threads of BLAS would wait for each other most of the time.
    with threadpool_limits(1, "blas"):
        return piece, work(piece, report)


def _told(telling: Path, pieces: Sequence[Named]) -> float:
    """Sum of the shares that have been told of some pieces."""
    total = 0.0
    for piece in pieces:
        try:
            total += float((telling / piece.name).read_text())
        except (OSError, ValueError):
            continue
    return total


def run_pieces(
    work: Work, pieces: Sequence[Piece], jobs: int, report: Callable[[float, str], None]
) -> Iterator[tuple[Piece, dict[str, Any]]]:
    """Run pieces and yield each with what it gave, as they are finished.

    Parameters
    ----------
    work
        ``work(piece, report) -> dict``, which pickles; its ``report`` is told which share of the
        piece has been done since it was told last.
    pieces
        What to run, each with a name.
    jobs
        Pieces at a time: in this process if it is 1, else in as many others, unless
        :func:`joblib.parallel_config` says where.
    report
        Is told how many pieces' worth of work is done, parts of unfinished ones included.
    """
    finished: set[Any] = set()
    stop = threading.Event()
    with tempfile.TemporaryDirectory(prefix="bmsvm-") as folder:
        telling = Path(folder)

        def tell() -> None:
            running = [piece for piece in pieces if piece not in finished]
            begun = [piece.name for piece in running if (telling / piece.name).exists()]
            report(len(finished) + _told(telling, running), ", ".join(begun))

        def watch() -> None:
            while not stop.wait(SECONDS):
                tell()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        parallel = joblib.Parallel(
            None if jobs == 1 else jobs, batch_size=1, return_as="generator_unordered"
        )
        results = parallel(
            joblib.delayed(_run)(work, piece, os.getpid(), telling) for piece in pieces
        )
        try:
            for piece, found in results:
                finished.add(piece)
                yield piece, found
        finally:
            results.close()  # ends what still runs
            stop.set()
            watcher.join()
            tell()
