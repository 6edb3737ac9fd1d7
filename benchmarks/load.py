"""Load: many threads that predict with one model, and many fits in one process.

Threads must get the bits that one caller gets, and memory must not grow with the work. The numbers
go to benchmarks/results/load.json too; the exit code is 1 if a promise is not kept.
"""

import argparse
import gc
import json
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import psutil

from bmsvm import BMSVMClassifier

QUICK = {"lengthscale": 2.0, "num_warmup": 20, "num_samples": 50, "num_chains": 2}
MB = 2**20
RESULTS = Path(__file__).parent / "results"


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


def fits(count: int) -> dict:
    """Fit data of varying shapes; the most memory that was held after a fit of each quarter."""
    rng = np.random.default_rng(1)
    marks, largest, shapes, began = [], 0.0, set(), time.perf_counter()
    for number in range(count):
        n, p, c = int(rng.integers(12, 150)), int(rng.integers(1, 12)), int(rng.integers(2, 5))
        shapes.add((n, p, c))
        X, y = blobs(n, p, c, number)
        model = BMSVMClassifier(**QUICK, preset="gibbs", likelihood="hinge", random_state=number)
        model.fit(X, y).predict_proba(X[:5])
        largest = max(largest, memory())
        if (number + 1) % max(1, count // 4) == 0:
            marks.append(largest)
            print(f"{number + 1} fits: up to {largest:.0f} MB", flush=True)
            largest = 0.0
    seconds = time.perf_counter() - began
    return {"fits": count, "shapes": len(shapes), "seconds": seconds, "quarters_mb": marks}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="0: no threads")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--fits", type=int, default=200, help="0: no fits")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = RESULTS / "load.json"
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept = []
    if given.seconds:
        told = results["threads"] = threads(given.seconds, given.threads)
        grown = told["late_mb"] - told["early_mb"]
        kept.append(not told["wrong"] and not told["errors"] and grown < 50)
        print(
            f"{given.threads} threads, {given.seconds:.0f} s: {told['calls']} calls, "
            f"{told['wrong']} wrong, {len(told['errors'])} errors, "
            f"memory {told['early_mb']:.0f} to {told['late_mb']:.0f} MB"
        )
    if given.fits:
        made = results["fits"] = fits(given.fits)
        last = made["quarters_mb"][-1] - made["quarters_mb"][-2]
        kept.append(last < 150)
        print(f"memory in the last quarter of {given.fits} fits: {last:+.0f} MB")
    RESULTS.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("kept" if all(kept) else "NOT kept")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
