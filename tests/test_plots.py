"""Plots of fitted models: what is drawn, on which axes, and what cannot be drawn."""

import sys
from pathlib import Path

import arviz as az
import matplotlib as mpl
import numpy as np
import pytest
from few_draws import few_draws
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from small_models import CODES, NEW, WORDS, X, Y, fit, renamed

from bmsvm import BMSVMClassifier, Nystrom, plots
from bmsvm.plots.confusion import confusion_draws
from bmsvm.plots.regions import support_share
from bmsvm.plots.style import class_style, text_of

mpl.use("Agg")
N = len(X)


@pytest.fixture(scope="module")
def model():
    return fit()


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


EVERY = {
    "decision_regions": lambda m, ax: plots.decision_regions(m, X, Y, resolution=8, ax=ax),
    "ternary": lambda m, ax: plots.ternary(m.predict_proba(X), Y, classes=m.classes_, ax=ax),
    "margins": lambda m, ax: plots.margins(m, ax=ax),
    "reliability": lambda m, ax: plots.reliability(m.predict_proba(X), Y, ax=ax),
    "regularization": lambda m, ax: plots.regularization(m, gamma=0.1, ax=ax),
    "lengthscale": lambda m, ax: plots.lengthscale(m, ax=ax),
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
    functions = model.predictive_.sample(model.standardized_rows(X)).functions
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


@pytest.mark.filterwarnings("error")
def test_principal_components_are_those_of_the_scaled_rows(model, ax):
    far = X.copy()
    far.iloc[0, 0] = 1e300  # clipped by the scaling; the plane bounds its picture
    plots.decision_regions(model, far, Y, resolution=3, projection="pca", ax=ax)
    drawn = np.concatenate([each.get_offsets() for each in ax.collections[-4:-1]])
    expected = PCA(2).fit_transform(model.standardized_rows(far))[np.argsort(CODES, kind="stable")]
    np.testing.assert_allclose(np.abs(drawn), np.abs(expected), atol=1e-12)
    rows = model.standardized_rows(far)
    again = model.scaling_.apply(model.in_original_units(rows))
    np.testing.assert_allclose(again, rows)


def test_regions_that_cannot_be_drawn(model):
    def refuses(match, *args, **settings):
        with pytest.raises(ValueError, match=match):
            plots.decision_regions(*(args or (model, X)), **settings)

    refuses("features must be .*'depth'", features=["width", "depth"])
    refuses("features must be .*'width'", features=["width"])
    refuses("features and projection", features=[0, 1], projection="pca")
    refuses("projection must be .*'umap'", projection="umap")
    refuses(r"X must have shape \(n, 2\)", model, X.to_numpy()[:, :1])
    refuses("resolution must be", resolution=1)
    refuses("y must have labels .*'pink'", model, X, ["pink"] * N, resolution=2)
    refuses(r"y must .* 18 rows; got \(17,\)", model, X, Y[:-1], resolution=2)
    with pytest.raises(TypeError, match=r"model must be .*PCA"):
        plots.decision_regions(PCA(), X)
    with pytest.raises(ValueError, match="not fitted yet"):
        plots.decision_regions(BMSVMClassifier(), X)


def test_margins_part_own_rows_from_others_at_the_hinge(model, ax):
    plots.margins(model, ax=ax)
    means = model.posterior_.samples["scores"].mean((0, 1))[:N]
    for number in range(3):
        own, others = ax.collections[2 * number : 2 * number + 2]
        drawn = np.asarray(own.get_offsets())[:, 0]
        np.testing.assert_allclose(np.sort(drawn), np.sort(means[number == CODES, number]))
        assert len(others.get_offsets()) == N - len(drawn)
        assert not len(others.get_facecolors())  # hollow
    (hinge,) = ax.lines
    assert set(hinge.get_xdata()) == {-0.5}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == WORDS.tolist()
    with pytest.raises(TypeError, match="source must be a fitted classifier or ArviZ data"):
        plots.margins({"precision": np.ones((2, 3))})


def test_margins_of_arviz_data_are_the_mean_scores(ax):
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
    with pytest.raises(ValueError, match=r"y must .* 5 rows; got \(18,\)"):
        plots.confusion(model, NEW, Y)


def test_a_confusion_matrix_of_many_classes_has_counts_only(ax):
    """Empty cells stay empty; the counts add up to the rows."""
    codes = np.arange(45) % 15
    rows = np.random.default_rng(0).normal(size=(45, 2)) + codes[:, None]
    with few_draws():
        model = BMSVMClassifier(
            likelihood="squared", lengthscale=1.0, num_chains=1, num_samples=12, random_state=0
        ).fit(rows, codes)
    plots.confusion(model, rows, codes, ax=ax)
    counts = [int(each.get_text()) for each in ax.texts]
    assert sum(counts) == 45
    assert min(counts) > 0
    assert [each.get_rotation() for each in ax.get_xticklabels()] == [0.0] * 15  # short names


def test_a_legend_of_many_classes_is_beside_the_regions():
    codes = np.arange(60) % 20
    rows = np.random.default_rng(0).normal(size=(60, 2)) + codes[:, None]
    with few_draws():
        model = BMSVMClassifier(
            likelihood="squared", lengthscale=1.0, num_chains=1, num_samples=12, random_state=0
        ).fit(rows, codes)
    ax = Figure(figsize=(8.4, 3.7), layout="constrained").subplots()
    plots.decision_regions(model, rows, codes, resolution=4, ax=ax)
    ax.figure.draw_without_rendering()
    legend, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert legend.x0 >= inside.x1
    whole = ax.figure.bbox
    assert whole.x0 <= legend.x0 <= legend.x1 <= whole.x1
    assert whole.y0 <= legend.y0 <= legend.y1 <= whole.y1


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
    with pytest.raises(ImportError, match=r"pip install 'bmsvm\[plots\]'"):
        plots.ternary(np.eye(3))


def test_margins_without_scores_are_the_functions(ax):
    """The table draws no scores with low rank."""
    model = fit(approximation=Nystrom(rank=5), likelihood="squared", sampler="table")
    assert "scores" not in model.posterior_.samples
    plots.margins(model, ax=ax)
    drawn = np.asarray(ax.collections[0].get_offsets())[:, 0]
    functions = model.class_functions(X)
    np.testing.assert_allclose(np.sort(drawn), np.sort(functions[CODES == 0, 0]), rtol=1e-5)


def test_plots_do_not_import_the_classifier():
    for path in Path(plots.__file__).parent.glob("*.py"):
        assert "bmsvm.classifier" not in path.read_text(encoding="utf-8")
