"""Seconds from a fresh process to predictions, over rows and classes, beside rivals.

Each cell is a process of its own: it imports what it needs, fits, predicts as many new rows (at
most 1000), and then fits and predicts once more, which shows what is left without imports and
compilation. ``bmsvm first`` starts with an empty cache of compiled programs, ``bmsvm`` with the
cache that it left. All methods of a size run one after the other, so that ratios are of one run.
Each finished size is kept in the output file and not measured again; a cell that takes longer than
the limit is kept as such.

    python benchmarks/times.py                       # the table of docs/troubleshooting.md, hours
    python benchmarks/times.py --rows 300 1000       # some sizes
    python benchmarks/times.py --digits              # the 1797 rows of digits
    python benchmarks/times.py --table               # what the output file has

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


def measure(spec: dict, limit: float) -> dict:
    """Run a cell in a process of its own; without times if it takes longer than the limit."""
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
        return {"limit": limit}
    if done.returncode:
        raise RuntimeError(f"{spec}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def cell(found: dict) -> str:
    """Seconds of a fresh process / of a second fit, or the limit that they exceed."""
    if not found:
        return "–"
    if "limit" in found:
        return f"> {found['limit']:.0f}"
    return f"{found['fresh_seconds']:.1f} / {found['again_seconds']:.1f}"


def ratio(found: dict, base: dict) -> str:
    """Seconds of a fresh process over those of another method."""
    if not all("fresh_seconds" in each for each in (found, base)):
        return "–"
    return f"{found['fresh_seconds'] / base['fresh_seconds']:.1f}"


def table(records: list[dict]) -> str:
    """Seconds of each method and the ratio to SVC, by size."""
    lines = ["| rows x classes | " + " | ".join(METHODS) + " | first / svc | bmsvm / svc |"]
    lines.append("|---" * (len(METHODS) + 3) + "|")
    for size in sorted({size_of(each) for each in records}):
        here = {r["method"]: r["found"] for r in records if size_of(r) == size}
        of = [here.get(method, {}) for method in METHODS]
        ratios = [
            ratio(here.get(name, {}), here.get("svc", {})) for name in ("bmsvm first", "bmsvm")
        ]
        name = f"{size[1]} x {size[2]}" + (" (digits)" if size[0] == "digits" else "")
        lines.append(f"| {name} | " + " | ".join([*map(cell, of), *ratios]) + " |")
    return "\n".join(lines)


def size_of(record: dict) -> tuple[str, int, int]:
    """Kind of data, rows and classes of a record."""
    return record["data"], record["rows"], record["classes"]


def kept(output: Path) -> list[dict]:
    """Records of the output file; the newest of each cell."""
    if not output.exists():
        return []
    every = [json.loads(line) for line in output.read_text().splitlines()]
    return list({(*size_of(each), each["method"]): each for each in every}.values())


def measure_size(size: tuple[str, int, int], methods: list[str], limit: float, output: Path):
    """Measure all methods of a size one after the other, and keep what they take."""
    kind, n, c = size
    with tempfile.TemporaryDirectory() as cache:
        for method in methods:
            record = {"data": kind, "rows": n, "classes": c, "method": method}
            record["found"] = measure({**record, "cache": cache}, limit)
            with output.open("a") as file:
                file.write(json.dumps(record) + "\n")
            print(n, c, method, record["found"], file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES)
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--digits", action="store_true", help="the digits of scikit-learn only")
    parser.add_argument("--limit", type=float, default=1800, help="seconds of one cell")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="only print what the file has")
    options = parser.parse_args()
    # Cross-validation of the rivals needs five rows of each class.
    sizes = [("clusters", n, c) for n in options.rows for c in options.classes if n >= 5 * c]
    if options.digits:
        sizes = [("digits", 1797, 10)]
    for size in [] if options.table else sizes:
        done = {each["method"] for each in kept(options.output) if size_of(each) == size}
        wanted = [each for each in options.methods if size[1] <= MOST_ROWS.get(each, size[1])]
        if not done.issuperset(wanted):
            measure_size(size, wanted, options.limit, options.output)
    print(table(kept(options.output)))


if __name__ == "__main__":
    main()
