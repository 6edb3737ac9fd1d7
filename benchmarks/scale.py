"""Data that outgrow the Gram matrix: ``python benchmarks/scale.py [--parts cost,mixing,...]``.

``cost``    Seconds of a sweep of four chains, two steps each, at r = 512 and five classes, as the
            rows grow; the exponent; and peak memory over that before the data, against that of Phi.
            Every number of rows has a process of its own.
``mixing``  1000 sweeps at 100,000 rows: time, and R-hat of log sigma2, log tau and functions.
``exact``   Class probabilities of a Nystrom approximation of rank 500 against the exact ones, of
            2000 rows, and two exact fits with different seeds beside it.
``svc``     10,000 rows of six classes: error and log-loss beside a tuned, calibrated SVC.
``noise``   What integrating the noise at 16 points changes in class probabilities.

Each prints a table, and adds to ``benchmarks/results/scale.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import threading
import time
from pathlib import Path

import numpy as np

CLASSES, RANK, FEATURES, LENGTHSCALE = 5, 512, 4, 1.5
RESULTS = Path(__file__).parent / "results" / "scale.json"


def functions(rows: np.ndarray, n_classes: int, seed: int, roughness: float = 1.0) -> np.ndarray:
    """Smooth functions of rows (n, p), one a class: shape (n, c)."""
    random = np.random.default_rng(seed)
    waves = roughness * random.standard_normal((rows.shape[1], 40))
    phases = random.uniform(0, 2 * np.pi, 40)
    return np.cos(rows @ waves + phases) @ random.standard_normal((40, n_classes)) / np.sqrt(20)


def synthetic(n: int, n_classes: int = CLASSES, p: int = FEATURES, seed: int = 0, height=4.0):
    """Rows whose labels are drawn by the softmax of smooth functions."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((n, p))
    heights = height * functions(rows, n_classes, seed=1000)
    return rows, np.argmax(heights + random.gumbel(size=heights.shape), axis=1)


def record(part: str, found) -> None:
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps({**known, part: found}, indent=1))


def resident() -> float:
    """Bytes of memory that the process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Peak:
    """The largest memory since it was made, looked at twenty times a second."""

    def __init__(self) -> None:
        self.before = self.largest = resident()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.largest = max(self.largest, resident())
            time.sleep(0.05)

    @property
    def grown(self) -> float:
        return self.largest - self.before


def prepared(n: int):
    from bmsvm import UNIT_NOISE, LowRank, prepare

    X, y = synthetic(n)
    return prepare(
        X, y, lengthscale=LENGTHSCALE, likelihood="normalized", hyperparameters=UNIT_NOISE,
        features=LowRank(rank=RANK, dtype="float32"),
    )  # fmt: skip


def cost_of(n: int) -> dict:
    """Time and memory of sweeps, in this process."""
    from dataclasses import replace

    import jax

    from bmsvm import BMSVMGibbs, run_chains
    from bmsvm.inference.blocks import collapsed
    from bmsvm.inference.laplace import with_reference
    from bmsvm.models.problem import some_rows

    jax.config.update("jax_enable_x64", True)
    jax.block_until_ready(jax.numpy.zeros(3) @ jax.numpy.zeros(3))
    peak = Peak()
    problem = prepared(n)
    # Any reference takes the same time; that of fewer rows is found sooner.
    small = with_reference(some_rows(problem, 10_000))
    problem = replace(problem, reference=small.reference)
    block = collapsed(path_length=1e6, max_steps=2)
    sampler = BMSVMGibbs(likelihood="normalized", blocks=(block,))
    sites = ("noise_variance", "precision")
    run = run_chains(
        sampler, jax.random.key(0), problem, num_warmup=2, num_samples=1, collect=sites,
        progress_bar=False,
    )  # fmt: skip
    sweeps = max(3, min(50, 1_000_000 // n))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run = run.more(sweeps, progress_bar=False)
        times.append((time.perf_counter() - began) / sweeps)
    return {
        "rows": n,
        "seconds a sweep": min(times),
        "bytes of Phi": 4 * n * RANK,
        "peak": peak.grown,
        "peak / Phi": peak.grown / (4 * n * RANK),
    }


def cost(sizes: list[int]) -> dict:
    found = []
    for n in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(cost_of, (n,)))
        print("  ".join(f"{name} {value:.4g}" for name, value in found[-1].items()), flush=True)
    logs = np.log([[each["rows"], each["seconds a sweep"]] for each in found])
    exponent = float(np.polyfit(*logs.T, 1)[0]) if len(found) > 1 else float("nan")
    print(f"exponent {exponent:.3f} (target: at most 1.05)")
    return {"sizes": found, "exponent": exponent}


def mixing(n: int, num_warmup: int = 200, num_samples: int = 800) -> dict:
    import jax
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    from bmsvm import BMSVMGibbs, run_chains
    from bmsvm.inference.laplace import with_reference

    jax.config.update("jax_enable_x64", True)
    began = time.perf_counter()
    problem = prepared(n)
    features = time.perf_counter() - began
    began = time.perf_counter()
    problem = with_reference(problem)
    reference = time.perf_counter() - began
    print(f"features {features:.1f} s, reference {reference:.1f} s", flush=True)
    sampler = BMSVMGibbs(likelihood="normalized", preset="large")
    sites = ("noise_variance", "precision", "weights", "intercept", "accept_prob", "num_steps")
    design = np.asarray(problem.factor.basis[:100], np.float64)
    design = design * np.sqrt(np.asarray(problem.factor.eigenvalues))
    part = num_samples // 4
    run = run_chains(
        sampler, jax.random.key(0), problem, num_warmup=num_warmup, num_samples=part,
        collect=sites, progress_bar=False,
    )  # fmt: skip
    while True:
        draws = run.samples
        watched = {
            "log sigma2": np.log(draws["noise_variance"]),
            "log tau": np.log(draws["precision"]),
            "f": np.einsum("nr,cdrk->cdnk", design, draws["weights"], optimize=True),
        }
        found = {
            "rows": n,
            "rank": problem.factor.basis.shape[1],
            "error of the features": float(problem.features.error),
            "seconds for features": features,
            "seconds for the reference": reference,
            "sweeps": num_warmup + run.num_samples,
            "seconds for sweeps": run.seconds,
            "acceptance": float(draws["accept_prob"].mean()),
            "steps": float(draws["num_steps"].mean()),
        }
        for name, value in watched.items():
            found[f"R-hat of {name}"] = float(np.max(split_gelman_rubin(value)))
            found[f"effective draws of {name}"] = float(np.min(effective_sample_size(value)))
        print("  ".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
        if run.num_samples >= num_samples:
            return found
        run = run.more(part, progress_bar=False)


def exact(n: int = 2000, rank: int = 500) -> dict:
    from bmsvm import BMSVMClassifier, LowRank
    from bmsvm.inference.calibration import NONE

    X, y = synthetic(n + 1000)
    settings = {"lengthscale": LENGTHSCALE, "num_warmup": 200, "num_samples": 250}
    chances, seconds = {}, {}
    for name, features, seed in (
        ("exact", "exact", 0),
        ("exact, another seed", "exact", 1),
        ("nystrom", LowRank(rank=rank), 0),
        ("fourier", LowRank("fourier", rank=rank), 0),
    ):
        began = time.perf_counter()
        fit = BMSVMClassifier(features=features, random_state=seed, **settings).fit(X[:n], y[:n])
        seconds[name] = time.perf_counter() - began
        chances[name] = fit.predict_proba(X[n:])
        fit.calibration_ = NONE
        chances[f"{name}, not calibrated"] = fit.predict_proba(X[n:])
    found = {"seconds": seconds}
    for name in chances:
        plain = "exact, not calibrated" if "not cal" in name else "exact"
        found[name] = float(np.abs(chances[name] - chances[plain]).mean())
        print(f"{name}: mean absolute difference from exact {found[name]:.4f}")
    return found


def svc(n: int = 10_000, n_classes: int = 6) -> dict:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.metrics import log_loss
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    from bmsvm import BMSVMClassifier

    X, y = synthetic(n + 5000, n_classes, p=6, seed=7, height=6.0)
    train, test = slice(0, n), slice(n, None)
    found = {}

    def note(name, chances, seconds):
        error = float(np.mean(np.argmax(chances, axis=1) != y[test]))
        found[name] = {"error": error, "log-loss": log_loss(y[test], chances), "seconds": seconds}
        print(name, {key: round(value, 4) for key, value in found[name].items()}, flush=True)

    began = time.perf_counter()
    grid = {"svc__C": np.geomspace(0.1, 100, 7), "svc__gamma": np.geomspace(0.01, 1, 7)}
    pipeline = make_pipeline(StandardScaler(), SVC())
    some = slice(0, 3000)  # the grid on a part of the rows, the chosen ones on all
    search = GridSearchCV(pipeline, grid, cv=3).fit(X[some], y[some])
    tuned = CalibratedClassifierCV(search.best_estimator_, ensemble=False, cv=5)
    tuned.fit(X[train], y[train])
    print(search.best_params_)
    note("tuned SVC, calibrated", tuned.predict_proba(X[test]), time.perf_counter() - began)
    plain = search.best_estimator_.fit(X[train], y[train])
    print("tuned SVC, error", 1 - plain.score(X[test], y[test]))
    found["tuned SVC"] = {"error": 1 - plain.score(X[test], y[test])}
    began = time.perf_counter()
    fit = BMSVMClassifier(random_state=0).fit(X[train], y[train])
    print(fit.features_, fit.problem_.factor.basis.shape, fit.lengthscale_, fit.calibration_)
    note("bmsvm", fit.predict_proba(X[test]), time.perf_counter() - began)
    return found


def noise(points=(8, 16, 32, 64, 128)) -> dict:
    """Mean absolute change of class probabilities, over functions and noises of a typical size."""
    from bmsvm.inference.quasirandom import noise_nodes, normal_points
    from bmsvm.models.couplings import contrast
    from bmsvm.models.likelihoods import class_probabilities

    random = np.random.default_rng(0)
    found = {}
    for c in (3, 5, 10):
        heights = 2 * random.standard_normal((300, c - 1))
        for sigma in (1.0, 1.6):

            def chances(nodes, c=c, sigma=sigma, heights=heights):
                around = heights[:, None] + sigma * nodes
                return np.asarray(class_probabilities(around @ contrast(c).T, "normalized")).mean(1)

            best = chances(normal_points(2**14, c - 1, seed=3))
            for count in points:
                if count < 2 * (c - 1):
                    continue
                change = np.abs(chances(noise_nodes(count, c - 1)) - best)
                key = f"{c} classes, sigma {sigma}, {count} points"
                found[key] = float(change.mean())
                print(f"{key}: mean {change.mean():.5f}, largest {change.max():.4f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="cost,mixing,exact,svc,noise")
    parser.add_argument("--rows", default="10000,100000,1000000", help="of the first part")
    parser.add_argument("--mixing-rows", type=int, default=100_000)
    options = parser.parse_args()
    parts = {
        "cost": lambda: cost([int(n) for n in options.rows.split(",")]),
        "mixing": lambda: mixing(options.mixing_rows),
        "exact": exact,
        "svc": svc,
        "noise": noise,
    }
    for part in options.parts.split(","):
        print(f"== {part}", flush=True)
        record(part, parts[part]())


if __name__ == "__main__":
    main()
