"""Data sets drawn from a known distribution, so that the Bayes error is known too."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import helmert

from bmsvm._validation import check_count
from bmsvm.datasets._bunch import pack

WAVEFORM_DESCR = """\
Waveform
--------
21 features, 3 equally likely classes. A row is a random convex combination of two of the three
triangular waves h_1, h_2, h_3, plus standard normal noise. The Bayes error is about 14 %.

Source: Breiman, L., Friedman, J. H., Olshen, R. A. and Stone, C. J. (1984). Classification and
Regression Trees. Wadsworth, section 2.6.1. Generated, not read from a file.
"""

ELEVEN_DESCR = """\
Eleven classes
--------------
10 features, 11 equally likely classes. Each class is a spherical unit-variance Gaussian; the
means are the vertices of a regular simplex. The Bayes rule takes the nearest mean, and its error
is about 6 %. Generated, not read from a file.
"""

SIMPLEX_SCALE = 3.35
"""Edge length over sqrt(2) of the simplex of means; sets the Bayes error of ``make_eleven``."""


def _waves() -> np.ndarray:
    """Return the triangular waves (3, 21): h1(i) = max(6 - |i - 11|, 0), shifted by 4 and -4."""
    i = np.arange(1, 22)
    centres = np.array([11, 15, 7])  # h2(i) = h1(i - 4), h3(i) = h1(i + 4)
    return np.maximum(6.0 - np.abs(i - centres[:, None]), 0.0)


def _simplex_means(classes: int) -> np.ndarray:
    """Return the vertices (classes, classes - 1) of a regular simplex centred at the origin."""
    return SIMPLEX_SCALE * helmert(classes).T


def make_waveform(
    n_samples: int = 300, seed: int = 0, *, as_frame: bool = False, return_X_y: bool = False
) -> Any:
    """Draw Breiman's waveform data: 21 features, 3 equally likely classes.

    ``x = u h_a + (1 - u) h_b + e`` with ``u`` uniform on (0, 1), ``e`` standard normal, and
    ``(a, b)`` equal to (1, 2), (1, 3), (2, 3) in the three classes. The waves, ``i = 1..21``:
    ``h1(i) = max(6 - |i - 11|, 0)``, ``h2(i) = h1(i - 4)``, ``h3(i) = h1(i + 4)``.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    seed : int
        Seed of the generator; the same seed gives the same data.
    as_frame : bool
        Return pandas objects in place of arrays.
    return_X_y : bool
        Return ``(data, target)`` in place of the Bunch.

    Returns
    -------
    Bunch
        ``data`` (n, 21), ``target`` (n,) in 0..2, ``target_names``, ``feature_names``,
        ``frame`` (``None`` unless ``as_frame``) and ``DESCR``.
    """
    check_count("n_samples", n_samples)
    check_count("seed", seed, smallest=0)
    rng = np.random.default_rng(seed)
    target = rng.integers(3, size=n_samples)
    waves = _waves()
    first, second = waves[[0, 0, 1]], waves[[1, 2, 2]]
    u = rng.uniform(size=(n_samples, 1))
    noise = rng.standard_normal((n_samples, 21))
    return pack(
        u * first[target] + (1.0 - u) * second[target] + noise,
        target,
        feature_names=[f"x{i}" for i in range(1, 22)],
        target_names=["waves_1_2", "waves_1_3", "waves_2_3"],
        description=WAVEFORM_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )


def make_eleven(
    n_samples: int = 500, seed: int = 0, *, as_frame: bool = False, return_X_y: bool = False
) -> Any:
    """Draw a problem with many classes: 10 features, 11 Gaussian classes, Bayes error about 6 %.

    The class means are the vertices of a regular simplex and do not depend on the seed, so two
    seeds give two independent samples of one distribution.

    Parameters
    ----------
    n_samples : int
        Number of rows, n.
    seed : int
        Seed of the generator; the same seed gives the same data.
    as_frame : bool
        Return pandas objects in place of arrays.
    return_X_y : bool
        Return ``(data, target)`` in place of the Bunch.

    Returns
    -------
    Bunch
        ``data`` (n, 10), ``target`` (n,) in 0..10, ``target_names``, ``feature_names``,
        ``frame`` (``None`` unless ``as_frame``) and ``DESCR``.
    """
    check_count("n_samples", n_samples)
    check_count("seed", seed, smallest=0)
    rng = np.random.default_rng(seed)
    means = _simplex_means(11)
    target = rng.integers(11, size=n_samples)
    return pack(
        means[target] + rng.standard_normal((n_samples, 10)),
        target,
        feature_names=[f"x{i}" for i in range(1, 11)],
        target_names=[f"class_{j}" for j in range(11)],
        description=ELEVEN_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
    )
