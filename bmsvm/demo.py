"""The main job on shipped data: ``python -m bmsvm.demo [--output DIR]``.

Fits the wine data, says whether the chains have converged, predicts rows held out, and draws
what it found.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import arviz as az
import numpy as np
from sklearn.metrics import log_loss

from bmsvm import BMSVMClassifier, plots
from bmsvm.datasets import load_wine
from bmsvm.arviz import to_arviz
from bmsvm.inference.uncertainty import Uncertainty
from bmsvm.plots.style import class_style


def run_demo(
    output: Path, *, num_warmup: int | None = None, num_samples: int = 200
) -> dict[str, float]:
    """Fit, diagnose, predict and plot; return the numbers that were printed.

    Parameters
    ----------
    output
        Directory for ``demo.png`` and ``report.html``; made if it does not exist.
    num_warmup, num_samples
        As in :class:`bmsvm.BMSVMClassifier`.
    """
    data = load_wine()
    names = np.asarray(data.target_names)[data.target]
    train, y_train, test, y_test = data.data[::2], names[::2], data.data[1::2], names[1::2]
    print(f"Wine: {len(train)} rows to learn from, {len(test)} held out, 3 classes.")
    began = time.perf_counter()
    model = BMSVMClassifier(num_warmup=num_warmup, num_samples=num_samples, random_state=0)
    model.fit(train, y_train)
    seconds = time.perf_counter() - began
    print(f"Lengthscale {model.lengthscale_:.2f} by cross-validation; 4 chains of", end=" ")
    print(f"{num_samples} draws; {seconds:.0f} s in all, compiling included.")

    summary = az.summary(to_arviz(model), var_names=["noise_variance", "precision"])
    print("\nIs it converged? R-hat should be near 1, the effective sizes in the hundreds.")
    print(summary.to_string())

    known = model.predict_uncertainty(test)
    chances = known.probabilities
    error = float(np.mean(model.predict(test) != y_test))
    loss = float(log_loss(y_test, chances, labels=model.classes_))
    print(f"\nHeld-out rows: error {error:.3f}, log-loss {loss:.3f}.")
    print("The three least certain:")
    for row in np.argsort(chances.max(1))[:3]:
        each = zip(model.classes_, chances[row], strict=True)
        print(f"  row {row}: {', '.join(f'{name} {p:.2f}' for name, p in each)};", end=" ")
        print(f"in truth {y_test[row]}")

    output.mkdir(parents=True, exist_ok=True)
    _plot(output / "demo.png", model, train, y_train, known, y_test)
    model.report(output / "report.html", test, y_test)
    print(f"\nPicture: {output / 'demo.png'}, report: {output / 'report.html'}")
    return {
        "error": error,
        "log_loss": loss,
        "max_rhat": float(summary["r_hat"].astype(float).max()),
    }


def _plot(
    path: Path,
    model: BMSVMClassifier,
    train: np.ndarray,
    y_train: np.ndarray,
    known: Uncertainty,
    truth: np.ndarray,
) -> None:
    """Draw the regions of the classes, and the probabilities (m, c) of rows held out."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4), width_ratios=(1, 1.5), layout="constrained"
    )
    plots.decision_regions(model, train, y_train, ax=left)
    left.set(title="What was learned, in the plane of two components")

    codes = np.searchsorted(model.classes_, truth)
    own = np.arange(len(codes)), codes
    order = np.lexsort((known.probabilities[own], codes))
    middle, low, high = (
        each[own][order] for each in (known.probabilities, known.lower, known.upper)
    )
    for number, name in enumerate(model.classes_):
        style, at = class_style(number), np.flatnonzero(codes[order] == number)
        right.vlines(at, low[at], high[at], color=style.colour, linewidth=3, alpha=0.35)
        right.plot(at, middle[at], style.marker, color=style.colour, markersize=4, label=name)
    right.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    right.set(
        title="Rows held out: probability of the true class, 90% of the posterior",
        xlabel="row, by its true class",
        ylabel="probability",
        ylim=(-0.02, 1.02),
    )
    right.legend(loc="lower right", fontsize=8, framealpha=1)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run the demo from the command line."""
    parser = argparse.ArgumentParser(
        description="Fit, diagnose, predict and plot on the wine data."
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), help="where to write")
    run_demo(parser.parse_args().output)


if __name__ == "__main__":
    main()
