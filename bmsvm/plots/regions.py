"""Regions of the classes over two features or a projection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from bmsvm._inputs import is_precomputed
from bmsvm._validation import check_count, check_probability
from bmsvm.models.likelihoods import margin_offset
from bmsvm.plots.inputs import check_model, codes_of
from bmsvm.plots.style import (
    Axes,
    axes_or_new,
    class_style,
    legend_beside,
    mark_class,
    text_of,
)
from bmsvm.prediction.uncertainty import entropy

PALEST, STRONGEST = 0.08, 0.62
"""Share of a class's colour at the largest entropy, and at entropy zero."""

MOST_INSIDE = 5
"""Number of classes above which the legend is beside the regions."""

DARK = "#202020"
"""Colour of what is drawn on the regions, which are light in any style."""


class Plane(NamedTuple):
    """A plane through the space of the features.

    points_of
        Rows (n, p) to points (n, 2) of the plane.
    rows_at
        Points (g, 2) to rows (g, p) that lie in the plane.
    names
        Names of the two axes.
    """

    points_of: Callable[[np.ndarray], np.ndarray]
    rows_at: Callable[[np.ndarray], np.ndarray]
    names: tuple[str, str]


def decision_regions(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    features: Sequence[Any] | None = None,
    projection: Any = None,
    resolution: int = 60,
    support: float = 0.5,
    ax: Axes | None = None,
) -> Axes:
    """Draw the most probable class over a plane, paler where the predictive entropy is larger.

    Dotted lines are where the entropy is half of its maximum. With labels, rows are drawn with the
    marker of their class, and support-like rows have a ring: those whose function for some other
    class is beyond the hinge, f_j > -1/(c - 1), in at least ``support`` of the draws. With
    ``likelihood="squared"`` there is no hinge, all rows support, and none has a ring. Rows are
    drawn at their projections; the regions are those of the plane itself.

    Parameters
    ----------
    model
        A fitted classifier.
    X, y
        Rows (n, p) in the units of the data, and optionally their labels (n,).
    features
        Two features, by name or index; the others are held at their medians over X.
    projection
        ``"pca"``, the first two principal components of the standardised rows; or an object with
        ``transform`` and ``inverse_transform`` between rows (n, p) and points (n, 2). Default:
        the features if there are two, else ``"pca"``.
    resolution
        Number of points along each axis.
    support
        Share of the draws from which on a row is support-like.
    ax
        Axes to draw on; new ones if None.

    Returns
    -------
    matplotlib.axes.Axes
        An image of the regions, the lines, and a collection of points for each class.
    """
    check_count("resolution", resolution, smallest=2)
    check_probability("support", support)
    if is_precomputed(check_model(model).kernel):
        raise ValueError("decision_regions needs a model of features; its kernel is precomputed")
    rows = np.asarray(X, np.float64)
    if rows.ndim != 2 or rows.shape[1] != model.n_features_in_:
        raise ValueError(f"X must have shape (n, {model.n_features_in_}); got {rows.shape}")
    codes = None if y is None else codes_of(y, model.classes_, len(rows))
    plane = _plane(model, rows, features, projection)
    points = plane.points_of(rows)
    low, high = points.min(0), points.max(0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    axes = [np.linspace(a, b, resolution) for a, b in zip(low - margin, high + margin, strict=True)]
    grid = plane.rows_at(np.stack([each.ravel() for each in np.meshgrid(*axes)], axis=1))
    named = type(X)(grid, columns=X.columns) if hasattr(X, "columns") else grid
    ax = axes_or_new(ax)
    _draw_regions(ax, axes, model.predict_proba(named).reshape(resolution, resolution, -1))
    if codes is not None:
        for number, name in enumerate(model.classes_):
            mark_class(ax, points[codes == number], number, name, edge=DARK)
        if model.posterior_.problem.likelihood != "squared":
            ring: dict[str, Any] = {"facecolors": "none", "edgecolors": DARK, "linewidths": 0.8}
            first, second = points[support_share(model, X, codes) >= support].T
            ax.scatter(first, second, s=60, label="support-like", **ring)
        if len(model.classes_) > MOST_INSIDE:
            legend_beside(ax)
        else:
            dark: dict[str, Any] = {"facecolor": "white", "edgecolor": DARK, "labelcolor": DARK}
            ax.legend(fontsize="small", loc="best", **dark)
    ax.set(xlabel=plane.names[0], ylabel=plane.names[1])
    return ax


def support_share(model: Any, X: Any, codes: np.ndarray) -> np.ndarray:
    """Share of the draws in which the function of another class is beyond the hinge: shape (n,)."""
    posterior = model.posterior_
    hinge = -margin_offset(posterior.n_classes)
    shares = []
    for part in posterior.evaluate(model.standardized_rows(X), probabilities=False, points=1):
        beyond = part.functions > hinge  # (m, c, s)
        beyond[np.arange(len(beyond)), codes[part.rows]] = False
        shares.append(beyond.any(axis=1).mean(axis=-1))
    return np.concatenate(shares)


def _draw_regions(ax: Axes, axes: list[np.ndarray], chances: np.ndarray) -> None:
    """Draw probabilities (g, g, c), with the second coordinate on the first axis."""
    from matplotlib.colors import to_rgb

    c = chances.shape[-1]
    doubt = entropy(chances) / np.log(c)
    colours = np.array([to_rgb(class_style(j).colour) for j in range(c)])
    strength = (PALEST + (STRONGEST - PALEST) * (1 - doubt))[..., None]
    picture = 1 - strength * (1 - colours[chances.argmax(-1)])
    extent = (axes[0][0], axes[0][-1], axes[1][0], axes[1][-1])
    ax.imshow(picture, origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    for j in range(c):
        lead = chances[..., j] - np.delete(chances, j, axis=-1).max(-1)
        if lead.min() < 0 < lead.max():
            ax.contour(*axes, lead, levels=[0], colors=DARK, linewidths=1.0)
    if doubt.min() < 0.5 < doubt.max():
        ax.contour(*axes, doubt, levels=[0.5], colors=DARK, linewidths=0.8, linestyles=":")


def _plane(model: Any, rows: np.ndarray, features: Sequence[Any] | None, projection: Any) -> Plane:
    p = rows.shape[1]
    if features is not None and projection is not None:
        raise ValueError("features and projection exclude each other; give one of them")
    if p < 2:
        raise ValueError("decision_regions needs at least two features; the model has one")
    if features is None and projection is None:
        features, projection = ((0, 1), None) if p == 2 else (None, "pca")
    if features is not None:
        return _two_features(model, rows, features)
    if isinstance(projection, str) and projection == "pca":
        return _principal(model, rows)
    if not (hasattr(projection, "transform") and hasattr(projection, "inverse_transform")):
        raise ValueError(
            f'projection must be "pca" or have transform and inverse_transform; got {projection!r}'
        )
    points = np.asarray(projection.transform(rows))
    if points.shape != (len(rows), 2):
        raise ValueError(f"projection must give points (n, 2); got {points.shape}")
    return Plane(
        lambda rows: np.asarray(projection.transform(rows)),
        lambda points: np.asarray(projection.inverse_transform(points)),
        ("first coordinate", "second coordinate"),
    )


def _two_features(model: Any, rows: np.ndarray, features: Sequence[Any]) -> Plane:
    names = list(getattr(model, "feature_names_in_", range(model.n_features_in_)))
    places = []
    for feature in features:
        known = feature in names
        if not known and not (isinstance(feature, int | np.integer) and 0 <= feature < len(names)):
            raise ValueError(
                f"features must be two of {names[:12]}, or their indices; got {feature!r}"
            )
        places.append(names.index(feature) if known else int(feature))
    if len(places) != 2 or places[0] == places[1]:
        raise ValueError(f"features must be two different features; got {list(features)!r}")
    middle = np.median(rows, axis=0)

    def rows_at(points: np.ndarray) -> np.ndarray:
        filled = np.tile(middle, (len(points), 1))
        filled[:, places] = points
        return filled

    first, second = (
        text_of(names[i]) if isinstance(names[i], str) else f"feature {names[i]}" for i in places
    )
    return Plane(lambda rows: rows[:, places], rows_at, (first, second))


def _principal(model: Any, rows: np.ndarray) -> Plane:
    """Return the first two principal components of the standardised rows."""

    def scaled_of(rows: np.ndarray) -> np.ndarray:
        return rows if model.scaling_ is None else model.scaling_.apply(rows)

    scaled = scaled_of(rows)
    centre = scaled.mean(0)
    _, _, axes = np.linalg.svd(scaled - centre, full_matrices=False)
    if len(axes) < 2:
        raise ValueError(f'projection="pca" needs at least two rows in X; got {len(rows)}')
    axes = axes[:2] * np.sign(axes[:2][np.arange(2), abs(axes[:2]).argmax(1)])[:, None]
    return Plane(
        lambda rows: (scaled_of(rows) - centre) @ axes.T,
        lambda points: model.in_original_units(points @ axes + centre),
        ("first principal component", "second principal component"),
    )
