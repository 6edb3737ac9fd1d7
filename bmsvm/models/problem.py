"""The data and the model of a classification problem, as one pytree."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm._arrays import for_pickling, unpickled
from bmsvm.kernels.factor import Factor
from bmsvm.kernels.low_rank import BasisMap
from bmsvm.models.couplings import n_columns
from bmsvm.models.family import constrained, family_factor, named_parameters
from bmsvm.models.hyperparameters import Hyperparameters
from bmsvm.models.theta import Design, KernelFamily, KernelGrid, KernelPoint, masked_design

Kernel = jax.Array | KernelPoint | None
"""A value of theta: its index in the grid, a point off it, or None if theta is fixed."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Problem:
    """The data and the model: all that the posterior depends on. A pytree of arrays."""

    labels: jax.Array
    """Class index of each row, shape (n,)."""
    factor: Factor
    """K = U diag(lambda) U'."""
    masked: Design | None
    """The designs of the ``independent`` coupling; None for ``sum_to_zero``: it uses ``factor``."""
    hyper: Hyperparameters
    n_classes: int = field(metadata={"static": True})
    coupling: str = field(metadata={"static": True})
    likelihood: str = field(metadata={"static": True})
    grid: KernelGrid | None = None
    """Values of theta, if it is sampled on a grid; ``factor`` and ``masked`` are those of one."""
    family: KernelFamily | None = None
    """The kernels, if theta is sampled off a grid; as above."""
    row_weights: jax.Array | None = None
    """Weight of each row's log likelihood, shape (n,); None if all are one."""
    basis_map: BasisMap | None = None
    """The map from rows to the basis, if ``factor`` is an approximation of low rank."""
    remainder: jax.Array | None = None
    """``k(x, x) - |Phi(x)|^2`` of each row, shape (n,), of such a factor; None if it is zero."""

    def __repr__(self) -> str:
        """Return the sizes and the model; the arrays would fill pages."""
        sizes = f"{self.n_rows} rows, {self.n_classes} classes"
        return f"Problem({sizes}, {self.likelihood}, {self.coupling})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: for_pickling(value) for name, value in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        static = {each.name for each in fields(self) if each.metadata.get("static")}
        for name, value in state.items():  # the number of classes is no array
            self.__dict__[name] = value if name in static else unpickled(value)

    @property
    def samples_kernel(self) -> bool:
        """Whether theta is a parameter."""
        return self.grid is not None or self.family is not None

    def at(self, kernel: Kernel) -> Problem:
        """Return the problem at a value of theta; itself if theta is fixed."""
        if kernel is None:
            return self
        if isinstance(kernel, KernelPoint):
            return replace(self, factor=kernel.factor, masked=kernel.masked)
        grid = cast(KernelGrid, self.grid)
        factor, masked, basis_map, remainder = jax.tree.map(
            lambda leaf: leaf[kernel],
            (grid.factors, grid.masked, grid.basis_map, grid.remainder),
        )
        return replace(self, factor=factor, masked=masked, basis_map=basis_map, remainder=remainder)

    def kernel_point(self, parameters: Any) -> KernelPoint:
        """Factor the Gram matrix at unconstrained parameters off the grid."""
        factor = family_factor(parameters, cast(KernelFamily, self.family))
        masked = None
        if self.coupling == "independent":
            masked = masked_design(factor, self.labels, self.n_classes)
        return KernelPoint(parameters, factor, masked)

    def first_kernel(self) -> Kernel:
        """Value of theta at which chains begin."""
        if self.family is not None:
            return KernelPoint(self.family.start, self.factor, self.masked)
        return None if self.grid is None else self.grid.start

    def kernel_values(self, kernel: Kernel) -> dict[str, jax.Array]:
        """Theta by name: ``lengthscale``, or a family's parameters; empty if it is fixed."""
        if self.grid is not None:
            return {"lengthscale": self.grid.values[kernel]}
        if self.family is not None:
            parameters = cast(KernelPoint, kernel).unconstrained
            return named_parameters(constrained(parameters, self.family))
        return {}

    @property
    def n_rows(self) -> int:
        """Number of rows n."""
        return self.labels.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of free columns k."""
        return n_columns(self.coupling, self.n_classes)

    @property
    def n_scores(self) -> int:
        """Number of free scores, n(c - 1): the size of the set S."""
        return self.n_rows * (self.n_classes - 1)

    @property
    def rank(self) -> jax.Array:
        """Numerical rank of K."""
        return jnp.sum(self.factor.eigenvalues > 0)

    @property
    def design(self) -> Design:
        """The designs of the columns, for either coupling."""
        if self.masked is not None:
            return self.masked
        basis, eigenvalues = self.factor
        mask = jnp.ones((1, self.n_rows), basis.dtype)
        return Design(basis[None], eigenvalues[None], None, mask)

    @property
    def spans(self) -> bool:
        """Whether the basis spans all rows, so that U'T determines the columns T."""
        return self.masked is None and self.factor.basis.shape[0] == self.factor.basis.shape[1]


def check_precision(problem: Problem) -> None:
    """Raise ``ValueError`` if a problem was prepared in another precision than JAX now has."""
    # The basis may be in float32 by choice (``Nystrom(dtype="float32")``), the rest is not.
    now, then = jnp.result_type(float), problem.factor.eigenvalues.dtype
    if now != then:
        raise ValueError(
            f"problem must have the precision of JAX; it was prepared in {then}, and JAX is "
            f"now in {now}: prepare it again, or set jax_enable_x64 as it was"
        )


def with_spare_rows(factor: Factor, count: int) -> Factor:
    """Factor of ``K`` with rows and columns of zeros added; a complete basis stays complete."""
    basis, eigenvalues = (np.asarray(part) for part in factor)
    n, r = basis.shape
    if count == 0:
        return factor
    if r < n:
        return Factor(cast(jax.Array, np.pad(basis, ((0, count), (0, 0)))), factor.eigenvalues)
    wider = np.pad(basis, ((0, count), (0, count)))
    wider[n:, n:] = np.eye(count)
    return Factor(cast(jax.Array, wider), cast(jax.Array, np.pad(eigenvalues, (0, count))))


def chosen_rows(n_rows: int, count: int) -> np.ndarray:
    """Return the increasing indices of at most ``count`` rows, the same in every call.

    They are drawn at random with a fixed seed: evenly spaced rows would follow a pattern in the
    order of the labels.
    """
    if count >= n_rows:
        return np.arange(n_rows)
    return np.sort(np.random.default_rng(0).choice(n_rows, count, replace=False))
