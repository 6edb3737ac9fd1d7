"""Sections of a report, each a function of the fitted model."""

from __future__ import annotations

import datetime
import functools
import platform
from importlib.metadata import version
from typing import Any

import numpy as np

from bmsvm import plots
from bmsvm._version import __version__
from bmsvm.convergence import SMALLEST_ESS
from bmsvm.models.likelihoods import margin_offset
from bmsvm.plots.margins import MOST_CLASSES as MOST_MARGINS
from bmsvm.plots.regions import MOST_INSIDE
from bmsvm.plots.style import COLOURS, LONGEST_LEGEND
from bmsvm.report import predicted
from bmsvm.report.evaluation import Evaluation
from bmsvm.report.figures import Figure, figure
from bmsvm.report.parts import LONGEST_NAME, Section, Table, some
from bmsvm.summary import Summary, about_precision, shown

WORST_QUANTITIES = 8
RESOLUTION = 48
PACKAGES = ("jax", "numpyro", "numpy", "scikit-learn")
MARGINS = {
    "hinge": "Scores for other classes are penalised right of the hinge.",
    "normalized": "Right of the hinge a larger score makes its class more probable.",
    "squared": "The likelihood draws scores to the codes: 1 for the own class, {other:.3g} for "
    "others.",
}
"""What scores mean, by likelihood."""

SCALARS = {
    "precision": "log tau, the precision of the weights",
    "noise_variance": "log sigma2, the noise variance of the scores",
    "lengthscale": "log theta, the lengthscale",
}


def build_sections(
    model: Any,
    summary: Summary,
    training: tuple[np.ndarray, np.ndarray] | None,
    found: Evaluation | None,
) -> list[Section]:
    """Return the sections of a page: predictions, classes, doubt, posterior, chains, settings.

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
    rest = [
        Section("Posterior", figures=_posterior_figures(model, training)),
        _draws(summary) if summary.independent else _chains(model, summary),
        _settings(model, summary),
    ]
    if found is None:
        return [predicted.classes(model, summary, None), *rest]
    return [
        predicted.scores(model, summary, found),
        predicted.classes(model, summary, found),
        predicted.doubt(model, found),
        *rest,
    ]


def model_facts(model: Any, summary: Summary) -> dict[str, str]:
    """Return the facts of a summary, and what is needed to fit the model again, by heading."""
    versions = {"bmsvm": __version__, "Python": platform.python_version()}
    versions |= {package: version(package) for package in PACKAGES}
    return {
        **summary.facts,
        "Seed": _seed(model),
        "Versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "Report written": today(),
        "Features": _features(model),
    }


def today() -> str:
    """Return the date."""
    return datetime.date.today().isoformat()


def _features(model: Any, most: int = 100) -> str:
    names = getattr(model, "feature_names_in_", None)
    if names is None:
        return f"{model.n_features_in_}, without names"
    more = ", …" if len(names) > most else ""
    return ", ".join(shown(name, LONGEST_NAME) for name in names[:most]) + more


def _seed(model: Any) -> str:
    """Return the seed that was given, or the one that was drawn."""
    if isinstance(model.random_state, int | np.integer):
        return f"{model.random_state}, as given"
    return f"none was given; the chains used {model.seed_}"


def _settings(model: Any, summary: Summary) -> Section:
    facts, parameters = model_facts(model, summary), model.get_params(deep=False)
    return Section(
        "Model",
        table=Table((), [(name, shown(value, 1000)) for name, value in facts.items()]),
        details=Table((), [(name, shown(repr(parameters[name]))) for name in sorted(parameters)]),
    )


def _draws(summary: Summary) -> Section:
    """Return what there is to say about independent draws."""
    text = (
        f"{summary.facts['Draws']}. They come from a table of the posterior. There are no chains, "
        "so nothing has to converge, and there is no R-hat, warm-up or trace."
    )
    return Section("Draws", texts=[text])


def _chains(model: Any, summary: Summary) -> Section:
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
        figure(
            functools.partial(_trace, model, name),
            f"Trace of {symbol}.{_held(model) if name == 'precision' else ''}",
            size=(5.2, 2.6),
        )
        for name, symbol in SCALARS.items()
        if name in samples and samples[name].ndim == 2
    ]
    table = Table(("Quantity", "R-hat", "ESS"), rows, (1, 2)) if rows else None
    return Section("Chains", texts=texts, table=table, figures=traces)


def _held(model: Any) -> str:
    """Return what a caption adds where the prior of tau holds it."""
    return " ".join(["", about_precision(model)]).rstrip()


def _trace(model: Any, name: str, ax: Any) -> None:
    plots.trace(model, name, ax=ax)


def _posterior_figures(model: Any, training: tuple[np.ndarray, np.ndarray] | None) -> list[Figure]:
    c, drawn = len(model.classes_), []
    if training is not None and model.n_features_in_ >= 2:
        X, y = (each[some(len(each))] for each in training)
        rows = f"the {len(y)}" if len(y) == len(training[1]) else f"{len(y)} of {len(training[1])}"
        again = " Colours are used several times, with other markers." if c > len(COLOURS) else ""
        beside = 0.0 if c <= MOST_INSIDE else 1.6 if c < LONGEST_LEGEND else 3.2
        drawn.append(
            figure(
                lambda ax: plots.decision_regions(model, X, y, resolution=RESOLUTION, ax=ax),
                "Most probable class, paler where the predictive entropy is larger; on dotted "
                f"lines it is half of its maximum. With {rows} training rows, at their "
                f"projections if there are more than two features.{again}",
                size=(5.2 + beside, 3.7),
            )
        )
    if c <= MOST_MARGINS:
        meaning = MARGINS[model.posterior_.problem.likelihood].format(other=-margin_offset(c))
        caption = f"Mean scores of the training rows. {meaning}"
        size = (5.2, max(3.7, 1.0 + 0.24 * c))
        drawn.append(figure(lambda ax: plots.margins(model, ax=ax), caption, size=size))
    drawn.append(
        figure(
            lambda ax: plots.regularization(model, ax=ax),
            f"Posterior of the regularisation tau / sigma2.{_held(model)}",
        )
    )
    if "lengthscale" in model.posterior_.samples and np.size(model.lengthscale_) == 1:
        drawn.append(figure(lambda ax: plots.lengthscale(model, ax=ax), "Lengthscale theta."))
    return drawn
