"""Draw the plots of the tutorial: ``python docs/gallery.py``, which takes some minutes."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from bmsvm import BMSVMClassifier, MSVMClassifier, datasets, plots

TARGET = Path(__file__).parent / "images" / "plots.png"

PADS = {
    **dict.fromkeys(("margins", "reliability", "rejection", "lengthscale", "regularization"), 28),
    "trace": 44,
}
"""Space of titles above a legend of one line, or two."""


def draw(target: Path = TARGET) -> None:
    """Fit every second wine, and draw the model and its predictions of the others."""
    X, y = datasets.load_wine(return_X_y=True)
    X, y, X_new, y_new = X[::2], y[::2], X[1::2], y[1::2]
    model = BMSVMClassifier(lengthscale="sample", random_state=0).fit(X, y)
    chances = model.predict_proba(X_new)
    machine = MSVMClassifier(lengthscale=model.lengthscale_, gamma="cv").fit(X, y)
    figure, axes = plt.subplots(3, 3, figsize=(15, 12.5), layout="constrained")
    for ax, plot, title in zip(
        axes.flat,
        (
            lambda ax: plots.decision_regions(model, X, y, ax=ax),
            lambda ax: plots.margins(model, ax=ax),
            lambda ax: plots.ternary(chances, y_new, ax=ax),
            lambda ax: plots.reliability(chances, y_new, ax=ax),
            lambda ax: plots.confusion(model, X_new, y_new, ax=ax),
            lambda ax: plots.rejection(chances, y_new, ax=ax),
            lambda ax: plots.lengthscale(model, ax=ax),
            lambda ax: plots.regularization(model, gamma=machine.gamma_, ax=ax),
            lambda ax: plots.trace(model, ax=ax),
        ),
        (
            *("decision_regions", "margins", "ternary", "reliability", "confusion", "rejection"),
            *("lengthscale", "regularization", "trace"),
        ),
        strict=True,
    ):
        plot(ax)
        ax.set_title(title, family="monospace", pad=PADS.get(title, 8))
    figure.savefig(target, dpi=75)


if __name__ == "__main__":
    draw()
