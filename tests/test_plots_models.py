"""Every plot on the default model, which is pooled, and on the squared one."""

import matplotlib as mpl
import numpy as np
import pytest
from few_draws import few_draws
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from bmsvm import BMSVMClassifier, ModeCV, Nystrom, plots
from bmsvm.arviz import to_arviz
from bmsvm.report.sections import build_sections
from bmsvm.selection.modes import ModeSelection
from bmsvm.summary import summarise_model

mpl.use("Agg")
C = 3
Y = np.arange(45) % C
X = np.random.default_rng(0).normal(size=(45, 2)) + 2.0 * np.eye(C)[Y, :2]
MODELS = {
    "pooled": {"lengthscale": ModeCV(grid=[1.0, 2.0, 4.0], repeats=1)},
    "squared": {"likelihood": "squared"},
    "squared, fixed": {"likelihood": "squared", "lengthscale": 2.0},
    "squared, low rank": {"likelihood": "squared", "approximation": Nystrom(rank=10)},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    with few_draws():
        return BMSVMClassifier(
            num_chains=2, num_warmup=20, num_samples=20, random_state=0, **MODELS[request.param]
        ).fit(X, Y)


@pytest.fixture(scope="module")
def data(model):
    return to_arviz(model, functions=True, log_likelihood=False)


@pytest.fixture
def ax():
    return Figure().add_subplot()


def points(ax):
    return [each for each in ax.collections if isinstance(each, PathCollection)]


def test_every_plot_draws_something(model):
    chances = model.predict_proba(X)
    for draw in (
        lambda ax: plots.confusion(model, X, Y, ax=ax),
        lambda ax: plots.decision_regions(model, X, Y, resolution=8, ax=ax),
        lambda ax: plots.lengthscale(model, ax=ax),
        lambda ax: plots.margins(model, ax=ax),
        lambda ax: plots.regularization(model, ax=ax),
        lambda ax: plots.rejection(chances, Y, ax=ax),
        lambda ax: plots.reliability(chances, Y, ax=ax),
        lambda ax: plots.ternary(chances, Y, ax=ax),
        lambda ax: plots.trace(model, ax=ax),
        lambda ax: plots.trace(model, "noise_variance", ax=ax),
    ):
        figure = Figure()
        drawn = draw(figure.add_subplot())
        assert drawn.has_data()
        figure.canvas.draw()


def test_theta_is_drawn_from_every_source(model, data):
    for source in (model, model.posterior_, data):
        ax = plots.lengthscale(source, ax=Figure().add_subplot())
        if "lengthscale" in model.posterior_.samples:
            assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(1)
        else:
            assert ax.lines[0].get_xdata()[0] == pytest.approx(model.lengthscale_)


def test_a_tau_that_cross_validation_chose_is_no_plain_posterior(model, data):
    """Everything that shows tau says that its prior holds it, and near which value."""
    tau, summary = model.posterior_.samples["precision"], summarise_model(model)
    captions = [
        figure.caption
        for section in build_sections(model, summary, None, None)
        for figure in section.figures
        if "tau" in figure.caption
    ]
    assert captions
    attributes = data["posterior"]["precision"].attrs
    legends, axes = [], []
    for source in (model, model.posterior_, model.run_, data):
        drawn = plots.regularization(source, ax=Figure().add_subplot())
        legends.append(drawn.get_legend().get_texts()[0].get_text())
        axes.append(plots.trace(source, ax=Figure().add_subplot()).get_ylabel())
    if not isinstance(model.selection_, ModeSelection):
        low, high = np.quantile(tau, (0.05, 0.95))
        expected = f"{np.median(tau):.3g} (sampled, 90% interval {low:.3g} to {high:.3g})"
        assert summary.facts["Precision"] == expected
        assert not any("held" in each or "holds" in each for each in (*captions, *legends, *axes))
        assert attributes == {}
        return
    chosen = model.selection_.precision
    assert np.std(np.log(tau)) < 0.1  # of the vague prior alone it would be about one
    assert attributes["held_near"] == pytest.approx(chosen)
    assert "prior" in attributes["comment"]
    assert summary.facts["Precision"].startswith(f"{chosen:.3g} (chosen by cross-validation")
    for each in (*captions, *legends, *axes):
        assert f"near {chosen:.3g}" in each
    for each in captions:
        assert "cross-validation" in each


def test_losses_by_which_theta_was_chosen_are_drawn(model, ax):
    plots.lengthscale(model, ax=ax)
    right = ax.figure.axes[1:]
    if not hasattr(model.selection_, "log_loss"):
        assert not right
        return
    line = right[0].lines[0]
    np.testing.assert_array_equal(line.get_xdata(), model.selection_.grid)
    np.testing.assert_array_equal(line.get_ydata(), model.selection_.log_loss.min(1))
    assert right[0].get_ylabel() == "log-loss"


def test_margins_show_the_hinge_or_the_codes(model, data, ax):
    plots.margins(model, ax=ax)
    lines = [line.get_xdata()[0] for line in ax.lines]
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    if model.likelihood == "squared":
        assert lines == [-0.5, 1]
        assert labels[-1] == "codes, -0.5 and 1"
    else:
        assert lines == [-0.5]
        assert labels[-1] == "hinge, -0.5"
    of_data = plots.margins(data, ax=Figure().add_subplot())
    assert [line.get_xdata()[0] for line in of_data.lines] == lines
    assert [text.get_text() for text in of_data.get_legend().get_texts()] == labels
    assert of_data.get_xlabel() == "posterior mean of f"
    functions = data["posterior"]["functions"].mean(("chain", "draw")).values
    found = points(of_data)[0].get_offsets()[:, 0]
    np.testing.assert_allclose(found, functions[Y == 0, 0], rtol=1e-6)


def test_rows_have_rings_where_there_is_a_hinge(model, ax):
    plots.decision_regions(model, X, Y, resolution=8, ax=ax)
    labels = [each.get_label() for each in points(ax)]
    assert ("support-like" in labels) == (model.likelihood != "squared")


def test_what_a_plot_lacks_is_named(model):
    bare = to_arviz(model, log_likelihood=False, posterior_predictive=False)
    with pytest.raises(ValueError, match=r"to_arviz\(model, functions=True\)"):
        plots.margins(bare)
    linear = BMSVMClassifier(
        likelihood="squared", kernel="linear", num_samples=10, random_state=0
    ).fit(X, Y)
    with pytest.raises(ValueError, match="its kernel has none"):
        plots.lengthscale(linear)
