"""Data sets of the benchmark of probabilities, and their paired splits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from bmsvm import datasets

FOLDER = Path(__file__).with_name("data")
TRAINING_ROWS = {
    "wine": 120,
    "glass": 150,
    "vehicle": 300,
    "vehicle3": 300,
    "waveform": 300,
    "digits": 300,
    "cancer": 200,
    "eleven": 500,
    "segment": 400,
    "optdigits": 400,
    "yeast": 500,
    "ecoli": 200,
    "page_blocks": 500,
}
TEST_ROWS = 1500


class Split(NamedTuple):
    """Raw rows, shapes (n, p) and (m, p), and classes 0, ..., c - 1, shapes (n,) and (m,)."""

    train: np.ndarray
    test: np.ndarray
    train_labels: np.ndarray
    test_labels: np.ndarray


def load_file(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, p) and classes (n,) of a file in ``benchmarks/data``."""
    table = np.loadtxt(FOLDER / f"{name}.csv.gz", delimiter=",", skiprows=1)
    return table[:, :-1], table[:, -1]


def load(name: str, split: int) -> tuple[np.ndarray, np.ndarray]:
    """All rows and their classes, numbered from 0; waveform is generated anew for each split."""
    if name == "waveform":
        X, y = datasets.make_waveform(2300, seed=split, return_X_y=True)
    elif name == "eleven":
        X, y = datasets.make_eleven(2000, seed=0, return_X_y=True)
    elif name == "vehicle3":
        X, y = datasets.load_vehicle(classes=3, return_X_y=True)
    elif name == "digits":
        X, y = load_digits(return_X_y=True)
    elif name == "cancer":
        X, y = load_breast_cancer(return_X_y=True)
    elif (FOLDER / f"{name}.csv.gz").exists():
        X, y = load_file(name)
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return X, np.unique(y, return_inverse=True)[1]


def stratified_split(name: str, split: int) -> Split:
    """Training rows and at most ``TEST_ROWS`` test rows: the same for every classifier."""
    X, y = load(name, split)
    train, test, label, truth = train_test_split(
        X, y, train_size=TRAINING_ROWS[name], stratify=y, random_state=split
    )
    return Split(train, test[:TEST_ROWS], label, truth[:TEST_ROWS])
