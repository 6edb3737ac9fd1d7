"""A fitted model in a few lines, for notebooks, the command line and reports."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bmsvm.convergence import SMALLEST_ESS, largest_r_hat


class Worst(NamedTuple):
    """The quantity with the largest R-hat, or with the smallest effective sample size."""

    name: str
    value: float


class Summary(NamedTuple):
    """A fitted model in words and numbers.

    facts
        Model, data, chains and lengthscale in words, by heading.
    classes
        Each class and its number of training rows.
    r_hat, ess
        Largest R-hat and smallest effective sample size of the watched quantities; None if there
        are too few draws.
    r_hat_limit
        What R-hat should be at most.
    """

    facts: dict[str, str]
    classes: tuple[tuple[Any, int], ...]
    r_hat: Worst | None
    ess: Worst | None
    r_hat_limit: float

    @property
    def converged(self) -> bool | None:
        """Whether the chains have converged; None if there are too few draws to judge."""
        if self.r_hat is None or self.ess is None:
            return None
        return self.r_hat.value <= self.r_hat_limit and self.ess.value >= SMALLEST_ESS

    @property
    def verdict(self) -> str:
        """Whether the chains have converged, in words."""
        if self.converged is None:
            return "too few draws to judge convergence"
        return f"the chains have {'' if self.converged else 'not '}converged"


def summarise_model(model: Any) -> Summary:
    """Summarise a fitted :class:`bmsvm.BMSVMClassifier`."""
    run, posterior, problem = model.run_, model.posterior_, model.posterior_.problem
    n = len(posterior.training_rows)  # the problem may have spare rows beyond these
    counts = np.bincount(np.asarray(problem.labels)[:n], minlength=problem.n_classes)
    sampler = run.kernel.sampler_of(problem)
    facts = {
        "Model": f"likelihood {problem.likelihood}, coupling {problem.coupling}, kernel "
        f"{model.kernel_}, sampler {sampler}",
        "Data": f"{n} rows, {model.n_features_in_} features, {len(counts)} classes",
        "Chains": _chains(model),
    }
    if model.lengthscale_ is not None:
        facts["Lengthscale"] = _lengthscale(model)
    found, r_hat, ess = model.diagnostics_, None, None
    if found:
        r_hat = max((Worst(name, each.r_hat) for name, each in found.items()), key=itemgetter(1))
        ess = min((Worst(name, each.ess) for name, each in found.items()), key=itemgetter(1))
        facts["Largest R-hat"] = f"{r_hat.value:.3f} ({r_hat.name})"
        facts["Smallest ESS"] = f"{ess.value:.0f} ({ess.name})"
    return Summary(
        facts=facts,
        classes=tuple(zip(model.classes_.tolist(), counts.tolist(), strict=True)),
        r_hat=r_hat,
        ess=ess,
        r_hat_limit=largest_r_hat(posterior.shape[0], len(found)),
    )


def _chains(model: Any) -> str:
    run, (chains, draws) = model.run_, model.posterior_.shape
    thinned = f", {run.thinning} sweeps per draw" if run.thinning > 1 else ""
    stopped = ", interrupted" if run.interrupted else ""
    return (
        f"{chains} × {draws} draws{thinned}, {int(run.state.n_warmup)} warm-up sweeps, "
        f"{run.seconds:.1f} s{stopped}"
    )


def _lengthscale(model: Any, most: int = 10) -> str:
    """Return theta, its 90% interval if it was sampled, and how it was determined."""
    values = np.atleast_1d(model.lengthscale_)
    text = ", ".join(f"{value:.3g}" for value in values[:most])
    text += ", …" if len(values) > most else ""
    draws = model.posterior_.samples.get("lengthscale")
    if draws is None:
        return f"{text} ({'given' if model.selection_ is None else 'by cross-validation'})"
    if draws.ndim > 2:
        return f"{text} (sampled, medians)"
    low, high = np.quantile(draws, (0.05, 0.95))
    return f"{text} (sampled, 90% interval {low:.3g} to {high:.3g})"


def shown(value: object, longest: int = 240) -> str:
    """Return text that can be encoded as UTF-8, cut if it is long."""
    text = str(value)
    text = text if len(text) <= longest else text[:longest] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")
