"""Quasi-random points for means over a standard normal distribution."""

from __future__ import annotations

import inspect
import math

import numpy as np
from scipy.stats import qmc


def normal_points(count: int, dimension: int, seed: int) -> np.ndarray:
    """Scrambled Sobol points, transformed by the normal quantile function.

    Over random seeds each point is standard normal. Every aligned run of 2^m points is balanced:
    averages over such a run have much less variance than over independent draws. With the same seed
    a shorter sequence is the beginning of a longer one.

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
