"""Seconds from a fresh process to predictions, over rows and classes, beside rivals.

Each cell is a process of its own: it imports what it needs, fits, predicts as many new rows (at
most 1000), and then fits and predicts once more, which shows what is left without imports and
compilation. ``bmsvm first`` starts with an empty cache of compiled programs, ``bmsvm`` with the
cache that it left. All methods of a size run one after the other, so that ratios are of one run.

    python benchmarks/times.py                       # the table of docs/benchmarks.md, hours
    python benchmarks/times.py --rows 300 1000       # some sizes
    python benchmarks/times.py --digits              # the 1797 rows of digits

Rows are Gaussian clusters of 20 features that overlap, two for each class.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "times.jsonl"
ROWS, CLASSES = (100, 300, 1000, 3000, 10_000, 100_000), (2, 5, 10, 26)
METHODS = ("svc", "bmsvm first", "bmsvm", "mode", "gp", "catboost")
MOST_ROWS = {"gp": 1000, "mode": 3000, "svc": 10_000}
"""Rows beyond which a method takes too long to wait for."""

CELL = """
import json, resource, sys, time
began = time.perf_counter()
spec = json.loads(sys.argv[1])
sys.path.insert(0, spec["here"])
from times import fit_and_predict
imported = time.perf_counter()
found = {}
for name in ("fresh", "again"):
    start = time.perf_counter()
    found[name] = fit_and_predict(spec)
    found[name + "_seconds"] = time.perf_counter() - (began if name == "fresh" else start)
found["memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
usage = resource.getrusage(resource.RUSAGE_SELF)
found["cpu_seconds"] = usage.ru_utime + usage.ru_stime
print(json.dumps(found))
"""


def data(spec: dict):
    """Training rows and labels, and new ones."""
    import numpy as np

    if spec["data"] == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        return X, y, X[:1000], y[:1000]
    n, c = spec["rows"], spec["classes"]
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(c, 2, 20)) * 1.2
    total = n + min(n, 1000)
    y = np.arange(total) % c
    X = centres[y, rng.integers(2, size=total)] + rng.normal(size=(total, 20))
    return X[:n], y[:n], X[n:], y[n:]


def svc():
    """Return scikit-learn's machine: 30 pairs of C and gamma, 5 folds, temperature scaling."""
    import numpy as np
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    grid = {"svc__C": np.logspace(-1, 3, 6), "svc__gamma": np.logspace(-1.5, 0.5, 5) / 20}
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)
    return search, lambda best: CalibratedClassifierCV(
        best, method="temperature", ensemble=False, cv=5
    )


def fit_and_predict(spec: dict) -> dict:
    """Fit, predict new rows, and return the log-loss and the error."""
    import numpy as np

    X, y, Z, labels = data(spec)
    method = spec["method"]
    if method.startswith("bmsvm"):
        import bmsvm

        bmsvm.enable_compilation_cache(spec["cache"])
        model = bmsvm.BMSVMClassifier(random_state=0).fit(X, y)
    elif method == "svc":
        search, calibrated = svc()
        model = calibrated(search.fit(X, y).best_estimator_).fit(X, y)
    elif method == "mode":
        from rivals import KernelLogistic
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), KernelLogistic()).fit(X, y)
    elif method == "gp":
        from rivals import gaussian_process
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        model = make_pipeline(StandardScaler(), gaussian_process(0)).fit(X, y)
    else:
        from rivals import catboost

        model = catboost(0).fit(X, y)
    p = np.asarray(model.predict_proba(Z))
    own = np.clip(p[np.arange(len(labels)), labels], 1e-12, None)
    return {"log_loss": float(-np.log(own).mean()), "error": float((p.argmax(1) != labels).mean())}


def measure(spec: dict, limit: float) -> dict | None:
    """Run a cell in a process of its own; None if it takes longer than the limit."""
    given = json.dumps({**spec, "here": str(Path(__file__).parent)})
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CELL, given],
            capture_output=True,
            text=True,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def table(records: list[dict]) -> str:
    """Seconds of a fresh process / of a second fit, and the ratio to SVC, by size."""
    lines = ["| data | " + " | ".join(METHODS) + " | first / svc | bmsvm / svc |"]
    lines.append("|---" * (len(METHODS) + 3) + "|")
    sizes = list(dict.fromkeys((r["data"], r["rows"], r["classes"]) for r in records))
    for size in sizes:
        here = {r["method"]: r for r in records if (r["data"], r["rows"], r["classes"]) == size}
        cells = []
        for method in METHODS:
            found = here.get(method, {}).get("found")
            cells.append(
                "–"
                if found is None
                else f"{found['fresh_seconds']:.1f} / {found['again_seconds']:.1f}"
            )
        base = here.get("svc", {}).get("found")
        for method in ("bmsvm first", "bmsvm"):
            found = here.get(method, {}).get("found")
            both = base and found
            cells.append(f"{found['fresh_seconds'] / base['fresh_seconds']:.1f}" if both else "–")
        name = "digits" if size[0] == "digits" else f"{size[1]} x {size[2]}"
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--digits", action="store_true", help="the digits of scikit-learn only")
    parser.add_argument("--limit", type=float, default=1800, help="seconds of one cell")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    sizes = [("clusters", n, c) for n in options.rows for c in options.classes]
    if options.digits:
        sizes = [("digits", 1797, 10)]
    records = []
    for kind, n, c in sizes:
        with tempfile.TemporaryDirectory() as cache:
            for method in options.methods:
                if n > MOST_ROWS.get(method, n):
                    continue
                spec = {"data": kind, "rows": n, "classes": c, "method": method, "cache": cache}
                found = measure(spec, options.limit)
                record = {name: value for name, value in spec.items() if name != "cache"}
                records.append({**record, "found": found})
                with options.output.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
                print(n, c, method, found, file=sys.stderr, flush=True)
    print(table(records))


if __name__ == "__main__":
    main()
