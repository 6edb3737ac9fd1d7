"""Standard normal points that fill space more evenly than random ones."""

from __future__ import annotations

import inspect
import math

import numpy as np
import scipy.special
from scipy.stats import qmc

__all__ = ["normal_points"]

SMALLEST = 2.0**-33
"""A scrambled point may be zero to rounding; the normal quantile must be finite."""


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
    uniform = sobol.random_base2(math.ceil(math.log2(max(count, 2))))[:count]
    return scipy.special.ndtri(np.clip(uniform, SMALLEST, 1 - SMALLEST))
