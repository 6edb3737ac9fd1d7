"""Scaling of features before a kernel sees them: learned from rows, applied, inverted."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.preprocessing import StandardScaler

from bmsvm._validation import check_choice, check_matrix

Standardize = bool | Literal["auto", "robust", "standard"] | None
"""Type of the parameter ``standardize`` of estimators."""

LIMIT = 5.0
"""Limit of the smooth clip, in robust standard deviations from the median."""

NORMAL_IQR = 1.349
"""Interquartile range of a normal distribution of variance 1."""

SAMPLE_ROWS = 100_000
"""Rows from which medians and quartiles are learned, if there are more."""

SAMPLE_SIZE = 2**24
"""Numbers from which they are learned, if so many rows have more."""

LARGEST = np.finfo(np.float64).max
EPS = np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class Scaling:
    """Shift, scale and smooth clip of each feature. All fields have shape (p,).

    A value x becomes ``relevance (v - mean_after) / scale_after`` with ::

        u = (x - centre) / scale,   v = u / sqrt(1 + (u / limit)^2)

    Far below the limit v is nearly u; it never exceeds the limit.

    Parameters
    ----------
    centre, scale
        Shift and scale of the values.
    limit
        Limit of the clip; infinite for no clip.
    mean_after, scale_after
        Shift and scale of clipped values.
    relevance
        Factor of the scaled values: 1, unless learned from the labels
        (:mod:`bmsvm.selection.relevance`).
    """

    centre: np.ndarray
    scale: np.ndarray
    limit: np.ndarray
    mean_after: np.ndarray
    scale_after: np.ndarray
    relevance: np.ndarray

    def __post_init__(self) -> None:
        shape = np.shape(self.centre)
        for field in fields(self):
            value = np.asarray(getattr(self, field.name))
            if value.ndim != 1 or value.shape != shape:
                raise ValueError(
                    f"{field.name} must have one number for each feature, as centre of shape "
                    f"{shape} has; got shape {value.shape}"
                )
            positive = field.name not in ("centre", "mean_after")
            finite = field.name != "limit"
            if (positive and not np.all(value > 0)) or (finite and not np.isfinite(value).all()):
                kind = " and ".join(["positive"] * positive + ["finite"] * finite)
                raise ValueError(f"{field.name} must be {kind}; got {value}")

    def apply(self, rows: np.ndarray) -> np.ndarray:
        """Return scaled rows (m, p). Rows that are finite stay finite."""
        if np.shape(rows)[-1:] != self.centre.shape:
            raise ValueError(
                f"rows must have {len(self.centre)} columns, as those have that the scaling was "
                f"learned from; got shape {np.shape(rows)}"
            )
        return (self._clipped(rows) - self.mean_after) / self.scale_after * self.relevance

    def invert(self, rows: np.ndarray) -> np.ndarray:
        """Return the rows (m, p) that :meth:`apply` takes to these.

        The inverse of the clip is ``u = v / sqrt(1 - (v / limit)^2)``. Values of v at the limit or
        beyond have no inverse and are taken as just inside: u is then about 5e7 limits. The
        relative error of u is about 1e-16 (u / limit)^2.
        """
        scaled = np.asarray(rows, np.float64) / self.relevance
        v = scaled * self.scale_after + self.mean_after
        share = np.clip(v / self.limit, EPS - 1, 1 - EPS)
        v = np.clip(v, -self.limit, self.limit)
        with np.errstate(over="ignore"):
            return _finite(v / np.sqrt((1 - share) * (1 + share)) * self.scale + self.centre)

    def _clipped(self, rows: np.ndarray) -> np.ndarray:
        """Return v at rows (m, p)."""
        with np.errstate(over="ignore"):
            u = _finite(_finite(np.asarray(rows, np.float64) - self.centre) / self.scale)
        return u / np.hypot(1, u / self.limit)


def as_standardize(value: Any) -> Literal["robust", "standard"] | None:
    """Return which scaling the parameter ``standardize`` means; None for none."""
    if value is None or isinstance(value, bool | np.bool_):
        return "robust" if value else None
    if isinstance(value, str) and value in ("auto", "robust", "standard"):
        return "standard" if value == "standard" else "robust"
    raise ValueError(
        'standardize must be "auto", "robust" (or True), "standard", or False (or None) for no '
        f"scaling; got {value!r}"
    )


def learn(
    rows: ArrayLike, how: Literal["robust", "standard"], weights: np.ndarray | None = None
) -> Scaling:
    """Learn the scaling of rows (n, p).

    Parameters
    ----------
    rows
        Finite rows.
    how
        ``"robust"``: the centre is the median, the scale the interquartile range / 1.349, the
        limit 5; clipped values are scaled to mean 0 and variance 1. If the interquartile range is
        0, the scale is the standard deviation. ``"standard"``: mean and standard deviation,
        without a clip. Constant features have the scale 1, or more if rounding errors of equal
        values would not be small in it.
    weights
        Weights (n,) of the rows, for ``"standard"``. ``"robust"`` gives all rows the same weight.

    Notes
    -----
    ``"robust"`` learns from at most 100,000 rows and 2^24 numbers, a random sample that depends
    only on the shape of the rows.
    """
    check_choice("how", how, ("robust", "standard"))
    values = check_matrix(rows)
    if how == "standard":
        return _standard(values, weights)
    return _robust(_sample(values))


def _standard(rows: np.ndarray, weights: np.ndarray | None) -> Scaling:
    scaler = StandardScaler().fit(rows, sample_weight=weights)
    bad = np.flatnonzero(~np.isfinite(scaler.scale_))
    if len(bad):
        raise ValueError(
            f'X must have features of finite variance with standardize="standard"; that of feature '
            f'{bad[0]} overflows: use standardize="robust"'
        )
    none, one = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    return Scaling(scaler.mean_, scaler.scale_, np.inf * one, none, one, one)


def _sample(rows: np.ndarray) -> np.ndarray:
    """Return all rows, or a random sample of them in their order, in float64."""
    n, p = rows.shape
    count = min(SAMPLE_ROWS, max(SAMPLE_SIZE // p, 1))
    if n > count:
        rows = rows[np.sort(np.random.default_rng(0).choice(n, count, replace=False))]
    return np.asarray(rows, np.float64)


def _robust(rows: np.ndarray) -> Scaling:
    # A quarter of the rows: differences of large finite numbers then do not overflow.
    low, middle, high = np.percentile(rows / 4, [25, 50, 75], axis=0)
    centre = 4 * middle
    with np.errstate(over="ignore"):
        scale = _finite(4 * ((high - low) / NORMAL_IQR))
    rounding = 8 * EPS * np.abs(centre)  # equal values may differ by rounding errors
    for j in np.flatnonzero(scale <= rounding):
        scale[j] = _deviation(rows[:, j], centre[j])
    constant = scale <= rounding
    scale = np.where(constant, np.maximum(1, np.sqrt(EPS) * np.abs(centre)), scale)
    none, one = np.zeros(len(scale)), np.ones(len(scale))
    v = Scaling(centre, scale, LIMIT * one, none, one, one).apply(rows)
    after = np.where(constant, 1, v.std(axis=0))
    return Scaling(centre, scale, LIMIT * one, v.mean(axis=0), after, one)


def _deviation(values: np.ndarray, centre: float) -> float:
    """Return the standard deviation of values (n,), whose squares may overflow or underflow."""
    with np.errstate(over="ignore"):
        distances = _finite(values - centre)
    largest = np.abs(distances).max()
    return float(largest * np.std(distances / largest)) if largest > 0 else 0.0


def _finite(values: np.ndarray) -> np.ndarray:
    """Return the nearest finite numbers."""
    return np.clip(values, -LARGEST, LARGEST)
