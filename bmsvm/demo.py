"""The main job on shipped data: ``python -m bmsvm.demo [--output DIR]``.

Fits the wine data, says whether the chains have converged, predicts rows held out, and draws
what it found.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import arviz as az
import jax
import numpy as np
import numpyro
from jax.typing import ArrayLike
from numpyro.infer import MCMC
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from bmsvm import BMSVMGibbs, kernels
from bmsvm.datasets import load_wine
from bmsvm.diagnostics import to_arviz
from bmsvm.inference.predict import class_probabilities, features_at

LENGTHSCALE = 3.5
"""The paper's choice for wine."""


def run_demo(output: Path, *, num_warmup: int = 1000, num_samples: int = 1000) -> dict[str, float]:
    """Fit, diagnose, predict and plot; return the numbers that were printed.

    Parameters
    ----------
    output
        Directory for ``demo.png``; made if it does not exist.
    num_warmup, num_samples
        Sweeps of each of the four chains.
    """
    data = load_wine()
    train, test, y_train, y_test = train_test_split(
        data.data, data.target, train_size=120, random_state=0, stratify=data.target
    )
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)

    print(f"Wine: {len(train)} rows to learn from, {len(test)} held out, 3 classes.")
    sampler = BMSVMGibbs(lengthscale=LENGTHSCALE, likelihood="normalized")
    mcmc = MCMC(
        sampler,
        num_warmup=num_warmup,
        num_samples=num_samples,
        num_chains=4,
        chain_method="vectorized",
    )
    began = time.perf_counter()
    mcmc.run(jax.random.key(0), train, y_train, extra_fields=("accept_prob",))
    draws = jax.block_until_ready(mcmc.get_samples())
    seconds = time.perf_counter() - began
    print(
        f"4 chains of {num_warmup} + {num_samples} sweeps in {seconds:.1f} s, compiling included."
    )

    summary = az.summary(to_arviz(mcmc), var_names=["noise_variance", "precision"])
    print("\nIs it converged? R-hat should be below 1.01, the effective sizes above 400.")
    print(summary.to_string())

    problem = sampler.prepare(train, y_train)
    features = features_at(kernels.gaussian(LENGTHSCALE), test, train, problem.factor)
    probabilities = np.asarray(class_probabilities(jax.random.key(1), draws, features, problem))
    predictive = probabilities.mean(0)
    error = float(np.mean(predictive.argmax(1) != y_test))
    loss = float(log_loss(y_test, predictive, labels=np.arange(3)))
    print(f"\nHeld-out rows: error {error:.3f}, log-loss {loss:.3f}.")
    print("The three least certain:")
    for row in np.argsort(predictive.max(1))[:3]:
        chances = ", ".join(
            f"{name} {p:.2f}" for name, p in zip(data.target_names, predictive[row], strict=True)
        )
        print(f"  row {row}: {chances}; in truth {data.target_names[y_test[row]]}")

    output.mkdir(parents=True, exist_ok=True)
    path = output / "demo.png"
    _plot(path, mcmc.get_samples(True)["precision"], probabilities, y_test, list(data.target_names))
    print(f"\nPicture: {path}")
    return {
        "error": error,
        "log_loss": loss,
        "max_rhat": float(summary["r_hat"].astype(float).max()),
    }


def _plot(
    path: Path,
    precision: ArrayLike,
    probabilities: np.ndarray,
    truth: np.ndarray,
    names: list[str],
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10, 3.6), width_ratios=(1, 1.6), layout="constrained"
    )
    for chain in np.log(np.asarray(precision)):
        left.plot(chain, linewidth=0.5, alpha=0.7)
    left.set(title="log precision, four chains", xlabel="draw", ylabel="log tau")

    order = np.lexsort((probabilities.mean(0).max(1), truth))
    for cls, (name, colour) in enumerate(
        zip(names, ("#0072B2", "#E69F00", "#009E73"), strict=True)
    ):
        ordered = probabilities[:, order, cls]
        low, high = np.quantile(ordered, (0.05, 0.95), axis=0)
        at = np.arange(len(order)) + 0.25 * (cls - 1)
        right.vlines(at, low, high, color=colour, linewidth=1.2, alpha=0.6)
        right.plot(at, ordered.mean(0), "os^"[cls], color=colour, markersize=3, label=name)
    for edge in np.flatnonzero(np.diff(truth[order])) + 0.5:
        right.axvline(edge, color="0.8", linewidth=1)
    right.set(
        title="Held-out rows: predictive probabilities, 90% of the draws",
        xlabel="row, ordered by its true class",
        ylabel="probability",
        ylim=(-0.02, 1.02),
    )
    right.legend(loc="center right", fontsize=8)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(
        description="Fit, diagnose, predict and plot on the wine data."
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where to write")
    arguments = parser.parse_args()
    numpyro.enable_x64()
    run_demo(arguments.output)


if __name__ == "__main__":
    main()
