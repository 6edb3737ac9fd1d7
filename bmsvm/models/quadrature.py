"""Quasi-random points for means over a standard normal distribution."""

from __future__ import annotations

import inspect
import math

import numpy as np
import scipy.special
from scipy.stats import qmc


def normal_points(count: int, dimension: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points pushed through the normal quantile function.

    Each point is standard normal over the choice of seed, and every aligned run of 2^m points is
    balanced: averages over such a run have much less variance than over independent draws. With
    the same seed a shorter sequence is the beginning of a longer one.

    Parameters
    ----------
    count
        Number of points.
    dimension
        Their dimension k.
    seed
        Seed of the scrambling.

    Returns
    -------
    numpy.ndarray
        Points, shape (count, k), float64.
    """
    argument = "rng" if "rng" in inspect.signature(qmc.Sobol).parameters else "seed"
    sobol = qmc.Sobol(dimension, bits=32, **{argument: np.random.default_rng(seed)})
    normal = qmc.MultivariateNormalQMC(np.zeros(dimension), engine=sobol)
    return normal.random(2 ** math.ceil(math.log2(max(count, 2))))[:count]


def noise_nodes(count: int, dimension: int) -> np.ndarray:
    """Points of equal weight for means over a standard normal, shape (count, k), float64.

    Their odd moments are zero and their covariance is the identity; otherwise they are
    :func:`normal_points`, or quantiles in one dimension. ``count`` is even and at least twice the
    dimension.
    """
    if dimension == 1:
        half = scipy.special.ndtri((np.arange(count // 2) + 0.5) / count)[:, None]
    else:
        half = normal_points(count // 2, dimension, seed=0)
    points = np.concatenate([half, -half])
    root = np.linalg.cholesky(points.T @ points / len(points))
    return np.linalg.solve(root, points.T).T
