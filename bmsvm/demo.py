"""Demonstration on the wine data: ``bmsvm demo``, ``make demo``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from bmsvm import plots
from bmsvm.classifier import BMSVMClassifier
from bmsvm.datasets import load_wine
from bmsvm.plots.style import class_style
from bmsvm.prediction.uncertainty import Uncertainty
from bmsvm.report import write_report
from bmsvm.summary import summarise_model


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
    output.mkdir(parents=True, exist_ok=True)
    data = load_wine()
    names = np.asarray(data.target_names)[data.target]
    train, y_train, test, y_test = data.data[::2], names[::2], data.data[1::2], names[1::2]
    print(f"Wine data: {len(train)} training rows, {len(test)} held-out rows, 3 classes.")
    print("Fitting, which takes up to half a minute ...", flush=True)
    began = time.perf_counter()
    model = BMSVMClassifier(num_warmup=num_warmup, num_samples=num_samples, random_state=0)
    model.fit(train, y_train)
    print(f"Fitted in {time.perf_counter() - began:.0f} s, compilation included.")
    summary = summarise_model(model)
    for name, value in summary.facts.items():
        print(f"  {name}: {value}")
    print(f"Convergence: {summary.verdict}.")

    found = model.predict_uncertainty(test)
    chances = found.probabilities
    error = float(np.mean(model.predict(test) != y_test))
    loss = float(log_loss(y_test, chances, labels=model.classes_))
    print(f"\nHeld-out rows: error {error:.3f}, log-loss {loss:.3f}. The three least certain:")
    for row in np.argsort(chances.max(1))[:3]:
        each = zip(model.classes_, chances[row], strict=True)
        shares = ", ".join(f"{name} {p:.2f}" for name, p in each)
        print(f"  row {row}: {shares}; true class {y_test[row]}")

    _plot(output / "demo.png", model, train, y_train, found, y_test)
    model.feature_names_in_ = np.array(data.feature_names, object)  # the report shows them
    write_report(model, output / "report.html", test, y_test)
    print(f"\nPicture: {output / 'demo.png'}, report: {output / 'report.html'}")
    r_hats = [each.r_hat for each in model.diagnostics_.values()]
    return {"error": error, "log_loss": loss, "max_rhat": max(r_hats, default=np.nan)}


def _plot(
    path: Path, model: Any, X: np.ndarray, y: np.ndarray, found: Uncertainty, y_test: np.ndarray
) -> None:
    """Draw the regions of the classes, and the probabilities of the held-out rows."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
    plots.decision_regions(model, X, y, ax=left)
    left.set(title="Decision regions, training rows")
    codes = np.searchsorted(model.classes_, y_test)
    own = np.arange(len(codes)), codes
    order = np.lexsort((found.probabilities[own], codes))
    mean, low, high = (each[own][order] for each in (found.probabilities, found.lower, found.upper))
    for number, name in enumerate(model.classes_):
        style, at = class_style(number), np.flatnonzero(codes[order] == number)
        right.vlines(at, low[at], high[at], color=style.colour, linewidth=3, alpha=0.35)
        right.plot(at, mean[at], style.marker, color=style.colour, markersize=4, label=name)
    right.axhline(0.5, color="0.6", linewidth=0.8, linestyle=":")
    right.set(title="Probability of the true class, held-out rows, 90% intervals")
    right.set(xlabel="row, ordered by true class", ylabel="probability", ylim=(-0.02, 1.02))
    right.legend(loc="lower right", fontsize=8, framealpha=1)
    figure.savefig(path, dpi=110)
