"""Pictures: what is drawn, on which axes, and what cannot be drawn."""

import sys
from dataclasses import replace

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from small_models import CODES, NEW, WORDS, X, Y, fit, renamed

from bmsvm import BMSVMClassifier, plots
from bmsvm.arviz import to_arviz
from bmsvm.inference.cross_validation import CrossValidation
from bmsvm.plots.confusion import confusion_draws
from bmsvm.plots.intervals import share_interval
from bmsvm.plots.regions import support_share
from bmsvm.plots.reliability import reliability_table
from bmsvm.plots.style import class_style, text_of

mpl.use("Agg")
N = len(X)
CHANCES = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.35, 0.35, 0.3], [0.0, 0.1, 0.9]])
TRUTH = np.array(["blue", "green", "red", "red"])


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def curve(**changes):
    grid = np.geomspace(0.5, 8, 5)
    losses = np.log(grid / 2)[:, None] ** 2 + np.array([0.1, 0.2, 0.3])
    nothing = np.empty((5, 0))
    found = CrossValidation(grid, losses, losses / 2, nothing, nothing, "log_loss")
    return replace(found, **changes)


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


EVERY = {
    "decision_regions": lambda m, ax: plots.decision_regions(m, X, Y, resolution=8, ax=ax),
    "ternary": lambda m, ax: plots.ternary(m.predict_proba(X), Y, classes=m.classes_, ax=ax),
    "margins": lambda m, ax: plots.margins(m, ax=ax),
    "reliability": lambda m, ax: plots.reliability(m.predict_proba(X), Y, ax=ax),
    "regularization": lambda m, ax: plots.regularization(m, gamma=0.1, ax=ax),
    "lengthscale": lambda m, ax: plots.lengthscale(m, curve(), ax=ax),
    "confusion": lambda m, ax: plots.confusion(m, X, Y, ax=ax),
    "rejection": lambda m, ax: plots.rejection(m.predict_proba(X), Y, ax=ax),
    "trace": lambda m, ax: plots.trace(m, ax=ax),
}


@pytest.mark.parametrize("name", EVERY)
def test_axes_in_and_axes_out(name, model, ax):
    assert set(EVERY) == set(plots.__all__)
    assert EVERY[name](model, ax) is ax
    assert ax.has_data()
    made = EVERY[name](model, None)
    assert made is not ax
    made.figure.canvas.draw()  # nothing that can be laid out but not drawn
    mpl.pyplot.close(made.figure)
    with pytest.raises(TypeError, match="ax must be Matplotlib axes"):
        EVERY[name](model, "here")


def test_regions_show_the_likeliest_class_paler_in_doubt(model, ax):
    plots.decision_regions(model, X, Y, resolution=12, ax=ax)
    (image,) = ax.images
    picture = np.asarray(image.get_array())
    left, right, bottom, top = image.get_extent()
    across, up = np.linspace(left, right, 12), np.linspace(bottom, top, 12)
    rows = np.stack([each.ravel() for each in np.meshgrid(across, up)], axis=1)
    chances = model.predict_proba(type(X)(rows, columns=X.columns)).reshape(12, 12, 3)
    hue = 1 - picture
    for number in range(3):
        mine = chances.argmax(-1) == number
        colour = 1 - np.array(mpl.colors.to_rgb(class_style(number).colour))
        ratio = hue[mine] @ colour / (colour @ colour)
        np.testing.assert_allclose(hue[mine], ratio[:, None] * colour, atol=1e-12)
        order = np.argsort(ratio)  # stronger colour, less entropy
        entropy = -(chances[mine] * np.log(chances[mine])).sum(-1)
        assert np.all(np.diff(entropy[order]) <= 1e-9)
    assert words(ax) == [*WORDS, "support-like"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("width", "height")


def test_rows_are_drawn_by_class_and_support_is_ringed(model, ax):
    plots.decision_regions(model, X, Y, resolution=4, ax=ax)
    points = mpl.collections.PathCollection
    *classes, rings = (each for each in ax.collections if isinstance(each, points))
    for number, points in enumerate(classes):
        np.testing.assert_allclose(points.get_offsets(), X[number == CODES])
    shares = support_share(model, X, CODES)
    np.testing.assert_allclose(rings.get_offsets(), X[shares >= 0.5])
    # by hand: the share of draws in which another class is beyond the hinge
    data = to_arviz(model, functions=True, log_likelihood=False, posterior_predictive=False)
    functions = data["posterior"]["functions"].values.reshape(-1, N, 3)
    beyond = (functions > -0.5) & (CODES[:, None] != np.arange(3))
    np.testing.assert_allclose(shares, beyond.any(-1).mean(0), atol=0.05)


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_planes(model, ax):
    assert plots.decision_regions(model, X, resolution=3, features=["height", 0], ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("height", "width")
    assert ax.get_legend() is None  # no labels, no rows
    plots.decision_regions(model, X, resolution=3, projection="pca", ax=ax)
    assert "principal" in ax.get_xlabel()
    spanned = PCA(2).fit(X.to_numpy())
    plots.decision_regions(model, X.to_numpy(), Y, resolution=3, projection=spanned, ax=ax)
    points = spanned.transform(X.to_numpy())
    np.testing.assert_allclose(ax.collections[-4].get_offsets(), points[CODES == 0])


def test_regions_that_cannot_be_drawn(model):
    def refuses(match, *args, **settings):
        with pytest.raises(ValueError, match=match):
            plots.decision_regions(*(args or (model, X)), **settings)

    refuses("features must be two of", features=["width", "depth"])
    refuses("two different features", features=["width"])
    refuses("exclude each other", features=[0, 1], projection="pca")
    refuses('projection must be "pca"', projection="umap")
    refuses(r"X must have shape \(n, 2\)", model, X.to_numpy()[:, :1])
    refuses("resolution must be an integer", resolution=1)
    refuses("y must have labels among the classes 'blue'", model, X, ["pink"] * N, resolution=2)
    refuses("same number of rows", model, X, Y[:-1], resolution=2)
    with pytest.raises(TypeError, match="model must be a fitted BMSVMClassifier"):
        plots.decision_regions(PCA(), X)
    with pytest.raises(ValueError, match="not fitted yet"):
        plots.decision_regions(BMSVMClassifier(), X)


def test_ternary_puts_certain_rows_at_the_corners(ax):
    plots.ternary(np.vstack([np.eye(3), np.full((1, 3), 1 / 3)]), ax=ax)
    points = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(points[:3], [[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    np.testing.assert_allclose(points[3], points[:3].mean(0))
    assert ax.get_legend() is None
    named = plots.ternary(CHANCES, TRUTH, ax=Figure().subplots())
    assert words(named) == [*WORDS]
    assert [len(each.get_offsets()) for each in named.collections] == [1, 1, 2]
    with pytest.raises(ValueError, match=r"ternary is for three classes: .* got \(4, 2\)"):
        plots.ternary(CHANCES[:, :2])


def test_margins_part_own_rows_from_others_at_the_hinge(model, ax):
    plots.margins(model, ax=ax)
    means = model.run_.samples["scores"].mean((0, 1))[:N]
    for number in range(3):
        own, others = ax.collections[2 * number : 2 * number + 2]
        drawn = np.asarray(own.get_offsets())[:, 0]
        np.testing.assert_allclose(np.sort(drawn), np.sort(means[number == CODES, number]))
        assert len(others.get_offsets()) == N - len(drawn)
        assert not len(others.get_facecolors())  # hollow
    (hinge,) = ax.lines
    assert set(hinge.get_xdata()) == {-0.5}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == WORDS.tolist()
    with pytest.raises(ValueError, match="source must have draws of 'scores'"):
        plots.margins(to_arviz(model, log_likelihood=False, posterior_predictive=False))


def test_margins_of_chains_are_the_scores(ax):
    scores = np.random.default_rng(0).normal(size=(2, 5, 4, 3))
    built = {"posterior": {"scores": scores}, "observed_data": {"y": np.array([0, 1, 2, 0])}}
    dims = {"scores": ["row", "class"], "y": ["row"]}
    if int(az.__version__.split(".")[0]) >= 1:
        data = az.from_dict(built, dims=dims, coords={"class": list("abc")})
    else:
        data = az.from_dict(**built, dims=dims, coords={"class": list("abc")})
    plots.margins(data, ax=ax)
    drawn = np.asarray(ax.collections[2].get_offsets())[:, 0]
    np.testing.assert_allclose(drawn, scores[:, :, 1, 1].mean())
    assert ax.get_xlabel() == "posterior mean of z"


def test_reliability_by_hand():
    chances = np.array([0.95, 0.95, 0.85, 0.12, 1.0])
    table = reliability_table(chances, np.array([True, False, True, False, True]))
    np.testing.assert_allclose(table.edges, [[0.1, 0.2], [0.8, 0.9], [0.9, 1.0]])
    np.testing.assert_allclose(table.predicted, [0.12, 0.85, 2.9 / 3])
    np.testing.assert_allclose(table.observed, [0, 1, 2 / 3])
    np.testing.assert_array_equal(table.rows, [1, 1, 3])
    np.testing.assert_allclose(table.calibration_error, (0.12 + 0.15 + 3 * 0.3) / 5)
    assert table.lower[0] == 0
    assert table.upper[1] == 1


def test_intervals_cover_as_they_say():
    """Jeffreys' intervals at a share of 0.3 of 50; exact, so nothing is left to chance."""
    from scipy.stats import binom

    lower, upper = share_interval(np.arange(51), np.full(51, 50), 0.9)
    covered = (lower <= 0.3) & (upper >= 0.3)
    assert abs(binom(50, 0.3).pmf(np.arange(51))[covered].sum() - 0.9) < 0.03


def test_reliability_draws_its_table(ax):
    plots.reliability(CHANCES, TRUTH, bins=5, ax=ax)
    assert words(ax) == ["as predicted", "observed", "90% interval"]
    table = reliability_table(CHANCES.max(1), np.array([True, True, False, True]), bins=5)
    np.testing.assert_allclose(ax.lines[1].get_xdata(), table.predicted)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), table.observed)
    assert [bar.get_height() for bar in ax.patches] == list(table.upper - table.lower)
    assert [text.get_text() for text in ax.texts] == [str(count) for count in table.rows]
    assert plots.reliability(CHANCES, TRUTH, of="red", ax=ax).get_xlabel().endswith("of red")
    with pytest.raises(ValueError, match="of must be one of the classes"):
        plots.reliability(CHANCES, TRUTH, of="pink")


def test_probabilities_and_labels_are_checked():
    for bad, y, match in (
        (CHANCES + 0.1, TRUTH, "sum to 1 in each row; got probabilities\\[0\\]"),
        (CHANCES[0], TRUTH, r"must have shape \(m, c\)"),
        (CHANCES, TRUTH[:3], "one label for each row of probabilities, 4 of them; got 3"),
        (CHANCES, np.array([TRUTH]), "y must have one dimension"),
        (np.full((4, 3), np.nan), TRUTH, "probabilities must be between 0 and 1"),
    ):
        with pytest.raises(ValueError, match=match):
            plots.reliability(bad, y)
    with pytest.raises(ValueError, match="classes must have one name for each column"):
        plots.rejection(CHANCES, TRUTH, classes=["a", "b"])
    with pytest.raises(
        ValueError, match=r"y must have labels among the classes 0, 1, 2; got y\[0\]"
    ):
        plots.rejection(CHANCES, ["x", "x", "y", "y"])


def test_rejection_keeps_the_surest(ax):
    plots.rejection(CHANCES, TRUTH, ax=ax)
    accuracy, promised = ax.lines
    np.testing.assert_allclose(accuracy.get_xdata(), [0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(accuracy.get_ydata(), [1, 1, 1, 0.75])  # the wrong one goes first
    np.testing.assert_allclose(
        promised.get_ydata(), np.cumsum([0.9, 0.7, 0.7, 0.35]) / [1, 2, 3, 4]
    )
    plots.rejection(CHANCES, TRUTH, doubt=[0, 1, 2, 3], ax=ax)
    np.testing.assert_allclose(ax.lines[2].get_ydata(), [1, 1, 2 / 3, 0.75])
    with pytest.raises(ValueError, match="doubt must be a finite number for each of 4 rows"):
        plots.rejection(CHANCES, TRUTH, doubt=[1.0])


def test_regularization_shows_every_draw_and_gamma(model, ax):
    plots.regularization(model, gamma=0.25, ax=ax)
    np.testing.assert_allclose(sum(bar.get_height() for bar in ax.patches), 1)
    ratio = model.run_.samples["precision"] / model.run_.samples["noise_variance"]
    median, gamma = ax.lines
    np.testing.assert_allclose(median.get_xdata(), np.median(ratio))
    assert set(gamma.get_xdata()) == {0.25}
    assert gamma.get_linestyle() != median.get_linestyle()  # told apart without colour
    with pytest.raises(ValueError, match="gamma must be a positive finite number"):
        plots.regularization(model, gamma=-1)
    with pytest.raises(TypeError, match="source must be a fitted BMSVMClassifier, a Run"):
        plots.regularization([1.0])
    for source in (model.run_, to_arviz(model), model.run_.samples):
        drawn = plots.regularization(source, ax=Figure().subplots())
        np.testing.assert_allclose(drawn.lines[0].get_xdata(), np.median(ratio))


def test_theta_lies_over_the_curve(model, ax):
    grid = np.geomspace(1, 4, 3)
    draws = {"lengthscale": grid[np.random.default_rng(0).integers(0, 3, (2, 50))]}
    plots.lengthscale(draws, curve(), ax=ax)
    np.testing.assert_allclose(sum(bar.get_height() for bar in ax.patches), 1)
    right = ax.figure.axes[-1]
    star = right.lines[-1]
    assert star.get_xdata()[0] == 2.0
    assert star.get_ydata()[0] == pytest.approx(0.2)
    assert words(right) == ["posterior of theta", "its minimum", "log-loss, cross-validated"]
    fixed = plots.lengthscale(model, ax=Figure().subplots())
    assert set(fixed.lines[0].get_xdata()) == {1.5}
    assert len(fixed.figure.axes) == 1
    error = plots.lengthscale(3, curve(), criterion="error", ax=Figure().subplots())
    assert error.figure.axes[-1].get_ylabel() == "error"
    with pytest.raises(ValueError, match="grid of single lengthscales"):
        plots.lengthscale(1.0, curve(grid=np.ones((5, 2))))
    with pytest.raises(ValueError, match="finished cells of 'loo'"):
        plots.lengthscale(1.0, curve(), criterion="loo")
    with pytest.raises(ValueError, match="one lengthscale for all features"):
        plots.lengthscale({"lengthscale": np.ones((2, 5, 3))})


def test_confusion_counts_rows_and_draws(model, ax):
    plots.confusion(model, X, Y, ax=ax)
    draws = confusion_draws(model, X, Y)
    assert draws.shape == (40, 3, 3)
    np.testing.assert_array_equal(draws.sum(-1), np.tile(np.bincount(CODES), (40, 1)))
    chosen = np.searchsorted(WORDS, model.predict(X))
    for i in range(3):
        for j in range(3):
            text = ax.texts[3 * i + j].get_text()
            low, high = draws[:, i, j].min(), draws[:, i, j].max()
            count, interval = text.split("\n")
            assert int(count) == np.sum((i == CODES) & (chosen == j))
            first, last = map(int, interval.split("–"))
            assert low <= first <= last <= high
    with pytest.raises(ValueError, match="same number of rows"):
        plots.confusion(model, NEW, Y)


def test_names_of_any_kind_are_only_text(model):
    hostile = ["$\\frac{", "_hidden", "a\x00\u202e\ud800" + "x" * 99]
    other = renamed(model, np.array(hostile, object))
    names = np.array(hostile, object)[CODES]
    made = plots.decision_regions(other, X, names, resolution=3, ax=Figure().subplots())
    made.figure.canvas.draw()
    assert len(words(made)) == 4
    shown = words(
        plots.ternary(other.predict_proba(X), names, classes=hostile, ax=Figure().subplots())
    )
    assert shown[0] == r"\$\frac{"
    assert shown[1].strip() == "_hidden"
    assert len(text_of(hostile[2])) == 24
    assert text_of(hostile[2]).isprintable()


def test_many_classes_differ_in_something():
    styles = [class_style(number) for number in range(80)]
    assert len(set(styles)) == 80
    assert len({style.marker for style in styles[:8]}) == 8  # readable without colour
    assert len({str(style.line) for style in styles[:4]}) == 4


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"needs Matplotlib: pip install 'bmsvm\[plots\]'"):
        plots.ternary(np.eye(3))
