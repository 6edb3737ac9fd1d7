"""Models in notebooks: complete, escaped, and self-contained."""

import re
from dataclasses import replace

import numpy as np
import pytest
import sklearn
from pages import HOSTILE, Page
from small_models import fit, renamed

from bmsvm import BMSVMClassifier, Nystrom
from bmsvm.convergence import Diagnosis
from bmsvm.notebook import summary_html
from bmsvm.summary import summarise_model


@pytest.fixture(scope="module")
def fitted():
    return fit()


def test_it_has_the_facts_of_the_model(fitted):
    summary = summarise_model(fitted)
    text = Page(summary_html(summary, "BMSVMClassifier")).text
    for part in ("BMSVMClassifier", summary.verdict, *summary.facts, *summary.facts.values()):
        assert part in text
    for name, count in summary.classes:
        assert f"{name} {count}" in text


def test_the_summary_has_the_numbers_of_the_model(fitted):
    summary = summarise_model(fitted)
    found = fitted.diagnostics_
    assert summary.r_hat.value == max(each.r_hat for each in found.values())
    assert summary.ess.value == min(each.ess for each in found.values())
    assert found[summary.r_hat.name].r_hat == summary.r_hat.value
    assert summary.classes == (("blue", 6), ("green", 6), ("red", 6))
    for name, values in (
        ("Model", ("hinge", "sum_to_zero", "gaussian", "Gibbs")),
        ("Data", ("18", "2", "3")),
        ("Chains", ("2", "20")),
        ("Lengthscale", ("1.5",)),
        ("Largest R-hat", (f"{summary.r_hat.value:.3f}", summary.r_hat.name)),
        ("Smallest ESS", (f"{summary.ess.value:.0f}", summary.ess.name)),
    ):
        assert all(value in summary.facts[name] for value in values)


def test_convergence_follows_the_diagnostics(fitted):
    other = renamed(fitted, fitted.classes_)
    for diagnosis, converged in (
        (Diagnosis(1.0, 500.0), True),
        (Diagnosis(1.2, 500.0), False),
        (Diagnosis(1.0, 5.0), False),
    ):
        other.diagnostics_ = {"precision": diagnosis}
        summary = summarise_model(other)
        assert summary.converged is converged
        assert ("✓" in summary_html(summary, "x")) is converged
    other.diagnostics_ = {}
    assert summarise_model(other).converged is None
    assert summarise_model(other).verdict in other._repr_html_()


def with_checks(fitted, **numbers):
    """Return the summary of a model that has converged by R-hat, with numbers of its sampler."""
    other = renamed(fitted, fitted.classes_)
    other.diagnostics_ = {"precision": Diagnosis(1.0, 500.0)}
    given = {"accept_prob": 0.8, "num_steps": 10, "step_size": 0.2, **numbers}
    draws = {name: np.full((2, 20), value) for name, value in given.items()}
    other.run_ = replace(fitted.run_, samples={**fitted.run_.samples, **draws})
    return summarise_model(other)


def test_chains_that_a_check_has_found_bad_have_not_converged(fitted):
    """Whatever R-hat is: the page must not contradict the warning of fit."""
    good = with_checks(fitted)
    assert good.passed
    assert (good.advice, good.verdict) == ((), "the chains have converged")
    assert "Failed checks" not in good.facts
    still = np.full((2, 20), 1.5)
    for numbers, name, advice in (
        ({"accept_prob": 0.1}, "acceptance 0.1 (at least 0.3)", "Chain 0 accepts 0.10"),
        ({"num_steps": 1}, "trajectory 0.2 (at least 0.5)", "Chain 0 has trajectories of 0.2"),
        ({"lengthscale": still}, "values of theta 1 (at least 2)", "Lengthscale is sampled"),
    ):
        bad = with_checks(fitted, **numbers)
        assert (bad.converged, bad.passed) == (False, False)
        assert bad.verdict == "the chains have not converged"
        assert bad.facts["Failed checks"] == name
        assert [each.startswith(advice) for each in bad.advice] == [True]
        said = Page(summary_html(bad, "x")).text
        assert "✗" in said
        assert name in said


def test_a_basis_that_is_too_small_is_part_of_the_verdict():
    """Of a basis that was asked for there is no warning, but the summary says it."""
    rows = np.random.default_rng(0).uniform(size=(300, 1))
    labels = (np.random.default_rng(1).random(300) < 0.5).astype(int)
    model = BMSVMClassifier(
        lengthscale=0.05, likelihood="squared", approximation=Nystrom(rank=4), random_state=0
    ).fit(rows, labels)
    summary = summarise_model(model)
    assert not model.checks_["basis error"].passed
    assert summary.converged  # the draws are those of this basis
    assert not summary.passed
    assert summary.verdict == "the draws are independent; the basis of low rank is too small"
    assert summary.advice[0].startswith("The basis of low rank, of 4 columns")
    assert "✗" in Page(summary_html(summary, "x")).text


def test_independent_draws_are_not_called_chains():
    """Their R-hat would only be chance."""
    model = fit(likelihood="squared", sampler="table")
    summary = summarise_model(model)
    assert summary.independent
    assert summary.converged is True
    assert (summary.r_hat, summary.ess) == (None, None)
    assert summary.facts["Draws"].startswith("2 × 20 independent draws, ")
    said = Page(summary_html(summary, "x")).text
    assert "✓ the draws are independent" in said
    for word in ("chain", "warm-up", "R-hat", "ESS"):
        assert word not in said


def test_a_sampled_lengthscale_has_its_interval(fitted):
    other = renamed(fitted, fitted.classes_)
    draws = np.linspace(1, 3, 40).reshape(2, 20)
    samples = {**fitted.posterior_.samples, "lengthscale": draws}
    posterior = replace(fitted.posterior_, samples=samples, lengthscale=None)
    other.predictive_ = replace(fitted.predictive_, posterior=posterior)
    other.lengthscale_ = float(np.median(draws))
    text = summarise_model(other).facts["Lengthscale"]
    for value in (2.0, *np.quantile(draws, (0.05, 0.95))):
        assert f"{value:.3g}" in text


def test_names_from_the_data_are_only_text(fitted):
    other = renamed(fitted, np.array(HOSTILE, object))
    other.diagnostics_ = {f"f at class {name}": Diagnosis(1.0, 9.0) for name in HOSTILE}
    other.class_weight = dict.fromkeys(HOSTILE, 1.0)
    page = summary_html(summarise_model(other), "BMSVMClassifier")
    page.encode()  # no lone surrogates
    parsed = Page(page)
    assert "script" not in parsed.tags
    assert not [name for name in parsed.attributes if name.startswith("on")]
    for name in HOSTILE:
        assert name.replace("\ud800", "?") in parsed.text
    # With scikit-learn's part, which brings a script of its own.
    assert "<script>alert" not in other._repr_html_()
    assert "' onload='x" not in other._repr_html_()


def test_it_loads_nothing_and_has_the_colours_of_its_surroundings(fitted):
    page = summary_html(summarise_model(fitted), "BMSVMClassifier")
    assert not re.search(r"https?:|src=|url\(|script", page)
    assert not re.search(r"color|background", page)


def test_many_classes_and_long_names_stay_within_bounds(fitted):
    classes = tuple((f"{i} " + "x" * 10**5, 1) for i in range(50))
    summary = summarise_model(fitted)._replace(classes=classes, facts={"Data": "x" * 10**5})
    assert len(summary_html(summary, "x")) < 50_000


def test_scikit_learn_decides_when_and_draws_what_is_not_fitted(fitted):
    unfitted = BMSVMClassifier()

    def plain(page):
        return re.sub(r"sk-container-id-\d+|sk-estimator-id-\d+|param-doc-\d+", "", page)

    ours = unfitted._repr_mimebundle_()["text/html"]
    assert plain(ours) == plain(sklearn.utils.estimator_html_repr(unfitted))
    assert "class='bmsvm'" not in ours
    assert "class='bmsvm'" in fitted._repr_html_()
    assert "class='bmsvm'" in fitted._repr_mimebundle_()["text/html"]
    assert "sk-container" in fitted._repr_html_()
    with sklearn.config_context(display="text"):
        assert "text/html" not in fitted._repr_mimebundle_()
        assert not hasattr(fitted, "_repr_html_")
