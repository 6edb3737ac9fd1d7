"""Sections of a report about predictions: scores, classes, and doubt."""

from __future__ import annotations

from typing import Any

import numpy as np

from bmsvm import plots
from bmsvm.plots.confusion import MOST_CLASSES, MOST_INTERVALS
from bmsvm.report.evaluation import LEVEL, Evaluation, Score
from bmsvm.report.figures import Figure, figure
from bmsvm.report.parts import LONGEST_NAME, Card, Section, Table, some
from bmsvm.summary import Summary, shown

WORST_ROWS = 12
"""Number of rows in the table of the worst predicted."""


def scores(model: Any, summary: Summary, found: Evaluation) -> Section:
    """Return scores and calibration of held-out rows; no scores of the training rows."""
    if found.seen:
        text = (
            "Predictions of training rows are too optimistic to be scored. For error, log-loss and "
            "calibration give held-out rows and their labels: write_report(model, path, X, y), or "
            "bmsvm report --held-out."
        )
        return Section("Predictions of training rows", texts=[text])
    sizes = np.array([count for _, count in summary.classes])
    cards = [_card(score) for score in found.scores(sizes / sizes.sum())]
    text = (
        f"{len(found.codes)} held-out rows, of which {int(found.wrong.sum())} are predicted "
        f"wrongly. Intervals have probability {LEVEL:.0%}. The baseline predicts the classes' "
        "shares of the training rows for every row."
    )
    drawn = figure(
        lambda ax: plots.reliability(
            found.probabilities, found.y, classes=model.classes_, level=LEVEL, ax=ax
        ),
        "Calibration: of the rows whose predicted class has a probability in a bin, the share that "
        "is of that class; above each bin its number of rows.",
    )
    return Section("Predictions of held-out rows", cards, [text], figures=[drawn])


def _card(score: Score) -> Card:
    def written(value: float) -> str:
        return f"{value:.1%}" if score.name == "Error" else f"{value:.3f}"

    notes = []
    if not np.isnan(score.lower):
        notes.append(f"{LEVEL:.0%} interval {written(score.lower)} to {written(score.upper)}")
    if not np.isnan(score.baseline):
        notes.append(f"baseline {written(score.baseline)}")
    if not notes:
        notes = ["mean difference of probability and observed share"]
    return Card(score.name, written(score.value), notes)


def classes(model: Any, summary: Summary, found: Evaluation | None) -> Section:
    """Return the size of each class, how well it is predicted, and the confusion matrix."""
    total = sum(count for _, count in summary.classes)
    names = [shown(name, LONGEST_NAME) for name, _ in summary.classes]
    head = ["Class", "Training rows", "Share"]
    rows = [
        [name, str(count), f"{count / total:.1%}"]
        for name, (_, count) in zip(names, summary.classes, strict=True)
    ]
    if found is None:
        return Section("Classes", table=Table(head, rows, (1, 2)))
    which = "training rows" if found.seen else "held-out rows"
    if not found.seen:
        head += ["Held-out rows"]
    head += ["Correct", "Mean probability", "Most often mistaken for", "Rows mistaken so"]
    for number, row in enumerate(rows):
        mine = found.codes == number
        count, errors = int(mine.sum()), np.bincount(found.predicted[mine], minlength=len(names))
        right, errors[number] = errors[number], 0
        row += [] if found.seen else [str(count)]
        row += [f"{right / count:.1%}", f"{found.own[mine].mean():.2f}"] if count else ["–", "–"]
        worst = int(errors.argmax())
        row += [names[worst], str(errors[worst])] if errors[worst] else ["–", "–"]
    text = (
        "How often a class is predicted correctly, and the mean probability of the true class, are "
        f"those of the {which}{', whose labels the model has seen' if found.seen else ''}."
    )
    wordy = head.index("Most often mistaken for")
    numbers = [column for column in range(1, len(head)) if column != wordy]
    return Section(
        "Classes", texts=[text], table=Table(head, rows, numbers), figures=_confusion(model, found)
    )


def _confusion(model: Any, found: Evaluation) -> list[Figure]:
    c = len(model.classes_)
    if c > MOST_CLASSES:
        return []
    side = max(3.7, 1.6 + (0.55 if c <= MOST_INTERVALS else 0.3) * c)
    counts = f", with {LEVEL:.0%} posterior intervals of the counts" if c <= MOST_INTERVALS else ""
    return [
        figure(
            lambda ax: plots.confusion(model, found.X, found.y, level=LEVEL, ax=ax),
            f"Confusion matrix{counts}. Cells are shaded by their share of the true class.",
            size=(max(5.2, side + 0.6), side),
        )
    ]


def doubt(model: Any, found: Evaluation) -> Section:
    """Return how uncertain the predictions are, and the rows that are predicted worst."""
    total, ignorance = found.entropy.mean(), found.epistemic.mean()
    texts = [
        f"The mean entropy of the predictions is {total:.3f} nats (at most "
        f"{np.log(len(model.classes_)):.3f}), of which {ignorance:.3f} is epistemic: more data "
        "would reduce it. The rest is chance.",
        _about_worst(found),
    ]
    drawn: list[Figure] = []
    chances, y, names = found.probabilities, found.y, model.classes_
    if not found.seen:
        drawn.append(
            figure(
                lambda ax: plots.rejection(chances, y, classes=names, level=LEVEL, ax=ax),
                "Accuracy if the least certain rows are rejected.",
            )
        )
    if len(names) == 3:
        which = some(len(y))
        rows = f"{len(y)} rows" if len(which) == len(y) else f"{len(which)} of {len(y)} rows"
        drawn.append(
            figure(
                lambda ax: plots.ternary(chances[which], y[which], classes=names, ax=ax),
                f"Probabilities of {rows}: a corner is certainty.",
            )
        )
    return Section("Uncertainty", texts=texts, table=_worst(model, found), figures=drawn)


def _about_worst(found: Evaluation) -> str:
    count, wrong = min(WORST_ROWS, len(found.codes)), int(found.wrong.sum())
    which = "training rows, whose labels the model has seen" if found.seen else "held-out rows"
    return (
        f"Worst predicted: {count} of {len(found.codes)} {which}. Wrong predictions come first "
        f"({wrong} in all), each part with the smallest probability of the true class first."
    )


def _worst(model: Any, found: Evaluation) -> Table:
    head = (
        "Row",
        "Prediction",
        "True class",
        "Predicted class",
        "Probability of true class",
        "Probability of predicted class",
        "Epistemic uncertainty (nats)",
    )
    names = [shown(name, LONGEST_NAME) for name in model.classes_]
    rows = [
        (
            shown(found.rows[row], LONGEST_NAME),
            "✗ wrong" if found.wrong[row] else "✓ right",
            names[found.codes[row]],
            names[found.predicted[row]],
            f"{found.own[row]:.3f}",
            f"{found.probabilities[row, found.predicted[row]]:.3f}",
            f"{found.epistemic[row]:.3f}",
        )
        for row in found.worst(WORST_ROWS)
    ]
    return Table(head, rows, (4, 5, 6))
