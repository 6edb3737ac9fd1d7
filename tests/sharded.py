"""What tests of several devices run in processes of their own; not a test."""

import re
import sys

import jax
import numpy as np

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.inference import run as runner
from bmsvm.inference.sharding import make_mesh, place

N, RANK, CLASSES, CHAINS = 384, 32, 3, 2
SITES = ("precision", "noise_variance", "intercept", "weights", "scores")


def low_rank_problem(spare_rows=0, rows=slice(None), **settings):
    """Prepare rows whose Gram matrix has a rank far below their number."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N - spare_rows, 5))
    y = rng.integers(0, CLASSES, N - spare_rows)
    X[:, 0] += y
    problem = prepare(X, y, kernel="linear", spare_rows=spare_rows, **settings)
    assert problem.factor.basis.shape == (N, RANK)
    return problem


def draws(problem, preset, mesh=None, sweeps=4, collect=SITES, **settings):
    sampler = BMSVMGibbs("linear", preset=preset, likelihood=problem.likelihood)
    return run_chains(
        sampler,
        jax.random.key(1),
        problem,
        num_warmup=0,
        num_samples=sweeps,
        num_chains=CHAINS,
        collect=collect,
        mesh=mesh,
        progress_bar=False,
        **settings,
    )


def differences(one, other):
    """Largest difference of each site, relative to its size."""
    return {
        name: float(np.abs(one[name] - other[name]).max() / np.abs(one[name]).max()) for name in one
    }


def collectives(problem, preset, mesh):
    """Return the operation and the number of elements of all that devices send each other."""
    sampler = BMSVMGibbs("linear", preset=preset, likelihood=problem.likelihood)
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

    preset, likelihood = sys.argv[1:3]
    jax.config.update("jax_enable_x64", True)
    problem = low_rank_problem(spare_rows=4, likelihood=likelihood)
    alone = draws(problem, preset).samples
    result = {"devices": jax.device_count()}
    for rows, chains in ((2, 1), (8, 1), (4, 2)):
        mesh = make_mesh(rows, chains)
        found = draws(problem, preset, mesh)
        columns = found.state.position.columns
        result[f"{rows}x{chains}"] = {
            "differences": differences(alone, found.samples),
            "shard": columns.sharding.shard_shape(columns.shape),
        }
    result["collectives"] = collectives(problem, preset, make_mesh(4, 2))
    print(json.dumps(result))
