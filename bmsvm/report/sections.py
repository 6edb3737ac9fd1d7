"""Sections of a report, each a function of the model."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from bmsvm import plots
from bmsvm._html import escaped, named
from bmsvm._version import __version__
from bmsvm.estimators import BMSVMClassifier
from bmsvm.estimators.convergence import (
    FEWEST_DRAWS,
    LARGEST_R_HAT,
    SMALLEST_ESS,
    advice,
)
from bmsvm.estimators.summary import Lengthscale, Summary
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.inference.evidence import EvidenceMaximum
from bmsvm.plots.confusion import MOST_CLASSES
from bmsvm.plots.margins import MOST_CLASSES as MOST_MARGINS
from bmsvm.report.evaluation import LEVEL, Evaluation
from bmsvm.report.figures import figure_html
from bmsvm.report.page import figures, section, table

__all__ = ["classes", "convergence", "head", "learned", "quality", "settings", "worst"]

WORST_ROWS = 12
WORST_QUANTITIES = 8
DRAWN_ROWS = 1000
RESOLUTION = 48

LONGEST_ADVICE = 1000
"""Letters of the advice, in which names of classes can be long."""


def head(title: str, summary: Summary, model: BMSVMClassifier) -> str:
    """Title and verdict."""
    good = bool(summary.converged)
    mark = "✓" if good else "✗"
    remedy = advice(
        model.diagnostics_, num_warmup=summary.num_warmup, num_samples=summary.num_samples
    )
    said = _evidence(summary)
    if remedy is not None:  # the verdict is not said twice
        said = "of what is watched, " + remedy.removeprefix("the chains have not converged: ")
    return (
        f"<h1>{escaped(title)}</h1>"
        f'<p class="verdict{" good" if good else ""}"><strong>{mark} '
        f"{escaped(summary.verdict[0].upper() + summary.verdict[1:])}.</strong> "
        f"{_sentence(said)}</p>"
    )


def _sentence(text: str) -> str:
    return f"{escaped(text[:1].upper() + text[1:], LONGEST_ADVICE)}." if text else ""


def _evidence(summary: Summary) -> str:
    if summary.r_hat is None or summary.ess is None:
        return ""
    return (
        f"the largest R-hat is {summary.r_hat.value:.3f} (at most {LARGEST_R_HAT}), the smallest "
        f"effective sample size {summary.ess.value:.0f} (at least {SMALLEST_ESS:.0f})"
    )


def settings(model: BMSVMClassifier, summary: Summary) -> str:
    """Say what was run."""
    facts = {
        "Model": ", ".join(f"{key} {value}" for key, value in summary.model.items()),
        "Data": f"{summary.num_rows} rows, {summary.num_features} features, "
        f"{len(summary.classes)} classes",
        "Chains": summary.sampling,
        "Lengthscale": _lengthscale(model, summary),
        "Seed": model.seed_,
        "Version": f"bmsvm {__version__}",
    }
    parameters = [
        (escaped(name), escaped(repr(value)))
        for name, value in sorted(model.get_params(deep=False).items())
    ]
    return section(
        "The run",
        table([], [(escaped(k), escaped(v)) for k, v in facts.items() if v is not None]),
        "<details><summary>All settings</summary>",
        table([], parameters),
        "</details>",
    )


def _lengthscale(model: BMSVMClassifier, summary: Summary) -> str | None:
    found = model.run_.sampler.lengthscale_selection
    if summary.lengthscale is None:
        return None
    if isinstance(summary.lengthscale, Lengthscale):
        how = "sampled"
    elif found is None:
        how = "given"
    else:
        how = "by evidence" if isinstance(found, EvidenceMaximum) else "by cross-validation"
    return f"{summary.lengthscale_text} ({how})"


def convergence(model: BMSVMClassifier, summary: Summary) -> str:
    """Whether the chains agree."""
    found = sorted(model.diagnostics_.items(), key=lambda item: -item[1].r_hat)
    said = (
        f"The {min(len(found), WORST_QUANTITIES)} worst of {len(found)} quantities that are "
        f"watched. R-hat should be at most {LARGEST_R_HAT}, the effective sample size at least "
        f"{SMALLEST_ESS:.0f}."
        if found
        else f"Fewer than {FEWEST_DRAWS} draws of each chain say nothing."
    )
    rows = [
        (named(name), f"{each.r_hat:.3f}", f"{each.ess:.0f}")
        for name, each in found[:WORST_QUANTITIES]
    ]
    traced = [
        figure_html(
            functools.partial(_trace, model, name),
            alt=f"Each chain of {name} over its draws",
            caption=f"{name}: chains that have converged cover the same range.",
            size=(5.2, 2.6),
        )
        for name in ("precision", "noise_variance", "lengthscale")
        if name in model.run_.samples
    ]
    return section(
        "Have the chains converged?",
        f"<p>{escaped(said)}</p>",
        table(["Quantity", "R-hat", "Effective draws"], rows, numbers=(1, 2)) if rows else "",
        f"<p>{escaped(text)}</p>" if (text := _acceptance(model)) else "",
        figures(*traced),
    )


def _trace(model: BMSVMClassifier, name: str, ax: Any) -> None:
    plots.trace(model, name, ax=ax)


def _acceptance(model: BMSVMClassifier) -> str:
    samples, said = model.run_.samples, []
    if "accept_prob" in samples:
        said.append(
            f"Moves of the scores were accepted at a rate of {_mean(samples, 'accept_prob')}"
        )
        if np.any(samples["num_steps"] > 0):
            said.append(
                f"{samples['num_steps'].mean():.0f} steps of {samples['step_size'].mean():.2g}"
            )
    if "lengthscale_accept_prob" in samples:
        said.append(f"those of theta at {_mean(samples, 'lengthscale_accept_prob')}")
    return ", ".join(said) + "." if said else ""


def _mean(samples: Mapping[str, np.ndarray], name: str) -> str:
    return f"{samples[name].mean():.2f}"


def learned(model: BMSVMClassifier, training: tuple[np.ndarray, np.ndarray] | None) -> str:
    """Pictures of the posterior and of the training rows."""
    drawn = [
        figure_html(
            lambda ax: plots.regularization(model, ax=ax),
            alt="Histogram of the posterior of tau over sigma squared",
            caption="The posterior of the regularisation, tau / sigma2.",
        )
    ]
    theta = np.asarray(model.lengthscale_)
    has_theta = theta.size == 1 and "lengthscale" in model.run_.samples
    chosen = isinstance(model.run_.sampler.lengthscale_selection, CrossValidation)
    if has_theta or (chosen and theta.size == 1):
        drawn.append(
            figure_html(
                lambda ax: plots.lengthscale(model, ax=ax),
                alt="The lengthscale, and the loss of its cross-validation where there was one",
                caption="The lengthscale theta.",
            )
        )
    if len(model.classes_) <= MOST_MARGINS:
        drawn.append(
            figure_html(
                lambda ax: plots.margins(model, ax=ax),
                alt="Mean scores of the training rows for each class, with the hinge",
                caption="Mean scores of the training rows. Rows of other classes cost "
                "something right of the hinge.",
            )
        )
    if training is not None and model.n_features_in_ >= 2:
        count = len(training[0])
        X, y = (each[_some(count)] for each in training)
        drawn.append(
            figure_html(
                lambda ax: plots.decision_regions(model, X, y, resolution=RESOLUTION, ax=ax),
                alt="Regions of the classes in a plane, with training rows",
                caption="Regions of the classes, paler where the predictive entropy is larger; "
                f"dotted where it is half of the most. {_shown(len(y), count)}",
                on_light=True,
            )
        )
    return section("What was learned", figures(*drawn))


def _some(count: int) -> np.ndarray:
    """Places of rows to draw: all, or as many as can be told apart, evenly spread."""
    return np.unique(np.linspace(0, count - 1, min(count, DRAWN_ROWS)).astype(int))


def _shown(drawn: int, count: int) -> str:
    return f"{drawn} of {count} rows are drawn." if drawn < count else ""


def _which(found: Evaluation) -> str:
    return "training rows" if found.seen else "held-out rows"


def classes(summary: Summary, model: BMSVMClassifier, found: Evaluation | None) -> str:
    """Each class: how often it is there, and how well it is known."""
    heads = ["Class", "Training rows", "Share"]
    if found is not None:
        heads += ["Rows here", "Right", "Mean probability", "Most often taken for"]
    rows = []
    for number, (name, count) in enumerate(summary.classes):
        cells = [named(name), str(count), f"{count / summary.num_rows:.1%}"]
        if found is not None:
            cells += _of_class(number, model.classes_, found)
        rows.append(cells)
    said = (
        f"<p>Right, and the mean probability of the class, are of its {_which(found)}"
        f"{', whose labels the model has seen' if found.seen else ''}.</p>"
        if found is not None
        else ""
    )
    return section("Classes", said, table(heads, rows, numbers=(1, 2, 3, 4, 5)))


def _of_class(number: int, names: np.ndarray, found: Evaluation) -> list[str]:
    mine = found.codes == number
    count = int(mine.sum())
    if not count:
        return ["0", "–", "–", "–"]
    others = np.bincount(found.predicted[mine], minlength=len(names))
    right, others[number] = int(others[number]), 0
    mistaken = int(others.argmax())
    taken = f"{named(names[mistaken])} ({others[mistaken]})" if others[mistaken] else "–"
    return [str(count), f"{right / count:.1%}", f"{found.own[mine].mean():.2f}", taken]


def quality(model: BMSVMClassifier, found: Evaluation | None) -> str:
    """How good the predictions are."""
    if found is None:
        return ""
    c = len(model.classes_)
    drawn = []
    if not found.seen:
        chances, y, names = found.probabilities, found.y, model.classes_
        drawn += [
            figure_html(
                lambda ax: plots.reliability(chances, y, classes=names, level=LEVEL, ax=ax),
                alt="Share of predictions that came true against their probability",
                caption="Calibration: predictions of a probability should come true as often. "
                "Above each bin, its rows.",
            ),
            figure_html(
                lambda ax: plots.rejection(chances, y, classes=names, level=LEVEL, ax=ax),
                alt="Accuracy of the rest against the share of rows rejected",
                caption="What abstaining from the least certain rows buys.",
            ),
        ]
    if c <= MOST_CLASSES:
        side = min(max(3.7, 1.6 + 0.55 * c), 9.0)
        drawn.append(
            figure_html(
                lambda ax: plots.confusion(model, found.X, found.y, level=LEVEL, ax=ax),
                alt="Confusion matrix",
                caption=f"Confusion of {_which(found)}: the count, and the range of {LEVEL:.0%} "
                "of the posterior draws.",
                size=(max(5.2, side + 0.6), side),
            )
        )
    if c == 3:
        some = _some(len(found.codes))
        drawn.append(
            figure_html(
                lambda ax: plots.ternary(
                    found.probabilities[some], found.y[some], classes=model.classes_, ax=ax
                ),
                alt="Probabilities of three classes in a triangle",
                caption=f"Probabilities of {_which(found)}. {_shown(len(some), len(found.codes))}",
            )
        )
    if found.seen:
        said = (
            "No held-out rows were given, and predictions of training rows flatter the model: "
            "report(path, X, y) with rows it has not seen judges it."
        )
        return section(
            "Predictions of the training rows", f"<p>{escaped(said)}</p>", figures(*drawn)
        )
    rows = [
        (
            escaped(score.name),
            f"{score.value:.3f}",
            "" if np.isnan(score.lower) else f"{score.lower:.3f} – {score.upper:.3f}",
        )
        for score in found.scores()
    ]
    return section(
        "Predictions of held-out rows",
        f"<p>{len(found.codes)} rows.</p>",
        table(["Score", "Value", f"{LEVEL:.0%} interval"], rows, numbers=(1, 2)),
        figures(*drawn),
    )


def worst(model: BMSVMClassifier, found: Evaluation | None) -> str:
    """Rows that were predicted worst."""
    if found is None:
        return ""
    names = model.classes_
    rows = []
    for row in found.worst(WORST_ROWS):
        guess = found.predicted[row]
        rows.append(
            (
                named(found.rows[row]),
                named(names[found.codes[row]]),
                f"{found.own[row]:.3f}",
                named(names[guess]),
                f"{found.probabilities[row, guess]:.3f}",
                f"{found.epistemic[row]:.3f}",
            )
        )
    heads = ["Row", "In truth", "Its probability", "Predicted", "Its probability", "Epistemic"]
    said = (
        f"The {len(rows)} {_which(found)} whose label was given the least probability. Epistemic "
        "is what more data could tell, in nats."
    )
    return section(
        "Worst predicted", f"<p>{escaped(said)}</p>", table(heads, rows, numbers=(2, 4, 5))
    )
