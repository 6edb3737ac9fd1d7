"""What a sweep costs: ``python benchmarks/cost.py [--rows 250,500,...]``.

Seconds of one sweep of the default sampler under the hinge, four chains, four classes, eight
leapfrog steps, as the number of rows grows; the fitted exponent; and the share of that time that
plain ``jnp.dot`` takes for the matrix products of the same shapes and types, in the same run.
Then the time from data to the first draw at 300 rows, compiling, and of a second fit.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from sklearn.datasets import make_blobs

from bmsvm import PAPER, BMSVMGibbs, prepare, run_chains
from bmsvm.inference.blocks import hamiltonian
from bmsvm.inference.run import start_chains
from bmsvm.inference.samplers import Blocks

CHAINS, CLASSES, FEATURES, STEPS = 4, 4, 8, 8
MODEL: dict = {"likelihood": "hinge", "hyperparameters": PAPER}


def data(n: int) -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(n, n_features=FEATURES, centers=CLASSES, cluster_std=4.0, random_state=0)


def seconds_each(program, argument, repeats: int, inner: int) -> float:
    """Smallest time of a program that does its work ``inner`` times, per piece of work."""
    jax.block_until_ready(program(argument))
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(program(argument))
        times.append(time.perf_counter() - began)
    return min(times) / inner


def sweep_seconds(problem, inner: int) -> float:
    # A path that is never long enough takes the most steps it may: the same for every n.
    block = hamiltonian(path_length=1e6, max_steps=STEPS)
    kernel = BMSVMGibbs(sampler=Blocks(sweep=(block,)))
    key = jax.random.key(0)
    state = start_chains(kernel, key, problem, num_chains=CHAINS, num_warmup=0)

    @jax.jit
    def program(state):
        return jax.lax.fori_loop(0, inner, lambda _, s: kernel.sample(s, (), {}), state)

    return seconds_each(program, state, 5, inner)


def dot_seconds(problem, inner: int) -> float:
    """Time the products of a sweep alone: to the rows and back, for each force and each test."""
    basis = problem.factor.basis
    n, r = basis.shape
    wide = jnp.ones((CHAINS * problem.n_columns, r), basis.dtype)

    @jax.jit
    def program(wide):
        rough = basis.astype(jnp.float32)

        def there_and_back(x, matrix):
            return jnp.dot(jnp.dot(x, matrix.T), matrix) / n

        def body(_, x):
            x = there_and_back(x, basis)
            y = x.astype(jnp.float32)
            for _ in range(STEPS):
                y = there_and_back(y, rough)
            return y.astype(x.dtype)

        return jax.lax.fori_loop(0, inner, body, wide)

    return seconds_each(program, wide, 5, inner)


def first_draw() -> dict[str, float]:
    """Seconds from prepared data to a first draw at 300 rows, twice."""
    result = {}
    for fit in ("first", "second"):
        X, y = data(300)
        problem = prepare(X, y, lengthscale=3.0 if fit == "first" else 4.0, **MODEL)
        began = time.perf_counter()
        key = jax.random.key(0)
        run_chains(BMSVMGibbs(), key, problem, num_warmup=1, num_samples=1)
        result[fit] = time.perf_counter() - began
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="250,500,1000,2000,4000")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/cost.json"))
    arguments = parser.parse_args()
    numpyro.enable_x64()
    sizes = [int(n) for n in arguments.rows.split(",")]

    to_first = first_draw()
    print(
        f"To the first draw at n = 300: {to_first['first']:.1f} s, a second fit of that shape "
        f"{to_first['second']:.2f} s (target: compile in under 10 s, once)\n"
    )
    print(f"{'n':>6} {'sweep':>10} {'dots':>10} {'dots / sweep':>13}")
    records = []
    for n in sizes:
        X, y = data(n)
        problem = prepare(X, y, lengthscale=float(np.sqrt(FEATURES)) * 4.0, **MODEL)
        inner = max(2, 200_000_000 // (n * n * 50))
        record = {
            "rows": n,
            "sweep_seconds": sweep_seconds(problem, inner),
            "dot_seconds": dot_seconds(problem, inner),
        }
        record["share"] = record["dot_seconds"] / record["sweep_seconds"]
        records.append(record)
        print(
            f"{n:6} {1e3 * record['sweep_seconds']:8.2f}ms {1e3 * record['dot_seconds']:8.2f}ms "
            f"{record['share']:13.2f}",
            flush=True,
        )
    logs = np.log([[r["rows"], r["sweep_seconds"]] for r in records])
    exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    print(f"\nFitted exponent {exponent:.2f} (target <= 2.1); dots / sweep at n = 2000 >= 0.4")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"exponent": exponent, "records": records, "first_draw_seconds": to_first}
    arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
