"""Covariance functions.

A kernel object returns a function ``k(X1, X2) -> (n1, n2)`` for a lengthscale theta:
``Gaussian().at(3.5)``. Names such as ``"gaussian"`` are shorthand. Any callable
``kernel(X1, X2)``, for example a tinygp kernel, is a kernel too (:func:`as_kernel`).
Gram matrices are evaluated in float64, whatever precision JAX is set to: those of the kernels here
in NumPy, which compiles nothing, and callables with JAX arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import scipy.spatial.distance
from jax.typing import ArrayLike

from bmsvm._validation import check_count, check_positive
from bmsvm.kernels.covariance import Covariance, distances, gram

KernelFn = Callable[[jax.Array, jax.Array], jax.Array]

LARGEST_DEGREE = 1000
"""Largest degree of a polynomial kernel; higher powers overflow for almost all rows."""

BLOCK = 2**15
"""Kernel values computed at a time, as many as a processor's cache holds."""


@dataclass(frozen=True)
class Kernel:
    """A covariance function up to its lengthscale."""

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Return ``kernel(X1, X2) -> (n1, n2)``; kernels without a lengthscale ignore it."""
        raise NotImplementedError

    @staticmethod
    def log_slope(differences: np.ndarray) -> np.ndarray:
        """Return the derivative of log k by ``x_j / theta``, at ``(x_j - x'_j) / theta``.

        Kernels that are a product over the features have it: it depends on feature j alone.
        """
        raise NotImplementedError

    def __str__(self) -> str:
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Stationary(Kernel):
    """Base of the kernels that depend on ``|x - x'| / theta`` alone, with ``k(x, x) = 1``."""

    degrees_of_freedom: ClassVar[float | None]
    """Degrees of freedom of a Student spectral density; None if that density is normal."""
    metric: ClassVar[str] = "euclidean"
    """SciPy's name of the distance ``|x - x'|``: ``"euclidean"`` or ``"cityblock"``."""

    @staticmethod
    def profile(a: Any, xp: Any) -> Any:
        """``k`` as a function of ``a = |x - x'| / theta``, arrays of a module, NumPy or JAX."""
        raise NotImplementedError

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Return the kernel at theta: a positive number, or one per feature, shape (p,)."""
        return Covariance(partial(self._values, check_lengthscale(lengthscale)))

    def traced(self, lengthscale: Any) -> KernelFn:
        """Return the kernel at a lengthscale, () or (p,), that JAX may trace."""
        return lambda X1, X2: self._values(lengthscale, X1, X2, jnp)

    def _values(self, lengthscale: Any, X1: Any, X2: Any, xp: Any) -> Any:
        left, right = X1 / lengthscale, X2 / lengthscale
        if xp is jnp:
            return self.profile(distances(left, right, self.metric, jnp), jnp)
        found = np.empty((len(left), len(right)))
        rows = max(BLOCK // max(len(right), 1), 8) // 8 * 8  # whole vectors of the processor
        for start in range(0, len(left), rows):
            part = slice(start, start + rows)
            found[part] = self.profile(distances(left[part], right, self.metric, np), np)
        return found

    def frequencies(
        self, random: np.random.Generator, count: int, lengthscale: ArrayLike, n_features: int
    ) -> np.ndarray:
        """Draw frequencies (count, p) from the spectral density."""
        normal = random.standard_normal((count, n_features))
        freedom = self.degrees_of_freedom
        if freedom is not None:
            normal *= np.sqrt(freedom / random.chisquare(freedom, (count, 1)))
        return normal / np.asarray(lengthscale, np.float64)


@dataclass(frozen=True)
class Gaussian(Stationary):
    """Gaussian kernel ``exp(-|x - x'|^2 / (2 theta^2))``."""

    degrees_of_freedom: ClassVar[float | None] = None

    @staticmethod
    def profile(a: Any, xp: Any) -> Any:
        """Return the values."""
        return xp.exp(-0.5 * a**2)

    @staticmethod
    def log_slope(differences: np.ndarray) -> np.ndarray:
        """Return the derivative."""
        return -differences


@dataclass(frozen=True)
class Matern32(Stationary):
    """Matern-3/2 kernel ``(1 + a) exp(-a)``, ``a = sqrt(3) |x - x'| / theta``."""

    degrees_of_freedom: ClassVar[float | None] = 3.0

    @staticmethod
    def profile(a: Any, xp: Any) -> Any:
        """Return the values."""
        a = 3**0.5 * a
        return (1 + a) * xp.exp(-a)


@dataclass(frozen=True)
class Matern52(Stationary):
    """Matern-5/2 kernel ``(1 + a + a^2/3) exp(-a)``, ``a = sqrt(5) |x - x'| / theta``."""

    degrees_of_freedom: ClassVar[float | None] = 5.0

    @staticmethod
    def profile(a: Any, xp: Any) -> Any:
        """Return the values."""
        a = 5**0.5 * a
        return (1 + a + a**2 / 3) * xp.exp(-a)


@dataclass(frozen=True)
class Laplacian(Stationary):
    """Laplacian kernel ``exp(-sum_j |x_j - x'_j| / theta)``: a product over the features.

    Its functions may bend sharply in single features, as those of decision trees do.
    """

    degrees_of_freedom: ClassVar[float | None] = 1.0
    metric: ClassVar[str] = "cityblock"

    @staticmethod
    def profile(a: Any, xp: Any) -> Any:
        """Return the values."""
        return xp.exp(-a)

    @staticmethod
    def log_slope(differences: np.ndarray) -> np.ndarray:
        """Return the derivative; 0 at the bend."""
        return -np.sign(differences)

    def frequencies(
        self, random: np.random.Generator, count: int, lengthscale: ArrayLike, n_features: int
    ) -> np.ndarray:
        """Draw frequencies (count, p) from the spectral density: Cauchy in each feature."""
        draws = random.standard_cauchy((count, n_features))
        return draws / np.asarray(lengthscale, np.float64)


def _products(X1: Any, X2: Any, xp: Any) -> Any:
    """Inner products of rows (n1, p) and (n2, p), shape (n1, n2)."""
    return X1 @ X2.T


@dataclass(frozen=True)
class Linear(Kernel):
    """Linear kernel ``x . x'``; its Gram matrix has rank p at most."""

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Return the kernel; it has no lengthscale."""
        return Covariance(_products)


@dataclass(frozen=True)
class Polynomial(Kernel):
    """Polynomial kernel ``(x . x' / scale^2 + offset^2)^degree``."""

    degree: int = 3
    scale: float = 1.0
    offset: float = 1.0

    def __post_init__(self) -> None:
        check_count("degree", self.degree, largest=LARGEST_DEGREE)
        check_positive("scale", self.scale)
        offset: Any = self.offset
        if not isinstance(offset, int | float | np.number) or not np.isfinite(offset):
            raise ValueError(f"offset must be a finite number; got {self.offset!r}")

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Return the kernel; it has no lengthscale."""
        return Covariance(self._values)

    def _values(self, X1: Any, X2: Any, xp: Any) -> Any:
        return (_products(X1 / self.scale, X2 / self.scale, xp) + self.offset**2) ** self.degree


@dataclass(frozen=True)
class Precomputed(Kernel):
    """The rows are kernel values: X is the Gram matrix (n, n)."""

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Raise ``ValueError``: there is no function to evaluate."""
        raise ValueError('kernel="precomputed" cannot be evaluated at rows: give it as a function')


@dataclass(frozen=True)
class Function(Kernel):
    """A callable ``kernel(X1, X2) -> (n1, n2)``, such as a tinygp kernel."""

    function: KernelFn

    def at(self, lengthscale: ArrayLike | None = None) -> KernelFn:
        """Return the callable."""
        return self.function

    def __str__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(frozen=True)
class Parametric(Kernel):
    """A kernel whose parameters are sampled together with those of the model.

    Parameters
    ----------
    build
        From parameters to a kernel: ``lambda p: p["a"] * tinygp.kernels.ExpSquared(p["l"])``.
    prior
        Prior of the parameters, a pytree of continuous NumPyro distributions:
        ``{"a": LogNormal(0, 1), "l": LogNormal(0, 1)}``.
    every
        Sweeps between two proposals, each of which factors a Gram matrix.
    """

    build: Callable[[Any], KernelFn]
    prior: Any
    every: int = 10

    def __post_init__(self) -> None:
        if not callable(self.build):
            raise ValueError(
                "build must be a function from parameters to a kernel, such as "
                f"lambda p: tinygp.kernels.ExpSquared(p['scale']); got {self.build!r}"
            )
        check_count("every", self.every)
        leaves = jax.tree.leaves(self.prior, is_leaf=is_distribution)
        if not leaves or not all(is_distribution(leaf) for leaf in leaves):
            raise ValueError(
                "prior must be a NumPyro distribution, or a dict or other pytree of them; "
                f"got {self.prior!r}"
            )
        if any(leaf.support.is_discrete for leaf in leaves):
            raise ValueError("prior must be continuous distributions; got a discrete one")


def is_distribution(value: Any) -> bool:
    """Whether a value is a NumPyro distribution."""
    return isinstance(value, dist.Distribution)


NAMED: dict[str, type[Kernel]] = {
    "gaussian": Gaussian,
    "rbf": Gaussian,
    "matern32": Matern32,
    "matern52": Matern52,
    "laplacian": Laplacian,
    "linear": Linear,
    "poly": Polynomial,
    "precomputed": Precomputed,
}
"""Shorthand for kernels with default options."""


def as_kernel(kernel: Kernel | KernelFn | str) -> Kernel:
    """Return the kernel that a name, a callable or a kernel object stands for."""
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str):
        if kernel not in NAMED:
            listed = ", ".join(map(repr, NAMED))
            raise ValueError(
                f'kernel must be one of {listed}, a callable, or "auto" where the lengthscale is '
                f"chosen from the data; got {kernel!r}"
            )
        return NAMED[kernel]()
    if not callable(kernel):
        raise ValueError(
            f"kernel must be a name or a callable kernel(X1, X2) -> (n1, n2); got {kernel!r}"
        )
    return Function(kernel)


def check_lengthscale(lengthscale: Any, n_features: int | None = None) -> np.ndarray:
    """Return theta as a float64 array, shape () or (p,), or raise ``ValueError``."""
    try:
        scale = np.asarray(lengthscale)
        good = scale.dtype.kind in "fiu" and scale.ndim <= 1 and scale.size > 0
        good = good and bool(np.all(np.isfinite(scale) & (scale > 0)))
    except (TypeError, ValueError):
        good = False
    if good and n_features is not None:
        good = scale.ndim == 0 or scale.size in (1, n_features)
    if not good:
        features = "feature" if n_features is None else f"feature, of which X has {n_features}"
        raise ValueError(
            f"lengthscale must be a positive number, or one positive number per {features}; "
            f"got {lengthscale!r}"
        )
    return scale.astype(np.float64)


def own_values(kernel: Kernel, lengthscale: Any, rows: np.ndarray, part: int = 256) -> np.ndarray:
    """``k(x, x)`` of rows (n, p), shape (n,)."""
    if isinstance(kernel, Stationary):
        return np.ones(len(rows))
    function = kernel.at(lengthscale)
    parts = (rows[start : start + part] for start in range(0, len(rows), part))
    return np.concatenate([np.zeros(0), *(np.diag(gram(function, each)) for each in parts)])


def gram_of(kernel: Kernel, rows: np.ndarray, lengthscale: Any = None) -> np.ndarray:
    """Gram matrix (n, n) of rows (n, p); for a precomputed kernel the rows themselves."""
    if isinstance(kernel, Precomputed):
        return rows
    if isinstance(kernel, Stationary):
        check_lengthscale(lengthscale, rows.shape[1])
    return gram(kernel.at(lengthscale), rows)


def median_distance(rows: ArrayLike, kernel: Kernel | None = None, limit: int = 2000) -> float:
    """Median distance between different rows of (n, p), a first guess of the lengthscale.

    The distance is that of the kernel, or Euclidean if the kernel has none or is not given. Pairs
    of equal rows do not count; the result is 1 if there are no other pairs. At most ``limit`` rows,
    evenly spaced, are used.
    """
    given = np.asarray(rows)
    some = given[:: -(-len(given) // limit)].astype(np.float64)
    metric = kernel.metric if isinstance(kernel, Stationary) else Stationary.metric
    distances = scipy.spatial.distance.pdist(some, metric)
    apart = distances[distances > 0]
    return float(np.median(apart)) if apart.size else 1.0
