"""A fitted model in a few lines, for notebooks, the command line and reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from bmsvm.convergence import BASIS_ERROR, SMALLEST_ESS, Check, advice, largest_r_hat
from bmsvm.models.hierarchy import held_precision
from bmsvm.selection.modes import ModeSelection


class Worst(NamedTuple):
    """The quantity with the largest R-hat, or with the smallest effective sample size."""

    name: str
    value: float


class Summary(NamedTuple):
    """A fitted model in words and numbers.

    facts
        Model, data, draws, lengthscale and precision in words, by heading.
    classes
        Each class and its number of training rows.
    independent
        Whether the draws are independent, so that there are no chains that have to converge.
    r_hat, ess
        Largest R-hat and smallest effective sample size of the watched quantities; None if there
        are too few draws, or no chains.
    r_hat_limit
        What R-hat should be at most.
    checks
        The other numbers that are watched, each with its limit, by name.
    advice
        What is wrong, and what to do, in sentences without the last full stop.
    """

    facts: dict[str, str]
    classes: tuple[tuple[Any, int], ...]
    independent: bool
    r_hat: Worst | None
    ess: Worst | None
    r_hat_limit: float
    checks: Mapping[str, Check]
    advice: tuple[str, ...]

    @property
    def chain_checks(self) -> dict[str, Check]:
        """The checks of the chains alone."""
        return {name: check for name, check in self.checks.items() if name != BASIS_ERROR}

    @property
    def converged(self) -> bool | None:
        """Whether the chains have converged; None if there are too few draws to judge.

        Independent draws have always converged.
        """
        if self.independent:
            return True
        if self.r_hat is None or self.ess is None:
            return None
        if not all(check.passed for check in self.chain_checks.values()):
            return False
        return self.r_hat.value <= self.r_hat_limit and self.ess.value >= SMALLEST_ESS

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong that is known."""
        return self.converged is True and all(check.passed for check in self.checks.values())

    @property
    def convergence(self) -> str:
        """Whether the chains have converged, in words."""
        if self.independent:
            return "the draws are independent"
        if self.converged is None:
            return "too few draws to judge convergence"
        return f"the chains have {'' if self.converged else 'not '}converged"

    @property
    def verdict(self) -> str:
        """Convergence, and whether a basis of low rank is good enough, in words."""
        basis = self.checks.get(BASIS_ERROR)
        if basis is None or basis.passed:
            return self.convergence
        return f"{self.convergence}; the basis of low rank is too small"


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
        "Draws" if run.independent else "Chains": _chains(model),
    }
    if model.lengthscale_ is not None:
        facts["Lengthscale"] = _lengthscale(model)
    facts["Precision"] = _precision(model)
    found, r_hat, ess = {} if run.independent else model.diagnostics_, None, None
    if found:
        r_hat = max((Worst(name, each.r_hat) for name, each in found.items()), key=itemgetter(1))
        ess = min((Worst(name, each.ess) for name, each in found.items()), key=itemgetter(1))
        facts["Largest R-hat"] = f"{r_hat.value:.3f} ({r_hat.name})"
        facts["Smallest ESS"] = f"{ess.value:.0f} ({ess.name})"
    checks = model.checks_
    failed = [f"{name} {_with_limit(each)}" for name, each in checks.items() if not each.passed]
    if failed:
        facts["Failed checks"] = ", ".join(failed)
    return Summary(
        facts=facts,
        classes=tuple(zip(model.classes_.tolist(), counts.tolist(), strict=True)),
        independent=run.independent,
        r_hat=r_hat,
        ess=ess,
        r_hat_limit=largest_r_hat(posterior.shape[0], len(found)),
        checks=checks,
        advice=tuple(_advice(model, checks)),
    )


def _with_limit(check: Check) -> str:
    return f"{check.value:.2g} (at {'most' if check.largest else 'least'} {check.limit:g})"


def _advice(model: Any, checks: Mapping[str, Check]) -> Iterator[str]:
    """Return what is wrong, and what to do: first by R-hat and effective size, then by checks."""
    run = model.run_
    if not run.independent:
        message = advice(
            model.diagnostics_,
            num_chains=model.posterior_.shape[0],
            num_warmup=int(run.state.n_warmup),
            num_samples=run.num_samples,
        )
        if message is not None:
            yield message.removeprefix("the chains have not converged: ")
    for check in checks.values():
        if not check.passed:
            yield check.advice[0].upper() + check.advice[1:]


def _chains(model: Any) -> str:
    run, (chains, draws) = model.run_, model.posterior_.shape
    stopped = ", interrupted" if run.interrupted else ""
    if run.independent:
        return f"{chains} × {draws} independent draws, {run.seconds:.1f} s{stopped}"
    thinned = f", {run.thinning} sweeps per draw" if run.thinning > 1 else ""
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


def _precision(model: Any) -> str:
    """Return tau, and its 90% interval unless its prior holds it."""
    held, draws = held_precision(model.posterior_.problem), model.posterior_.samples["precision"]
    if held is None:
        low, high = np.quantile(draws, (0.05, 0.95))
        return f"{np.median(draws):.3g} (sampled, 90% interval {low:.3g} to {high:.3g})"
    how = "chosen by cross-validation, and" if _chose_precision(model) else "given, and"
    return f"{held:.3g} ({how} held there by its prior)"


def _chose_precision(model: Any) -> bool:
    """Whether tau was chosen from the data."""
    return isinstance(model.selection_, ModeSelection)


def about_precision(model: Any) -> str:
    """Return a sentence that says where tau is held by its prior; empty if it is not."""
    held = held_precision(model.posterior_.problem)
    if held is None:
        return ""
    chosen = ", which cross-validation chose" if _chose_precision(model) else ""
    return f"The prior of tau holds it near {held:.3g}{chosen}."


def shown(value: object, longest: int = 240) -> str:
    """Return text that can be encoded as UTF-8, cut if it is long."""
    text = str(value)
    text = text if len(text) <= longest else text[:longest] + "…"
    return text.encode("utf-8", "replace").decode("utf-8")
