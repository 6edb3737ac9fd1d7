"""Plots of parameters: traces, tau/sigma2 and the lengthscale, from every kind of source."""

import itertools

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from small_models import fit

from bmsvm import BMSVMClassifier, plots

mpl.use("Agg")


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def test_regularization_shows_every_draw_and_gamma(model, ax):
    plots.regularization(model, gamma=0.25, ax=ax)
    np.testing.assert_allclose(sum(bar.get_height() for bar in ax.patches), 1)
    ratio = model.posterior_.samples["precision"] / model.posterior_.samples["noise_variance"]
    median, gamma = ax.lines
    np.testing.assert_allclose(median.get_xdata(), np.median(ratio))
    assert set(gamma.get_xdata()) == {0.25}
    assert gamma.get_linestyle() != median.get_linestyle()  # told apart without colour
    with pytest.raises(ValueError, match="gamma must be"):
        plots.regularization(model, gamma=-1)
    with pytest.raises(TypeError, match="source must be"):
        plots.regularization([1.0])
    samples = model.posterior_.samples
    data = az.convert_to_inference_data({name: samples[name] for name in samples})
    for source in (model.run_, model.posterior_, data, samples):
        drawn = plots.regularization(source, ax=Figure().subplots())
        np.testing.assert_allclose(drawn.lines[0].get_xdata(), np.median(ratio))


@pytest.mark.parametrize("span", [1.01, 1.3, 2.0, 5.0, 9.0, 30.0, 300.0, 1e5, 1e9])
@pytest.mark.parametrize("low", [1.7e-5, 3.1e-3, 0.8])
def test_labels_of_a_logarithmic_axis_do_not_overlap(low, span):
    draws = {
        "precision": np.geomspace(low, low * span, 50)[None],
        "noise_variance": np.ones((1, 50)),
    }
    ax = Figure(figsize=(5.2, 3.7), layout="constrained").subplots()
    plots.regularization(draws, ax=ax)
    ax.figure.draw_without_rendering()
    first, last = ax.get_xlim()
    labels = [
        each
        for each in ax.get_xticklabels(which="both")
        if each.get_text() and first <= each.get_position()[0] <= last
    ]
    assert len(labels) >= 2
    assert len({each.get_text() for each in labels}) == len(labels)
    boxes = sorted((each.get_window_extent() for each in labels), key=lambda box: box.x0)
    for left, right in itertools.pairwise(boxes):
        assert left.x1 + 3 < right.x0


def test_theta_is_drawn_as_a_histogram_or_as_its_value(model, ax):
    grid = np.geomspace(1, 4, 3)
    draws = {"lengthscale": grid[np.random.default_rng(0).integers(0, 3, (2, 50))]}
    plots.lengthscale(draws, ax=ax)
    np.testing.assert_allclose(sum(bar.get_height() for bar in ax.patches), 1)
    assert len(ax.get_legend().get_texts()) == 1
    fixed = plots.lengthscale(model, ax=Figure().subplots())
    assert set(fixed.lines[0].get_xdata()) == {1.5}
    with pytest.raises(ValueError, match="one lengthscale"):
        plots.lengthscale({"lengthscale": np.ones((2, 5, 3))})
    with pytest.raises(ValueError, match="one lengthscale"):
        plots.lengthscale(np.ones(3))


@pytest.mark.parametrize("num_chains", [1, 8, 20])
def test_a_trace_has_any_number_of_chains(num_chains, ax):
    draws = np.random.default_rng(0).gamma(2.0, size=(num_chains, 5))
    plots.trace({"precision": draws}, ax=ax)
    np.testing.assert_allclose([line.get_ydata() for line in ax.lines], np.log(draws))
    styles = {(str(line.get_color()), str(line.get_linestyle())) for line in ax.lines[:8]}
    assert len(styles) == min(num_chains, 8)  # those that the legend names are told apart


def test_a_trace_has_a_line_for_each_chain(model, ax):
    plots.trace(model, ax=ax)
    draws = model.posterior_.samples["precision"]
    assert len(ax.lines) == len(draws) == 2
    for line, chain in zip(ax.lines, draws, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.log(chain))
    with pytest.raises(ValueError, match=r"name must be .*\(18, 3\)|name must be .*\(32, 3\)"):
        plots.trace(model, "scores", ax=ax)
    with pytest.raises(ValueError, match="source must have draws of 'nothing'"):
        plots.trace(model, "nothing")
    with pytest.raises(ValueError, match="not fitted yet"):
        plots.trace(BMSVMClassifier())


def test_a_trace_of_more_chains_than_there_are_plain_line_styles(ax):
    draws = np.exp(np.random.default_rng(0).normal(size=(12, 5)))
    plots.trace({"precision": draws}, ax=ax)
    for line, chain in zip(ax.lines, draws, strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.log(chain))
