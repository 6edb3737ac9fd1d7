"""Training and test rows: section 5 of the paper.

Leave-one-out on wine and glass; ten random splits of waveform and of vehicle.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bmsvm.datasets import load_glass, load_vehicle, load_wine, make_waveform

__all__ = ["DATA", "PAPER_THETA", "Data", "Part", "load", "parts_of", "standardized"]

LEAVE_ONE_OUT = ("wine", "glass")
"""Data sets on which each row is predicted from all others."""

SPLIT_SIZES = {"waveform": (300, 4700), "vehicle": (300, 546), "vehicle3": (300, 346)}
"""Training and test rows of the other data sets."""

DATA = (*LEAVE_ONE_OUT, *SPLIT_SIZES)

PAPER_THETA: dict[str, float] = {"wine": 3.5, "glass": 10.0, "waveform": 3.5}
"""Lengthscales that the paper fixed; on vehicle it sampled."""

N_SPLITS = 10
WAVEFORM_SEED, SPLITS_SEED = 0, 1


class Data(NamedTuple):
    """Rows (n, p), labels (n,) in 0..c-1, and the number of classes c."""

    rows: np.ndarray
    labels: np.ndarray
    n_classes: int


class Part(NamedTuple):
    """Indices of the training rows, and of the test rows."""

    train: np.ndarray
    test: np.ndarray


def load(name: str) -> Data:
    """Load a data set by its name in the table."""
    if name == "wine":
        rows, labels = load_wine(return_X_y=True)
    elif name == "glass":
        rows, labels = load_glass(return_X_y=True)
    elif name == "waveform":
        rows, labels = make_waveform(5000, seed=WAVEFORM_SEED, return_X_y=True)
    elif name in ("vehicle", "vehicle3"):
        rows, labels = load_vehicle(classes=3 if name == "vehicle3" else 4, return_X_y=True)
    else:
        raise ValueError(f"data must be one of {', '.join(DATA)}; got {name!r}")
    return Data(np.asarray(rows, np.float64), np.asarray(labels), len(np.unique(labels)))


def parts_of(name: str, data: Data) -> list[Part]:
    """Parts of a data set: one for each row, or ten random ones; they do not depend on labels."""
    n = len(data.rows)
    if name in LEAVE_ONE_OUT:
        return [Part(np.delete(np.arange(n), i), np.array([i])) for i in range(n)]
    n_train, n_test = SPLIT_SIZES[name]
    parts = []
    for number in range(N_SPLITS):
        order = np.random.default_rng([SPLITS_SEED, number]).permutation(n)
        parts.append(Part(np.sort(order[:n_train]), np.sort(order[n_train : n_train + n_test])))
    return parts


def standardized(rows: np.ndarray, like: np.ndarray | None = None) -> np.ndarray:
    """Rows (m, p), shifted and scaled so that ``like`` (n, p) has mean 0 and variance 1."""
    like = rows if like is None else like
    spread = like.std(axis=0)
    return (rows - like.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
