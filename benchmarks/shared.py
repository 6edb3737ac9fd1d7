"""Data, stop-watch and files of results of the benchmarks."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jax
import numpy as np
from sklearn.preprocessing import StandardScaler

from bmsvm import datasets

TRAINING_ROWS = {"wine": 120, "glass": 150, "vehicle": 300, "waveform": 300, "eleven": 500}
GENERATED = {"waveform": datasets.make_waveform, "eleven": datasets.make_eleven}


def training_and_held_out(name: str, held_out: int):
    """One split: standardised training rows, their classes, and at most so many rows held out."""
    n = TRAINING_ROWS[name]
    if name in GENERATED:
        X, y = GENERATED[name](n + held_out, seed=0, return_X_y=True)
    else:
        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))[: n + held_out]
    X, y = X[order], np.unique(y, return_inverse=True)[1][order]
    rows = StandardScaler().fit(X[:n]).transform(X)
    return rows[:n], y[:n], rows[n:], y[n:]


def seconds_of(action):
    """Seconds that an action takes, until its arrays are there, and what it returns."""
    began = time.perf_counter()
    result = jax.block_until_ready(action())
    return time.perf_counter() - began, result


def kept(output: Path) -> list[dict]:
    """Records of a file of JSON lines; none if there is no file."""
    return [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
