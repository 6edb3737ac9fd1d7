"""Covariance functions, the factorisation of Gram matrices, and low-rank approximations."""

from bmsvm.kernels.covariance import Covariance, gram
from bmsvm.kernels.factor import Factor, factorize
from bmsvm.kernels.functions import (
    Function,
    Gaussian,
    Kernel,
    KernelFn,
    Laplacian,
    Linear,
    Matern32,
    Matern52,
    Parametric,
    Polynomial,
    Precomputed,
    Stationary,
    as_kernel,
    median_distance,
)
from bmsvm.kernels.low_rank import Approximation, BasisMap, Fourier, Nystrom

__all__ = [
    "Approximation",
    "BasisMap",
    "Covariance",
    "Factor",
    "Fourier",
    "Function",
    "Gaussian",
    "Kernel",
    "KernelFn",
    "Laplacian",
    "Linear",
    "Matern32",
    "Matern52",
    "Nystrom",
    "Parametric",
    "Polynomial",
    "Precomputed",
    "Stationary",
    "as_kernel",
    "factorize",
    "gram",
    "median_distance",
]
