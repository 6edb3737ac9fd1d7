"""Three ways to set the lengthscale: ``python benchmarks/theta.py [--data wine,...]``.

First table: theta sampled on its grid against theta fixed, four vectorised chains each, compile
time apart. R-hat and bulk effective sample size of log theta, and the ratio of the times.

Second table: theta sampled, by least squares with rows left out, by five folds of posteriors, on
the same training rows, likelihood ``normalized``. Seconds to choose theta, compile time included;
log-loss and error on the held-out rows (all that are not training rows; 2000 for waveform).
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from pathlib import Path

import arviz as az
import jax
import numpy as np
import numpyro
from shared import seconds_of, training_and_held_out
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from bmsvm import PAPER, BMSVMClassifier, BMSVMGibbs, Posterior, SquaresCV, run_chains
from bmsvm.kernels import median_distance

DATA = ("wine", "glass", "vehicle", "waveform")
HELD_OUT = 2000
PREDICTIVE_DRAWS = 1000
MODEL: dict = {"likelihood": "normalized", "hyperparameters": PAPER}


def run(problem, sweeps: int):
    """Compile, then four chains: compile seconds, run seconds and the run."""
    kernel, key = BMSVMGibbs(), jax.random.key(0)
    compiling, _ = seconds_of(lambda: run_chains(kernel, key, problem, num_warmup=1, num_samples=1))
    seconds, made = seconds_of(
        lambda: run_chains(kernel, key, problem, num_warmup=sweeps, num_samples=sweeps)
    )
    return compiling, seconds, made


def held_out_scores(made, X: np.ndarray, theta, new: np.ndarray, truth: np.ndarray) -> dict:
    """Log-loss and error at new rows; ``theta`` is None if it was sampled."""
    keep = max(1, 4 * made.num_samples // PREDICTIVE_DRAWS)
    samples = {name: draws[:, ::keep] for name, draws in made.samples.items()}
    probabilities = Posterior(samples, made.problem, X, lengthscale=theta).probabilities(new)
    losses = -np.log(probabilities[np.arange(len(truth)), truth])
    return {
        "log_loss": float(losses.mean()),
        "error": float(np.mean(probabilities.argmax(1) != truth)),
        "losses": losses.tolist(),
    }


def sampled_against_fixed(name: str, likelihood: str, sweeps: int):
    """R-hat and ESS of log theta and the time ratio; also the sampled run itself."""
    X, y, _, _ = training_and_held_out(name, HELD_OUT)
    sampled = BMSVMGibbs(lengthscale="sample", likelihood=likelihood, hyperparameters=PAPER)
    setting_up, problem = seconds_of(lambda: sampled.prepare(X, y))
    compiling, seconds, made = run(problem, sweeps)
    theta = np.log(made.samples["lengthscale"])
    fixed = BMSVMGibbs(
        lengthscale=float(np.exp(np.median(theta))), likelihood=likelihood, hyperparameters=PAPER
    )
    _, fixed_seconds, _ = run(fixed.prepare(X, y), sweeps)
    data = az.convert_to_dataset({"log_theta": theta})
    record = {
        "data": name,
        "likelihood": likelihood,
        "setup_seconds": setting_up,
        "compile_seconds": compiling,
        "sampled_seconds": seconds,
        "fixed_seconds": fixed_seconds,
        "ratio": seconds / fixed_seconds,
        "rhat": float(az.rhat(data)["log_theta"]),
        "ess": float(az.ess(data)["log_theta"]),
        "median_theta": float(np.exp(np.median(theta))),
        "theta_90": [float(value) for value in np.exp(np.quantile(theta, [0.05, 0.95]))],
    }
    print(
        f"{name:9} {likelihood:10} {setting_up:6.1f}s {compiling:6.1f}s {seconds:7.1f}s "
        f"{fixed_seconds:7.1f}s {record['ratio']:5.2f} {record['rhat']:6.3f} {record['ess']:6.0f} "
        f"{record['median_theta']:7.2f}  {record['theta_90'][0]:.2f} - {record['theta_90'][1]:.2f}",
        flush=True,
    )
    return record, made


def by_squares(X: np.ndarray, y: np.ndarray, n_jobs: int) -> tuple[float, dict]:
    """Theta under which least squares predict rows left out best."""
    return SquaresCV(max_rows=None).select(X, y, kernel="gaussian", **MODEL).lengthscale, {}


def by_folds(X: np.ndarray, y: np.ndarray, n_jobs: int) -> tuple[float, dict]:
    """Theta of the smallest log-loss in five folds, and the loss of each value."""
    model = BMSVMClassifier(
        num_warmup=200, num_samples=150, standardize=False, predictive="posterior", random_state=2,
        **MODEL,
    )  # fmt: skip
    grid = median_distance(X) * np.geomspace(1 / 8, 8, 13)
    folds = StratifiedKFold(5, shuffle=True, random_state=2)
    search = GridSearchCV(
        model, {"lengthscale": grid}, scoring="neg_log_loss", cv=folds, n_jobs=n_jobs, refit=False
    ).fit(X, y)
    found = search.cv_results_
    return float(search.best_params_["lengthscale"]), {
        "grid": grid.tolist(),
        "mean_log_loss": (-found["mean_test_score"]).tolist(),
        "standard_error": (found["std_test_score"] / np.sqrt(folds.n_splits - 1)).tolist(),
    }


def three_ways(name: str, sweeps: int, n_jobs: int) -> tuple[dict, list[dict]]:
    X, y, new, truth = training_and_held_out(name, HELD_OUT)
    record, made = sampled_against_fixed(name, MODEL["likelihood"], sweeps)
    records = [
        {
            "data": name,
            "way": "sample",
            "seconds": record["setup_seconds"] + record["compile_seconds"],
            "theta": record["median_theta"],
            **held_out_scores(made, X, None, new, truth),
        }
    ]
    for way, choose in (("squares-cv", by_squares), ("cv", by_folds)):
        jax.clear_caches()
        choosing, (theta, extra) = seconds_of(lambda choose=choose: choose(X, y, n_jobs))
        kernel = BMSVMGibbs(lengthscale=theta, **MODEL)
        _, _, made = run(kernel.prepare(X, y), sweeps)
        scores = held_out_scores(made, X, theta, new, truth)
        records.append(
            {"data": name, "way": way, "seconds": choosing, "theta": theta} | scores | extra
        )
    return record, records


def spread(records: list[dict]) -> str:
    """The largest log-loss over the smallest, and their difference with its error over rows."""
    best, *_, worst = sorted(records, key=lambda r: r["log_loss"])
    change = np.subtract(worst["losses"], best["losses"])
    return (
        f"largest log-loss over smallest {worst['log_loss'] / best['log_loss']:.3f} (<= 1.02): "
        f"{worst['way']} - {best['way']} = {change.mean():.4f} +- "
        f"{change.std(ddof=1) / np.sqrt(change.size):.4f} over {change.size} rows"
    )


def row(r: dict) -> str:
    return (
        f"{r['data']:9} {r['way']:20} {r['seconds']:7.1f}s {r['theta']:7.2f} "
        f"{r['log_loss']:8.4f} {r['error']:7.4f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(DATA))
    parser.add_argument("--sweeps", type=int, default=1000, help="warm-up and sampling, each")
    parser.add_argument("--jobs", type=int, default=-1, help="cross-validation's runs at a time")
    parser.add_argument("--mixing", action="store_true", help="the first table only")
    parser.add_argument("--no-hinge", action="store_true", help="leave the hinge out")
    parser.add_argument("--picture", type=Path, help="where to draw the curves")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/theta.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    numpyro.enable_x64()

    print(f"4 chains, {arguments.sweeps} + {arguments.sweeps} sweeps, float64.")
    print(
        f"{'data':9} {'likelihood':10} {'set-up':>7} {'compile':>7} {'sampled':>8} {'fixed':>8} "
        f"{'ratio':>5} {'R-hat':>6} {'ESS':>6} {'theta':>7}  90%"
    )
    mixing: list[dict] = []
    ways: list[dict] = []
    for name in arguments.data.split(","):
        if not arguments.no_hinge:
            mixing.append(sampled_against_fixed(name, "hinge", arguments.sweeps)[0])
            jax.clear_caches()
        if arguments.mixing:
            mixing.append(sampled_against_fixed(name, "normalized", arguments.sweeps)[0])
            jax.clear_caches()
            write(arguments.output, mixing, ways)
            continue
        record, three = three_ways(name, arguments.sweeps, arguments.jobs)
        mixing.append(record)
        ways += three
        for each in three:
            print("   ", row(each), flush=True)
        print("   ", spread(three), flush=True)
        write(arguments.output, mixing, ways)
        if arguments.picture:
            draw(arguments.picture, mixing, ways)
        jax.clear_caches()
    print("\nTargets: R-hat < 1.01, ESS > 400, ratio <= 5.")
    print(f"\n{'data':9} {'way':20} {'choose':>8} {'theta':>7} {'log-loss':>8} {'error':>7}")
    for each in ways:
        print(row(each))
    for name in dict.fromkeys(r["data"] for r in ways):
        print(f"{name:9} {spread([r for r in ways if r['data'] == name])}")
    print(f"\nWritten to {arguments.output}")


def draw(path: Path, mixing: list[dict], ways: list[dict]) -> None:
    """Each data set's cross-validation curves, with theta as the three ways found it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    of_way = {(r["data"], r["way"]): r for r in ways}
    names = list(dict.fromkeys(r["data"] for r in ways))
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.4 * len(names), 3.2), squeeze=False, layout="constrained"
    )
    for axis, name in zip(axes[0], names, strict=True):
        cv, squares = of_way[name, "cv"], of_way[name, "squares-cv"]
        sampled = next(r for r in mixing if (r["data"], r["likelihood"]) == (name, "normalized"))
        axis.errorbar(
            cv["grid"], cv["mean_log_loss"], cv["standard_error"], fmt="o-", markersize=3,
            color="#0072B2", label="five folds",
        )  # fmt: skip
        axis.axvspan(*sampled["theta_90"], color="0.85", label="posterior, 90%")
        axis.axvline(squares["theta"], color="#D55E00", label="least squares")
        axis.set(xscale="log", title=name, xlabel="theta")
    axes[0][0].set_ylabel("log-loss")
    axes[0][0].legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write(path: Path, mixing: list[dict], ways: list[dict]) -> None:
    versions = {"jax": jax.__version__, "numpyro": numpyro.__version__}
    report = {
        "versions": {**versions, "python": platform.python_version()},
        "sampled_against_fixed": mixing,
        "three_ways": ways,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
