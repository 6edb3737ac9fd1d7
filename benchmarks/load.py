"""Load: many threads that predict with one model, and many fits in one process.

Threads must get the bits that one caller gets, and memory must not grow with the calls. Fits of
many shapes compile as many programs, which JAX keeps: memory grows with the shapes unless
``jax.clear_caches()`` is called, and is bounded if it is. Both are measured. The numbers go to
benchmarks/results/load.json too; the exit code is 1 if a promise is not kept.
"""

import argparse
import gc
import json
import multiprocessing
import sys
import threading
import time
import warnings
from pathlib import Path

import jax
import numpy as np
import psutil

from bmsvm import BMSVMClassifier

QUICK = {"lengthscale": 2.0, "num_warmup": 20, "num_samples": 50, "num_chains": 2}
MB = 2**20
THREADS_MB, FITS_MB = 50, 150
"""Growth of memory that is not a promise broken: of threads, and of the last quarter of fits."""


def memory() -> float:
    """Resident memory of this process in MB."""
    gc.collect()
    return psutil.Process().memory_info().rss / MB


def blobs(n: int, p: int, c: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % c
    return rng.normal(size=(n, p)) + 2 * rng.normal(size=(c, p))[y], y


def threads(seconds: float, count: int) -> dict:
    """Predict in threads for so long; memory after a tenth of it and at the end."""
    X, y = blobs(120, 5, 4, 0)
    model = BMSVMClassifier(**QUICK, random_state=0).fit(X, y)
    batches = [blobs(m, 5, 4, 10 + m)[0] for m in (1, 7, 64, 300)]
    expected = [model.predict_proba(batch) for batch in batches]
    until = time.perf_counter() + seconds
    calls, wrong, errors = [0] * count, [0] * count, []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        while time.perf_counter() < until:
            which = rng.integers(len(batches))
            try:
                found = model.predict_proba(batches[which])
            except Exception as error:
                errors.append(repr(error))
                return
            calls[number] += 1
            wrong[number] += not np.array_equal(found, expected[which])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for worker in workers:
        worker.start()
    time.sleep(seconds / 10)
    early = memory()
    for worker in workers:
        worker.join()
    return {
        "calls": sum(calls),
        "wrong": sum(wrong),
        "errors": errors[:3],
        "early_mb": early,
        "late_mb": memory(),
    }


def fits(count: int, clear_every: int) -> dict:
    """Fit data of varying shapes; the most memory that was held after a fit of each quarter.

    JAX keeps every program that it compiled, one for each shape, unless ``jax.clear_caches()`` is
    called: here after every ``clear_every`` fits, never if it is 0.
    """
    rng = np.random.default_rng(1)
    before = memory()
    marks, largest, shapes, began = [], 0.0, set(), time.perf_counter()
    for number in range(count):
        n, p, c = int(rng.integers(12, 150)), int(rng.integers(1, 12)), int(rng.integers(2, 5))
        shapes.add((n, p, c))
        X, y = blobs(n, p, c, number)
        model = BMSVMClassifier(**QUICK, sampler="gibbs", likelihood="hinge", random_state=number)
        model.fit(X, y).predict_proba(X[:5])
        largest = max(largest, memory())
        if clear_every and (number + 1) % clear_every == 0:
            jax.clear_caches()
        if (number + 1) % max(1, count // 4) == 0:
            marks.append(largest)
            largest = 0.0
    if clear_every:
        jax.clear_caches()
    return {
        "fits": count,
        "shapes": len(shapes),
        "clear_every": clear_every,
        "seconds": time.perf_counter() - began,
        "before_mb": before,
        "quarters_mb": marks,
        "after_mb": memory(),
    }


def in_new_process(*arguments: int) -> dict:
    """Run :func:`fits` in a process of its own, so that memory is that of these fits."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(quiet_fits, arguments)


def quiet_fits(*arguments: int) -> dict:
    warnings.simplefilter("ignore")
    return fits(*arguments)


def check_threads(seconds: float, count: int, results: dict) -> bool:
    found = results["threads"] = threads(seconds, count)
    print(
        f"{count} threads, {seconds:.0f} s: {found['calls']} calls, {found['wrong']} wrong, "
        f"{len(found['errors'])} errors, "
        f"memory {found['early_mb']:.0f} to {found['late_mb']:.0f} MB"
    )
    grown = found["late_mb"] - found["early_mb"]
    return not found["wrong"] and not found["errors"] and grown < THREADS_MB


def check_fits(count: int, clear_every: int, results: dict) -> bool:
    print("\nMemory in MB: before, the most in each quarter of the fits, after.")
    print(f"{'caches cleared':>20} {'before':>7} {'quarters':>27} {'after':>7} {'seconds':>8}")
    results["fits"] = []
    for every in (0, clear_every):
        found = in_new_process(count, every)
        results["fits"].append(found)
        name = f"every {every} fits" if every else "never"
        quarters = " ".join(f"{mark:6.0f}" for mark in found["quarters_mb"])
        print(
            f"{name:>20} {found['before_mb']:7.0f} {quarters} {found['after_mb']:7.0f} "
            f"{found['seconds']:8.0f}",
            flush=True,
        )
    *_, third, last = found["quarters_mb"]
    print(f"Last quarter over the third, caches cleared: {last - third:+.0f} MB")
    return last - third < FITS_MB


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="0: no threads")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--fits", type=int, default=200, help="at least 4; 0: no fits")
    parser.add_argument("--clear-every", type=int, default=10, help="fits between two clearings")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/load.json"))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = given.output
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = []
    if given.seconds:
        kept.append(check_threads(given.seconds, given.threads, results))
    if given.fits:
        kept.append(check_fits(given.fits, given.clear_every, results))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("kept" if all(kept) else "NOT kept")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
