"""What tests of several devices run in processes of their own; not a test."""

import re
import sys

import jax
import numpy as np

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.inference import run as runner
from bmsvm.inference.blocks import hamiltonian, scale
from bmsvm.inference.sharding import make_mesh, place

N, RANK, CLASSES, CHAINS = 384, 32, 3, 2
SITES = ("precision", "noise_variance", "intercept", "weights", "scores", "accept_prob")


def low_rank_problem(spare_rows=0, **settings):
    """Prepare rows whose Gram matrix has a rank far below their number."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N - spare_rows, 5))
    y = rng.integers(0, CLASSES, N - spare_rows)
    X[:, 0] += y
    problem = prepare(X, y, kernel="linear", spare_rows=spare_rows, **settings)
    assert problem.factor.basis.shape == (N, RANK)
    return problem


MOMENTUM = (hamiltonian(force_dtype=jax.numpy.float64, draw_weights=False), scale())


def sampler_of(moves, problem):
    """Return a preset, or the default's moves with forces that do not magnify rounding."""
    moves = {"blocks": MOMENTUM} if moves == "momentum" else {"preset": moves}
    return BMSVMGibbs("linear", likelihood=problem.likelihood, **moves)


def draws(problem, moves, mesh=None, collect=SITES):
    return run_chains(
        sampler_of(moves, problem),
        jax.random.key(1),
        problem,
        num_warmup=10,
        num_samples=4,
        num_chains=CHAINS,
        collect=collect,
        mesh=mesh,
        progress_bar=False,
    )


def differences(one, other):
    """Largest difference of each site, relative to its size."""
    return {
        name: float(np.abs(one[name] - other[name]).max() / np.abs(one[name]).max()) for name in one
    }


def collectives(problem, moves, mesh):
    """Return the operation and the number of elements of all that devices send each other."""
    sampler = sampler_of(moves, problem)
    keys = jax.random.split(jax.random.key(0), CHAINS)
    state = place(sampler.init(keys, 10, None, (problem,), {}), mesh)
    one = jax.numpy.asarray(1)
    lowered = runner._advance.lower(
        state, one, one, blocks=sampler.blocks, collect=("precision", "noise_variance")
    )
    text = lowered.compile().as_text()
    names = "all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    found = []
    for line in text.splitlines():
        match = re.search(rf"= (.*?) ({names})(-start)?\(", line)
        if match:
            shapes = re.findall(r"\w+\[([\d,]*)\]", match[1])
            sizes = [np.prod([int(d) for d in s.split(",") if d], dtype=int) for s in shapes]
            found.append((match[2], int(max(sizes))))
    return found


if __name__ == "__main__":
    import json

    moves, likelihood = sys.argv[1:3]
    jax.config.update("jax_enable_x64", True)
    problem = low_rank_problem(spare_rows=4, likelihood=likelihood)
    alone = draws(problem, moves).samples
    result = {"devices": jax.device_count(), "moved": bool(np.ptp(alone["precision"]) > 0)}
    for rows, chains in ((2, 1), (8, 1), (4, 2)):
        mesh = make_mesh(rows, chains)
        found = draws(problem, moves, mesh)
        basis = found.state.problem.factor.basis
        result[f"{rows}x{chains}"] = {
            "differences": differences(alone, found.samples),
            "shard": basis.sharding.shard_shape(basis.shape),
        }
    result["collectives"] = collectives(problem, moves, make_mesh(4, 2))
    print(json.dumps(result))
