"""Plots of predictive probabilities: what is drawn, and what cannot be drawn."""

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import binom
from small_models import WORDS

from bmsvm import plots
from bmsvm.plots.inputs import share_interval
from bmsvm.plots.reliability import reliability_table

mpl.use("Agg")
CHANCES = np.array([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.35, 0.35, 0.3], [0.0, 0.1, 0.9]])
TRUTH = np.array(["blue", "green", "red", "red"])


@pytest.fixture
def ax():
    return Figure(layout="constrained").subplots()


def words(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_ternary_puts_certain_rows_at_the_corners(ax):
    plots.ternary(np.vstack([np.eye(3), np.full((1, 3), 1 / 3)]), ax=ax)
    points = np.asarray(ax.collections[0].get_offsets())
    np.testing.assert_allclose(points[:3], [[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])
    np.testing.assert_allclose(points[3], points[:3].mean(0))
    assert ax.get_legend() is None
    named = plots.ternary(CHANCES, TRUTH, ax=Figure().subplots())
    assert words(named) == [*WORDS]
    assert [len(each.get_offsets()) for each in named.collections] == [1, 1, 2]
    with pytest.raises(ValueError, match=r"ternary .* got \(4, 2\)"):
        plots.ternary(CHANCES[:, :2])


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
    """Jeffreys' intervals at a share of 0.3 of 50; exact, no false alarms."""
    lower, upper = share_interval(np.arange(51), np.full(51, 50), 0.9)
    covered = (lower <= 0.3) & (upper >= 0.3)
    assert abs(binom(50, 0.3).pmf(np.arange(51))[covered].sum() - 0.9) < 0.03


def test_reliability_draws_its_table(ax):
    plots.reliability(CHANCES, TRUTH, bins=5, ax=ax)
    assert len(words(ax)) == 3
    table = reliability_table(CHANCES.max(1), np.array([True, True, False, True]), bins=5)
    np.testing.assert_allclose(ax.lines[1].get_xdata(), table.predicted)
    np.testing.assert_allclose(ax.lines[1].get_ydata(), table.observed)
    assert [bar.get_height() for bar in ax.patches] == list(table.upper - table.lower)
    assert [text.get_text() for text in ax.texts] == [str(count) for count in table.rows]
    assert plots.reliability(CHANCES, TRUTH, of="red", ax=ax).get_xlabel().endswith("red")
    with pytest.raises(ValueError, match="of must be"):
        plots.reliability(CHANCES, TRUTH, of="pink")


def test_probabilities_and_labels_are_checked():
    for bad, y, match in (
        (CHANCES + 0.1, TRUTH, r"probabilities\[0\]"),
        (CHANCES[0], TRUTH, r"probabilities .*\(3,\)"),
        (CHANCES, TRUTH[:3], r"y must .* 4 rows; got \(3,\)"),
        (CHANCES, np.array([TRUTH]), r"y must .* got \(1, 4\)"),
        (np.full((4, 3), np.nan), TRUTH, r"probabilities\[0\]"),
        (CHANCES * [1, -1, 1] + [0, 0.4, 0], TRUTH, r"probabilities\[1\]"),
    ):
        with pytest.raises(ValueError, match=match):
            plots.reliability(bad, y)
    with pytest.raises(ValueError, match=r"classes must .*\(2,\)"):
        plots.rejection(CHANCES, TRUTH, classes=["a", "b"])
    with pytest.raises(ValueError, match=r"^classes must be given, .* 3 columns, and y has 2"):
        plots.rejection(CHANCES, ["x", "x", "y", "y"])
    for draw in (plots.reliability, plots.rejection, plots.ternary):
        with pytest.raises(ValueError, match=r"^probabilities .*predict_proba\(X\); got Figure$"):
            draw(Figure(), None)


def test_rejection_keeps_the_surest(ax):
    plots.rejection(CHANCES, TRUTH, ax=ax)
    accuracy, expected = ax.lines
    np.testing.assert_allclose(accuracy.get_xdata(), [0.75, 0.5, 0.25, 0])
    np.testing.assert_allclose(accuracy.get_ydata(), [1, 1, 1, 0.75])  # the wrong one goes first
    np.testing.assert_allclose(
        expected.get_ydata(), np.cumsum([0.9, 0.7, 0.7, 0.35]) / [1, 2, 3, 4]
    )
    plots.rejection(CHANCES, TRUTH, doubt=[0, 1, 2, 3], ax=ax)
    np.testing.assert_allclose(ax.lines[2].get_ydata(), [1, 1, 2 / 3, 0.75])
    with pytest.raises(ValueError, match=r"doubt must .* 4 rows"):
        plots.rejection(CHANCES, TRUTH, doubt=[1.0])
