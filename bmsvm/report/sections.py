"""Sections of a report, each a function of the fitted model."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bmsvm import plots
from bmsvm._version import __version__
from bmsvm.convergence import SMALLEST_ESS
from bmsvm.plots.confusion import MOST_CLASSES
from bmsvm.plots.margins import MOST_CLASSES as MOST_MARGINS
from bmsvm.report.evaluation import LEVEL, Evaluation
from bmsvm.report.figures import Figure, figure
from bmsvm.summary import Summary, shown

__all__ = ["Section", "Table", "build_sections"]

WORST_ROWS = 12
WORST_QUANTITIES = 8
DRAWN_ROWS = 1000
RESOLUTION = 48
LONGEST_NAME = 80


class Table(NamedTuple):
    """A table: its heading, its rows, and the columns that hold numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()


class Section(NamedTuple):
    """A part of the page: a heading, paragraphs, a table, a folded table, figures."""

    title: str
    texts: Sequence[str] = ()
    table: Table | None = None
    details: Table | None = None
    figures: Sequence[Figure] = ()


def build_sections(
    model: Any,
    summary: Summary,
    training: tuple[np.ndarray, np.ndarray] | None,
    found: Evaluation | None,
) -> list[Section]:
    """Return the sections of a page.

    Parameters
    ----------
    model
        A fitted classifier.
    summary
        Its summary.
    training
        Training rows (n, p) and labels (n,), unless they are a Gram matrix.
    found
        Predictions of labelled rows, if there are any.
    """
    parts = [
        _settings(model, summary),
        _convergence(model, summary),
        Section("Posterior", figures=_posterior_figures(model, training)),
        _classes(summary, found),
    ]
    return parts if found is None else [*parts, _predictions(model, found), _worst(model, found)]


def _settings(model: Any, summary: Summary) -> Section:
    facts = {**summary.facts, "Seed": model.seed_, "Version": f"bmsvm {__version__}"}
    parameters = model.get_params(deep=False)
    return Section(
        "Model",
        table=Table((), [(name, shown(value)) for name, value in facts.items()]),
        details=Table((), [(name, shown(repr(parameters[name]))) for name in sorted(parameters)]),
    )


def _convergence(model: Any, summary: Summary) -> Section:
    """Return the worst quantities, the acceptance rates, and traces."""
    found = sorted(model.diagnostics_.items(), key=lambda item: -item[1].r_hat)
    rows = [
        (shown(name, LONGEST_NAME), f"{each.r_hat:.3f}", f"{each.ess:.0f}")
        for name, each in found[:WORST_QUANTITIES]
    ]
    texts = [
        f"The {len(rows)} largest R-hat of {len(found)} watched quantities. R-hat should be at "
        f"most {summary.r_hat_limit:.2f}, the effective sample size (ESS) at least "
        f"{SMALLEST_ESS:.0f}."
        if found
        else "Too few draws for R-hat and the effective sample size."
    ]
    samples = model.posterior_.samples
    rates = {"scores": "accept_prob"}
    if "lengthscale" in samples:
        rates["theta"] = "lengthscale_accept_prob"
    for what, name in rates.items():
        if name in samples:
            texts.append(f"Mean acceptance rate, {what}: {np.mean(samples[name]):.2f}.")
    if "num_steps" in samples and np.any(samples["num_steps"] > 0):
        steps, size = (np.mean(samples[name]) for name in ("num_steps", "step_size"))
        texts.append(f"Mean number of Hamiltonian steps: {steps:.0f}, of size {size:.2g}.")
    traces = [
        figure(functools.partial(_trace, model, name), f"Trace of {name}.", size=(5.2, 2.6))
        for name in ("precision", "noise_variance", "lengthscale")
        if name in samples and samples[name].ndim == 2
    ]
    table = Table(("Quantity", "R-hat", "ESS"), rows, (1, 2)) if rows else None
    return Section("Convergence", texts, table, figures=traces)


def _trace(model: Any, name: str, ax: Any) -> None:
    plots.trace(model, name, ax=ax)


def _posterior_figures(model: Any, training: tuple[np.ndarray, np.ndarray] | None) -> list[Figure]:
    drawn = [
        figure(
            lambda ax: plots.regularization(model, ax=ax),
            "Posterior of the regularisation tau / sigma2.",
        )
    ]
    if "lengthscale" in model.posterior_.samples and np.size(model.lengthscale_) == 1:
        drawn.append(figure(lambda ax: plots.lengthscale(model, ax=ax), "Lengthscale theta."))
    if len(model.classes_) <= MOST_MARGINS:
        caption = (
            "Mean scores of the training rows. Scores for other classes are penalised right of "
            "the hinge."
        )
        drawn.append(figure(lambda ax: plots.margins(model, ax=ax), caption))
    if training is not None and model.n_features_in_ >= 2:
        X, y = (each[_some(len(each))] for each in training)
        drawn.append(
            figure(
                lambda ax: plots.decision_regions(model, X, y, resolution=RESOLUTION, ax=ax),
                "Most probable class, paler where the predictive entropy is larger, with "
                f"{len(y)} of {len(training[1])} training rows.",
            )
        )
    return drawn


def _some(count: int) -> np.ndarray:
    """Return the indices of at most DRAWN_ROWS rows, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))


def _classes(summary: Summary, found: Evaluation | None) -> Section:
    """Return the size of each class, and how well it is predicted."""
    total = sum(count for _, count in summary.classes)
    names = [shown(name, LONGEST_NAME) for name, _ in summary.classes]
    head = ["Class", "Training rows", "Share"]
    rows = [
        [name, str(count), f"{count / total:.1%}"]
        for name, (_, count) in zip(names, summary.classes, strict=True)
    ]
    if found is None:
        return Section("Classes", table=Table(head, rows, (1, 2)))
    head += ["Rows", "Accuracy", "Mean probability", "Most frequent error", "Its rows"]
    for number, row in enumerate(rows):
        mine = found.codes == number
        count, errors = int(mine.sum()), np.bincount(found.predicted[mine], minlength=len(names))
        right, errors[number] = errors[number], 0
        row += [str(count)]
        row += [f"{right / count:.1%}", f"{found.own[mine].mean():.2f}"] if count else ["–", "–"]
        worst = int(errors.argmax())
        row += [names[worst], str(errors[worst])] if errors[worst] else ["–", "–"]
    text = f"Accuracy and mean probability of the true class are of the {_which(found)}."
    return Section("Classes", [text], Table(head, rows, (1, 2, 3, 4, 5, 7)))


def _which(found: Evaluation) -> str:
    return "training rows, whose labels the model has seen" if found.seen else "held-out rows"


def _predictions(model: Any, found: Evaluation) -> Section:
    """Return scores and plots of the predictions; no scores of the training rows."""
    drawn = _prediction_figures(model, found)
    if found.seen:
        text = (
            "Predictions of training rows are too optimistic. For scores, give held-out rows and "
            "their labels to write_report."
        )
        return Section("Predictions of training rows", [text], figures=drawn)
    rows = [
        (
            score.name,
            f"{score.value:.3f}",
            "" if np.isnan(score.lower) else f"{score.lower:.3f} – {score.upper:.3f}",
        )
        for score in found.scores()
    ]
    table = Table(("Score", "Value", f"{LEVEL:.0%} interval"), rows, (1, 2))
    text = f"{len(found.codes)} rows."
    return Section("Predictions of held-out rows", [text], table, figures=drawn)


def _prediction_figures(model: Any, found: Evaluation) -> list[Figure]:
    drawn: list[Figure] = []
    chances, y, names = found.probabilities, found.y, model.classes_
    if not found.seen:
        drawn += [
            figure(
                lambda ax: plots.reliability(chances, y, classes=names, level=LEVEL, ax=ax),
                "Calibration of the most probable class, with the number of rows of each bin.",
            ),
            figure(
                lambda ax: plots.rejection(chances, y, classes=names, level=LEVEL, ax=ax),
                "Accuracy if the least certain rows are rejected.",
            ),
        ]
    if len(names) <= MOST_CLASSES:
        side = min(max(3.7, 1.6 + 0.55 * len(names)), 9.0)
        drawn.append(
            figure(
                lambda ax: plots.confusion(model, found.X, y, level=LEVEL, ax=ax),
                f"Confusion matrix, with {LEVEL:.0%} posterior intervals of the counts.",
                size=(max(5.2, side + 0.6), side),
            )
        )
    if len(names) == 3:
        some = _some(len(y))
        drawn.append(
            figure(
                lambda ax: plots.ternary(chances[some], y[some], classes=names, ax=ax),
                f"Probabilities of {len(some)} of {len(y)} rows.",
            )
        )
    return drawn


def _worst(model: Any, found: Evaluation) -> Section:
    head = ("Row", "True class", "Its probability", "Predicted", "Its probability", "Epistemic")
    names = [shown(name, LONGEST_NAME) for name in model.classes_]
    rows = [
        (
            shown(found.rows[row], LONGEST_NAME),
            names[found.codes[row]],
            f"{found.own[row]:.3f}",
            names[found.predicted[row]],
            f"{found.probabilities[row, found.predicted[row]]:.3f}",
            f"{found.epistemic[row]:.3f}",
        )
        for row in found.worst(WORST_ROWS)
    ]
    text = (
        f"{len(rows)} {_which(found)}, with the smallest probability of the true class. "
        "Epistemic uncertainty is in nats."
    )
    return Section("Worst predictions", [text], Table(head, rows, (2, 4, 5)))
