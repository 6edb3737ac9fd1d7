"""Rows and chains spread over devices, of one process or of several.

The sampler knows nothing of devices. Arrays are placed on a mesh with the axes ``"rows"`` and
``"chains"``, and the compiler splits the sweep along with them: each device holds its rows of the
basis and of the scores, and devices exchange only sums over rows, of the size of the rank and not
of the data. Where an array is placed changes no result, up to the rounding of those sums; random
numbers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bmsvm._validation import check_count
from bmsvm.models.problem import Problem, some_rows

__all__ = [
    "CHAINS",
    "ROWS",
    "beside",
    "make_mesh",
    "place_chains",
    "place_problem",
    "row_parts",
    "some_rows_here",
    "to_host",
]

ROWS, CHAINS = "rows", "chains"


def make_mesh(
    rows: int | None = None, chains: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """Return devices as a mesh of ``rows`` by ``chains``.

    Parameters
    ----------
    rows
        Parts into which rows are split. Default: as many as there are devices for.
    chains
        Parts into which chains are split.
    devices
        Default: all devices, those of other processes included (``jax.distributed``).
    """
    found = list(jax.devices() if devices is None else devices)
    check_count("chains", chains)
    rows = len(found) // chains if rows is None else rows
    check_count("rows", rows)
    if rows * chains > len(found):
        raise ValueError(
            f"rows and chains must need no more than the {len(found)} devices there are; "
            f"got {rows} x {chains}"
        )
    return Mesh(np.array(found[: rows * chains]).reshape(rows, chains), (ROWS, CHAINS))


def place_problem(problem: Problem, mesh: Mesh, *, local: bool = False) -> Problem:
    """Spread the rows of a problem over a mesh.

    Parameters
    ----------
    problem
        A prepared problem.
    mesh
        From :func:`make_mesh`.
    local
        Whether each process gives a problem of its own rows only, which are put one after the
        other, rather than of all rows. Eigenvalues, hyperparameters and the number of rows must be
        the same in each.

    Raises
    ------
    ValueError
        If rows cannot be split evenly: ``spare_rows`` of :func:`bmsvm.prepare` fills them up.
    """
    if problem.family is not None:
        raise ValueError(
            "rows can be spread over devices only where the Gram matrix is factored beforehand: "
            "pass a number for the lengthscale, or Sampled() with a grid"
        )
    rank = problem.factor.eigenvalues.shape[0]
    if local and problem.n_rows <= rank + 1:
        raise ValueError(
            f"with local each process must have more rows than the rank, {rank}, and one; "
            f"got {problem.n_rows}"
        )
    n, parts = problem.n_rows, mesh.shape[ROWS]
    parts = parts // jax.process_count() if local else parts
    if n % parts:
        raise ValueError(
            f"the rows must divide into {parts} equal parts: prepare with "
            f"spare_rows={-n % parts}; there are {n}"
        )
    return jax.tree.map(lambda leaf: _put(leaf, _spec(leaf, n), mesh, local), problem)


def place_chains(chains: Any, num_chains: int, n_rows: int, mesh: Mesh) -> Any:
    """Spread a pytree whose leaves lead with an axis of chains over a mesh, and rows in it too."""
    if num_chains % mesh.shape[CHAINS]:
        raise ValueError(
            f"num_chains must be a multiple of {mesh.shape[CHAINS]}, the chains of the mesh; "
            f"got {num_chains}"
        )
    return jax.tree.map(lambda leaf: _put(leaf, _spec(leaf, n_rows, CHAINS), mesh), chains)


def row_parts(problem: Problem) -> int:
    """Return the number of equal parts into which the rows are spread over devices."""
    sharding = getattr(problem.labels, "sharding", None)
    if not isinstance(sharding, NamedSharding) or ROWS not in sharding.mesh.axis_names:
        return 1
    return sharding.mesh.shape[ROWS]


def _spec(leaf: Any, n: int, lead: str | None = None) -> PartitionSpec:
    """Split the first axis that is as long as there are rows; and a leading axis of chains."""
    shape = jnp.shape(leaf)
    first = 0 if lead is None or not shape else 1
    axes: list[str | None] = [lead] * min(first, len(shape)) + [None] * (len(shape) - first)
    if n in shape[first:]:
        axes[shape.index(n, first)] = ROWS
    return PartitionSpec(*axes)


def _put(leaf: Any, spec: PartitionSpec, mesh: Mesh, local: bool = False) -> jax.Array:
    sharding = NamedSharding(mesh, spec)
    if local:
        return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))
    if sharding.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return leaf if leaf.sharding == sharding else _moved(leaf, sharding)
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key):
        whole = NamedSharding(mesh, PartitionSpec(*spec, None))
        data = _from_all(np.asarray(jax.random.key_data(leaf)), whole)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    return _from_all(np.asarray(leaf), sharding)


def _from_all(array: np.ndarray, sharding: NamedSharding) -> jax.Array:
    """Place an array that every process has; small ones are taken from the first process.

    What each has computed for itself may differ in rounding, and copies must not.
    """
    if ROWS not in sharding.spec:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        array = np.asarray(broadcast_one_to_all(array))
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def _moved(array: jax.Array, sharding: NamedSharding) -> jax.Array:
    return jax.jit(lambda same: same, out_shardings=sharding)(array)


def to_host(array: jax.Array | np.ndarray) -> np.ndarray:
    """Return an array as NumPy's, gathered where other processes hold parts of it."""
    if isinstance(array, np.ndarray):
        return array
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(array, tiled=True))


def some_rows_here(problem: Problem, count: int) -> Problem:
    """At most so many rows of a problem, evenly spaced, on one device of every process.

    The same arrays on every process, and the same as where no devices share the rows.
    """
    if row_parts(problem) == 1:
        return some_rows(problem, count) if problem.n_rows > count else problem
    copies = NamedSharding(_mesh_of(problem), PartitionSpec())
    chosen = jax.jit(some_rows, static_argnums=1, out_shardings=copies)(problem, count)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), chosen)


def beside(what: Any, problem: Problem) -> Any:
    """Put copies of arrays on every device that a problem is spread over; the first process's."""
    if row_parts(problem) == 1:
        return what
    return jax.tree.map(lambda leaf: _put(leaf, PartitionSpec(), _mesh_of(problem)), what)


def _mesh_of(problem: Problem) -> Mesh:
    return cast(NamedSharding, problem.labels.sharding).mesh  # type: ignore[return-value]
