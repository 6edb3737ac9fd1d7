"""Rows and chains spread over devices, of one process or of several.

Nothing in the sampler knows of devices. Arrays are placed on a mesh with the axes ``"rows"`` and
``"chains"``, and the compiler splits the sweep along with them: each device holds its rows of the
basis and of the scores, and what is summed over rows, of the size of the rank and not of the data,
is added up between devices. Sums that are made some rows at a time are told of the number of parts,
for each device to walk through its own (``Problem.row_parts``). Where an array is placed changes no
result, up to the rounding of those sums; random numbers do not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from bmsvm._validation import check_count
from bmsvm.inference.gibbs import BMSVMState
from bmsvm.models.computed_basis import ComputedBasis
from bmsvm.models.problem import Problem, some_rows

__all__ = ["CHAINS", "ROWS", "beside", "make_mesh", "place", "some_rows_here", "to_host"]

ROWS, CHAINS = "rows", "chains"

Placed = TypeVar("Placed", Problem, BMSVMState)


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


def place(what: Placed, mesh: Mesh, *, local: bool = False) -> Placed:
    """Place a problem, or the state of chains, on a mesh.

    Parameters
    ----------
    what
        A prepared problem, or a state, its problem included.
    mesh
        From :func:`make_mesh`.
    local
        Whether each process gives a problem of its own rows only, which are put one after the
        other, rather than of all rows. Eigenvalues, hyperparameters and the number of rows must be
        the same in each.

    Raises
    ------
    ValueError
        If rows or chains cannot be split evenly: ``spare_rows`` of :func:`bmsvm.prepare` fills
        rows up.
    """
    problem = what.problem if isinstance(what, BMSVMState) else what
    if problem.family is not None:
        raise ValueError(
            "rows can be spread over devices only where the factor of the Gram matrix is made "
            'beforehand: pass a number for the lengthscale, or lengthscale="sample" with a grid'
        )
    if isinstance(problem.factor.basis, ComputedBasis):
        raise ValueError("rows can be spread over devices only where the basis is kept")
    if local and isinstance(what, BMSVMState):
        raise ValueError("local is for a problem: make the chains of the placed problem")
    if local and problem.n_rows <= problem.factor.eigenvalues.shape[0] + 1:
        raise ValueError(
            "with local each process must have more rows than the rank, "
            f"{problem.factor.eigenvalues.shape[0]}, and one; got {problem.n_rows}"
        )
    n, parts = problem.n_rows, mesh.shape[ROWS]
    parts = parts // jax.process_count() if local else parts
    if n % parts:
        raise ValueError(
            f"the rows must divide into {parts} equal parts: prepare with "
            f"spare_rows={-n % parts}; there are {n}"
        )
    if isinstance(what, Problem):
        placed = jax.tree.map(lambda leaf: _put(leaf, _spec(leaf, n), mesh, local), what)
        return replace(placed, row_parts=mesh.shape[ROWS])
    chains = what.accept_prob.shape
    if not chains or chains[0] % mesh.shape[CHAINS]:
        raise ValueError(
            f"num_chains must be a multiple of {mesh.shape[CHAINS]}, the chains of the mesh; "
            f"got {chains[0] if chains else 'one chain without an axis of chains'}"
        )
    state = what._replace(problem=None)  # type: ignore[arg-type]
    placed = jax.tree.map(lambda leaf: _put(leaf, _spec(leaf, n, CHAINS), mesh), state)
    return placed._replace(problem=place(problem, mesh))


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


def to_host(array: jax.Array) -> np.ndarray:
    """Return an array as NumPy's, gathered where other processes hold parts of it."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(array, tiled=True))


def some_rows_here(problem: Problem, count: int) -> Problem:
    """At most so many rows of a problem, evenly spaced, on one device of every process.

    The same arrays on every process, and the same as where no devices share the rows.
    """
    if problem.row_parts == 1:
        computed = isinstance(problem.factor.basis, ComputedBasis)  # then it is kept of some
        return some_rows(problem, count) if problem.n_rows > count or computed else problem
    copies = NamedSharding(_mesh_of(problem), PartitionSpec())
    chosen = jax.jit(some_rows, static_argnums=1, out_shardings=copies)(problem, count)
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), chosen)


def beside(what: Any, problem: Problem) -> Any:
    """Put copies of arrays on every device that a problem is spread over; the first process's."""
    if problem.row_parts == 1:
        return what
    return jax.tree.map(lambda leaf: _put(leaf, PartitionSpec(), _mesh_of(problem)), what)


def _mesh_of(problem: Problem) -> Mesh:
    return cast(NamedSharding, problem.labels.sharding).mesh  # type: ignore[return-value]
