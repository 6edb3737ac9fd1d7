"""Data that outgrow the Gram matrix: ``python benchmarks/scale.py [--parts cost,mixing,...]``.

``cost``       Seconds of a sweep of four chains, eight steps each, at r = 512 and 5 classes, as the
               rows grow; the exponent; and peak memory over that before the data, against that of
               Phi. Every number of rows has a process of its own.
``mixing``     ``likelihood="normalized"`` with 5,000 rows of 20 features and six classes, r = 256:
               R-hat and effective size of sigma2, tau and functions, CPU seconds of 400 draws, and
               the log-loss at new rows.
``rival``      A stochastic variational GP (GPyTorch, extra ``rivals``) of the same rows and
               landmarks, in the time that ``mixing`` took: its log-loss at the same new rows.
``exact``      Class probabilities of a Nystrom approximation of rank 500 against the exact ones, of
               2000 rows, and two exact fits with different seeds beside it.
``svc``        10,000 rows of six classes: error and log-loss beside a tuned, calibrated SVC, with
               the default rank and with a smaller one.
``letters``    16,000 rows of 26 classes that overlap, two clusters each: the same beside a tuned,
               calibrated SVC, whose grid is searched on 4000 rows.
``classes``    500 rows of 50 classes: seconds of a fit and of predicting 500 rows.
``nodes``      ``likelihood="normalized"``, r = 64: how far class probabilities by 16 points for
               the noise of the scores, as in predictions, are from those by 1024, by rows.
``million``    A million rows, r = 512, five classes, ``likelihood="squared"``: seconds of a fit,
               and peak memory over that before the data, against that of Phi.

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

import jax
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from bmsvm import BMSVMClassifier, BMSVMGibbs, Fourier, Nystrom, prepare, run_chains
from bmsvm.inference import Blocks
from bmsvm.inference.blocks import hamiltonian
from bmsvm.kernels import Gaussian
from bmsvm.kernels.low_rank import landmarks_of

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


def seconds_a_sweep(problem) -> float:
    """Least of three times, of four chains that take eight steps each."""
    # A path that is never long enough takes the most steps it may: the same for every n.
    block = hamiltonian(path_length=1e6, max_steps=8)
    run = run_chains(
        BMSVMGibbs(sampler=Blocks(sweep=(block,))), jax.random.key(0), problem, num_warmup=2,
        num_samples=1, collect=("noise_variance", "precision"),
    )  # fmt: skip
    sweeps = max(3, min(50, 200_000 // problem.n_rows))
    times = []
    for _ in range(3):
        began = time.perf_counter()
        run = run.more(sweeps)
        times.append((time.perf_counter() - began) / sweeps)
    return min(times)


def cost_of(n: int) -> dict:
    """Time and memory of sweeps, in this process."""
    jax.config.update("jax_enable_x64", True)
    jax.block_until_ready(jax.numpy.zeros(3) @ jax.numpy.zeros(3))
    peak = Peak()
    X, y = synthetic(n)
    problem = prepare(X, y, lengthscale=LENGTHSCALE, approximation=Nystrom(rank=RANK))
    seconds = seconds_a_sweep(problem)
    return {
        "rows": n,
        "seconds a sweep": seconds,
        "bytes of Phi": 8 * n * RANK,
        "peak": peak.grown,
        "peak / Phi": peak.grown / (8 * n * RANK),
    }


def cost(sizes: list[int]) -> dict:
    found = []
    for n in sizes:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(cost_of, (n,)))
        print("  ".join(f"{name} {value:.4g}" for name, value in found[-1].items()), flush=True)
    logs = np.log([[each["rows"], each["seconds a sweep"]] for each in found])
    exponent = float(np.polyfit(*logs.T, 1)[0]) if len(found) > 1 else float("nan")
    print(f"exponent {exponent:.3f}")
    return {"sizes": found, "exponent": exponent}


MIXING_CLASSES, MIXING_RANK, MIXING_LENGTHSCALE, TEST_ROWS = 6, 256, 3.0, 5000


def standardized_rows(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of 20 features in six classes, ten features of them informative, and test rows."""
    X, y = make_classification(
        n + TEST_ROWS, n_features=20, n_informative=10, n_classes=MIXING_CLASSES, random_state=0
    )
    return StandardScaler().fit(X[:n]).transform(X), y


def mixing(n: int) -> dict:
    """Four chains of 100 draws under ``normalized``: R-hat, effective draws and CPU seconds."""
    X, y = standardized_rows(n)
    began, cpu = time.perf_counter(), time.process_time()
    model = BMSVMClassifier(
        likelihood="normalized", approximation=Nystrom(rank=MIXING_RANK), standardize=False,
        lengthscale=MIXING_LENGTHSCALE, num_samples=100, random_state=0,
    ).fit(X[:n], y[:n])  # fmt: skip
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    draws, diagnoses = model.posterior_.samples, dict(model.diagnostics_)
    found = {"rows": n, "rank": MIXING_RANK, "draws": model.posterior_.n_draws}
    for name in ("noise_variance", "precision"):
        found[f"R-hat of {name}"], found[f"effective draws of {name}"] = diagnoses.pop(name)
    found |= {
        "largest R-hat of functions": max(each.r_hat for each in diagnoses.values()),
        "fewest effective draws of functions": min(each.ess for each in diagnoses.values()),
        "CPU seconds": cpu,
        "seconds": seconds,
        "acceptance": float(draws["accept_prob"].mean()),
        "steps": float(draws["num_steps"].mean()),
        "log-loss": float(log_loss(y[n:], model.predict_proba(X[n:]))),
    }
    print("\n".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    return found


def rival(n: int, seconds: float | None = None, batch: int = 1024, rate: float = 0.01) -> dict:
    """A sparse variational GP with a softmax likelihood, one function a class, Adam."""
    import gpytorch
    import torch

    known = json.loads(RESULTS.read_text()).get("mixing", {}) if RESULTS.exists() else {}
    if seconds is None:
        seconds = known["seconds"]
    torch.manual_seed(0)
    X, y = standardized_rows(n)
    n_classes, rank = MIXING_CLASSES, MIXING_RANK
    points = landmarks_of(Gaussian(), MIXING_LENGTHSCALE, X[:n], Nystrom(rank=rank))
    rows, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y)

    class Functions(gpytorch.models.ApproximateGP):
        def __init__(self):
            shape = torch.Size([n_classes])
            inner = gpytorch.variational.VariationalStrategy(
                self, torch.tensor(points, dtype=torch.float32),
                gpytorch.variational.CholeskyVariationalDistribution(rank, batch_shape=shape),
                learn_inducing_locations=False,
            )  # fmt: skip
            super().__init__(
                gpytorch.variational.IndependentMultitaskVariationalStrategy(inner, n_classes)
            )
            self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
            self.covar_module.base_kernel.lengthscale = MIXING_LENGTHSCALE

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Functions()
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=n_classes, mixing_weights=False)
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=n)
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    steps, numbers = 0, np.random.default_rng(0)
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        for group in optimiser.param_groups:  # down to nothing in the time there is
            group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * elapsed / seconds))
        chosen = torch.tensor(numbers.integers(0, n, batch))
        optimiser.zero_grad()
        loss = -bound(model(rows[chosen]), labels[chosen])
        loss.backward()
        optimiser.step()
        steps += 1
        if steps % 500 == 0:
            print(f"{elapsed:.0f} s, {steps} steps, loss {loss.item():.4f}", flush=True)
    model.eval()
    chances = np.empty((TEST_ROWS, n_classes))
    with torch.no_grad():
        for begin in range(0, TEST_ROWS, 1000):
            here = model(rows[n + begin : n + begin + 1000]).sample(torch.Size([256]))
            chances[begin : begin + 1000] = torch.softmax(here.double(), -1).mean(0).numpy()
    found = {
        "rows": n,
        "seconds": seconds,
        "steps": steps,
        "batch": batch,
        "lengthscale": model.covar_module.base_kernel.lengthscale.item(),
        "log-loss": float(log_loss(y[n:], chances)),
        "log-loss of bmsvm": known.get("log-loss", float("nan")),
    }
    print("  ".join(f"{name} {value:.5g}" for name, value in found.items()), flush=True)
    return found


def exact(n: int = 2000, rank: int = 500) -> dict:
    X, y = synthetic(n + 1000)
    settings = {"lengthscale": LENGTHSCALE, "num_warmup": 200, "num_samples": 250}
    chances, seconds = {}, {}
    for name, how, seed in (
        ("exact", "exact", 0),
        ("exact, another seed", "exact", 1),
        ("nystrom", Nystrom(rank=rank), 0),
        ("fourier", Fourier(rank=rank), 0),
    ):
        began = time.perf_counter()
        fit = BMSVMClassifier(approximation=how, random_state=seed, **settings).fit(X[:n], y[:n])
        seconds[name] = time.perf_counter() - began
        chances[name] = fit.predict_proba(X[n:])
        rows = fit.standardized_rows(X[n:])
        chances[f"{name}, not calibrated"] = fit.posterior_.probabilities(rows)
    found = {"seconds": seconds}
    for name in chances:
        plain = "exact, not calibrated" if "not cal" in name else "exact"
        found[name] = float(np.abs(chances[name] - chances[plain]).mean())
        print(f"{name}: mean absolute difference from exact {found[name]:.4f}")
    return found


def svc(n: int = 10_000, n_classes: int = 6) -> dict:
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
    for rank in (None, 512):
        began = time.perf_counter()
        how = "nystrom" if rank is None else Nystrom(rank=rank)
        fit = BMSVMClassifier(approximation=how, random_state=0).fit(X[train], y[train])
        problem = fit.posterior_.problem
        shape, error = problem.factor.basis.shape, float(problem.basis_map.error)
        print(shape, f"error {error:.3f}", fit.lengthscale_, fit.predictive_.calibration)
        name = "bmsvm" if rank is None else f"bmsvm, rank {rank}"
        note(name, fit.predict_proba(X[test]), time.perf_counter() - began)
    return found


def clusters(n: int, n_classes: int, features: int, distance: float):
    """Rows of two normal clusters for each class, and their classes."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(n_classes, 2, features)) * distance
    y = np.arange(n) % n_classes
    rows = centres[y, random.integers(2, size=n)] + random.standard_normal((n, features))
    return rows, y


def letters(n: int = 16_000, few: int = 4000) -> dict:
    X, y = clusters(n + 4000, 26, 16, 1.3)
    found = {}

    def note(name, fit) -> None:
        began, cpu = time.perf_counter(), time.process_time()
        chances = fit().predict_proba(X[n:])
        found[name] = {
            "error": float(np.mean(np.argmax(chances, axis=1) != y[n:])),
            "log-loss": float(log_loss(y[n:], chances)),
            "seconds": time.perf_counter() - began,
            "CPU seconds": time.process_time() - cpu,
        }
        print(name, {key: round(value, 4) for key, value in found[name].items()}, flush=True)

    def tuned():
        grid = {"svc__C": np.logspace(-1, 3, 6), "svc__gamma": np.logspace(-1.5, 0.5, 5) / 16}
        search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=5)
        best = search.fit(X[:few], y[:few]).best_estimator_
        calibrated = CalibratedClassifierCV(best, method="temperature", ensemble=False, cv=5)
        return calibrated.fit(X[:n], y[:n])

    note("bmsvm", lambda: BMSVMClassifier(random_state=0).fit(X[:n], y[:n]))
    note("tuned SVC, calibrated", tuned)
    return found


def classes() -> dict:
    X, y = clusters(1000, 50, 20, 1.2)
    began, cpu = time.perf_counter(), time.process_time()
    fit = BMSVMClassifier(random_state=0).fit(X[:500], y[:500])
    fitted, predicting = time.process_time(), time.perf_counter()
    chances = fit.predict_proba(X[500:])
    found = {
        "seconds of a fit": predicting - began,
        "CPU seconds of a fit": fitted - cpu,
        "seconds of predicting": time.perf_counter() - predicting,
        "log-loss": float(log_loss(y[500:], chances)),
    }
    print("\n".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    return found


def nodes(sizes: tuple[int, ...] = (1000, 10_000, 100_000), many: int = 1024) -> dict:
    """Means over 256 new rows, for few draws: the error is that of the integral of each draw."""
    found = {}
    for n in sizes:
        X, y = synthetic(n + 256)
        fit = BMSVMClassifier(
            likelihood="normalized", lengthscale=LENGTHSCALE, approximation=Nystrom(rank=64),
            num_chains=2, num_warmup=60, num_samples=16, predictive="posterior", random_state=0,
        ).fit(X[:n], y[:n])  # fmt: skip
        posterior, rows = fit.posterior_, fit.standardized_rows(X[n:])
        means = []
        for points in (16, many):
            parts = posterior.evaluate(rows, functions=False, points=points)
            each = np.concatenate([part.probabilities for part in parts])
            means.append(each.mean(axis=-1, dtype=np.float64))
        apart = np.abs(means[0] - means[1])
        own = [each[np.arange(256), y[n:]] for each in means]
        found[n] = {
            "mean difference": float(apart.mean()),
            "largest difference": float(apart.max()),
            "difference of log-loss": float(np.mean(np.log(own[1]) - np.log(own[0]))),
        }
        print(n, "  ".join(f"{name} {x:.2g}" for name, x in found[n].items()), flush=True)
    return found


def million_in_a_process(n: int) -> dict:
    peak = Peak()
    X, y = synthetic(n)
    began, cpu = time.perf_counter(), time.process_time()
    fit = BMSVMClassifier(
        likelihood="squared", approximation=Nystrom(rank=RANK), kernel="gaussian", random_state=0
    ).fit(X, y)
    basis = fit.posterior_.problem.factor.basis
    return {
        "rows": n,
        "columns": basis.shape[1],
        "seconds": time.perf_counter() - began,
        "CPU seconds": time.process_time() - cpu,
        "bytes of Phi": basis.nbytes,
        "peak": peak.grown,
        "peak / Phi": peak.grown / basis.nbytes,
    }


def million(n: int) -> dict:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(million_in_a_process, (n,))
    print("\n".join(f"{name} {value:.4g}" for name, value in found.items()), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--parts", default="cost,mixing,rival,exact,svc,letters,classes,nodes,million"
    )
    parser.add_argument("--rows", default="5000,20000,80000", help="of the first part")
    parser.add_argument("--mixing-rows", type=int, default=5000)
    parser.add_argument("--million-rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, help="of the rival; default: those of mixing")
    options = parser.parse_args()
    parts = {
        "cost": lambda: cost([int(n) for n in options.rows.split(",")]),
        "mixing": lambda: mixing(options.mixing_rows),
        "rival": lambda: rival(options.mixing_rows, options.seconds),
        "exact": exact,
        "svc": svc,
        "letters": letters,
        "classes": classes,
        "nodes": nodes,
        "million": lambda: million(options.million_rows),
    }
    for part in options.parts.split(","):
        print(f"== {part}", flush=True)
        record(part, parts[part]())


if __name__ == "__main__":
    main()
