"""Models in notebooks: whole, harmless, and readable by day and by night."""

import re

import numpy as np
import pytest
import sklearn
from pages import HOSTILE, Page
from small_models import fit, renamed

from bmsvm import BMSVMClassifier
from bmsvm.estimators.convergence import Diagnosis
from bmsvm.estimators.notebook import summary_html
from bmsvm.estimators.summary import Lengthscale, summarise_model


@pytest.fixture(scope="module")
def fitted():
    return fit()


def test_it_says_what_was_found(fitted):
    text = Page(summary_html(summarise_model(fitted), "BMSVMClassifier")).text
    summary = summarise_model(fitted)
    for part in (
        "2 chains of 20 draws after 20 sweeps of warm-up",
        "18 rows, 2 features",
        "likelihood hinge",
        f"{summary.r_hat.value:.3f}, the largest, of {summary.r_hat.name}",
        f"{summary.ess.value:.0f}, the smallest, of {summary.ess.name}",
        "Lengthscale1.5",
        "blue633.3%",
    ):
        assert part in text


def test_the_verdict_follows_the_diagnostics(fitted):
    other = renamed(fitted, fitted.classes_)
    for diagnosis, verdict in (
        (Diagnosis(1.0, 500.0), "the chains have converged"),
        (Diagnosis(1.2, 500.0), "the chains have not converged"),
        (Diagnosis(1.0, 5.0), "the chains have not converged"),
    ):
        other.diagnostics_ = {"precision": diagnosis}
        assert summarise_model(other).verdict == verdict
    other.diagnostics_ = {}
    assert summarise_model(other).converged is None
    assert "too few draws" in other._repr_html_()


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


def test_a_posterior_of_the_lengthscale_is_drawn(fitted):
    grid = np.geomspace(0.1, 10, 5)
    theta = Lengthscale(1.0, 0.3, 3.0, grid, np.array([0, 0.25, 0.5, 0.25, 0]))
    page = summary_html(summarise_model(fitted)._replace(lengthscale=theta), "x")
    assert Page(page).tags.count("rect") == 3
    assert "1, 90% between 0.3 and 3" in Page(page).text


def test_it_stands_alone_and_takes_the_colours_around_it(fitted):
    page = summary_html(summarise_model(fitted), "BMSVMClassifier")
    assert not re.search(r"https?:|src=|url\(", page)
    colours = set(re.findall(r"(?<![-\w])color:([^;']+)", page))
    assert colours <= {"inherit", "#2e9e5b", "#d9534f"}
    assert set(re.findall(r"background:([^;']+)", page)) == {"transparent"}


def test_many_classes_and_long_names_stay_within_bounds(fitted):
    classes = tuple((f"{i} " + "x" * 10**5, 1) for i in range(50))
    page = summary_html(summarise_model(fitted)._replace(classes=classes), "x")
    assert len(page) < 50_000
    assert "overflow:auto" in page


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
