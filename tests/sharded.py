"""What tests of several devices run in processes of their own; not a test."""

import json
import re
import sys
from dataclasses import replace

import jax
import numpy as np

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.inference.blocks import hamiltonian, scale
from bmsvm.inference.run import start_chains
from bmsvm.inference.samplers import Blocks
from bmsvm.inference.sharding import make_mesh, place_chains, place_problem

N, RANK, CLASSES, CHAINS, SPARE = 384, 32, 3, 2, 4
SITES = ("precision", "noise_variance", "intercept", "weights", "accept_prob")


def low_rank_problem(likelihood="normalized"):
    """Prepare rows whose Gram matrix has a rank far below their number; some are spare."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N - SPARE, 5))
    y = rng.integers(0, CLASSES, N - SPARE)
    X[:, 0] += y
    problem = prepare(X, y, kernel="linear", likelihood=likelihood, spare_rows=SPARE)
    assert problem.factor.basis.shape == (N, RANK)
    return problem


def part_of(problem, number, count):
    """Return one of so many equal parts of the rows."""
    mine = slice(number * N // count, (number + 1) * N // count)
    return replace(
        problem,
        labels=problem.labels[mine],
        factor=problem.factor._replace(basis=problem.factor.basis[mine]),
        row_weights=problem.row_weights[mine],
    )


# The default's moves, with forces that do not magnify rounding.
MOMENTUM = Blocks(sweep=(hamiltonian(force_dtype=jax.numpy.float64), scale()))


def kernel_of(moves):
    return BMSVMGibbs(sampler=MOMENTUM if moves == "momentum" else moves)


def draws(problem, moves, mesh=None):
    return run_chains(
        kernel_of(moves),
        jax.random.key(1),
        problem,
        num_warmup=10,
        num_samples=4,
        num_chains=CHAINS,
        thinning=1,
        collect=SITES if moves == "collapsed" else (*SITES, "scores"),
        mesh=mesh,
    )


def differences(one, other):
    """Largest difference of each site, relative to its size."""
    return {
        name: float(np.abs(one[name] - other[name]).max() / np.abs(one[name]).max()) for name in one
    }


def collectives(problem, moves, mesh):
    """Return the operation and the number of elements of all that devices send in a sweep."""
    kernel, placed = kernel_of(moves), place_problem(problem, mesh)
    start = start_chains(kernel, jax.random.key(0), placed, num_chains=CHAINS, num_warmup=10)
    shared = {"problem": start.problem, "setup": start.setup}
    moving = start._replace(problem=None, setup=None)

    @jax.jit
    def sweep(moving, shared):
        state = kernel.sample(moving._replace(**shared), (), {})
        return state._replace(problem=None, setup=None)

    lowered = sweep.lower(place_chains(moving, CHAINS, N, mesh), shared)
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    found = []
    for line in lowered.compile().as_text().splitlines():
        match = re.search(rf"= (.*?) ({names})(-start)?\(", line)
        if match:
            shapes = re.findall(r"\w+\[([\d,]*)\]", match[1])
            sizes = [np.prod([int(d) for d in s.split(",") if d], dtype=int) for s in shapes]
            found.append((match[2], int(max(sizes))))
    return found


def report(moves, likelihood, meshes):
    """Return draws on one device, and how those of each mesh differ from them."""
    problem = low_rank_problem(likelihood)
    alone = draws(problem, moves).samples
    result = {
        "devices": jax.device_count(),
        "alone": {name: value.tolist() for name, value in alone.items()},
        "meshes": {},
    }
    for name in meshes:
        mesh = make_mesh(*map(int, name.split("x")))
        found = draws(problem, moves, mesh)
        basis = found.problem.factor.basis
        result["meshes"][name] = {
            "differences": differences(alone, found.samples),
            "shard": basis.sharding.shard_shape(basis.shape),
        }
    result["collectives"] = collectives(problem, moves, make_mesh(4, 2))
    return result


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    moves, likelihood, *meshes = sys.argv[1:]
    print(json.dumps(report(moves, likelihood, meshes)))
