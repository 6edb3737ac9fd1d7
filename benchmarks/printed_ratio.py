"""Where theta goes under the ratio printed in section 4.1: ``python benchmarks/printed_ratio.py``.

The model as printed (``independent``, hinge, the paper's hyperparameters), every so many rows of
wine and of glass. One sweep draws the scores exactly, (tau, sigma2, b, B) jointly, and then moves
theta over a grid; only the last move differs. ``collapsed`` and ``coefficients`` leave the
posterior invariant, ``paper`` is the printed ratio.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import arviz as az
import jax
import numpy as np
import numpyro

from bmsvm import BMSVMGibbs, Sampled, datasets, run_chains
from bmsvm.inference.blocks import collapsed_parameters, exact_scores, lengthscale
from bmsvm.inference.samplers import Blocks

MOVES = ("collapsed", "coefficients", "paper")
GRID = np.geomspace(0.1, 200.0, 64)


def some_rows(name: str, count: int):
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    chosen = np.linspace(0, len(y) - 1, count).astype(int)
    X = X[chosen]
    return (X - X.mean(0)) / X.std(0), np.asarray(y)[chosen]


def measure(name: str, rows: int, move: str, sweeps: int) -> dict:
    X, y = some_rows(name, rows)
    blocks = (exact_scores(), collapsed_parameters(), lengthscale(moves=(move,)))
    kernel = BMSVMGibbs.paper(lengthscale=Sampled(grid=GRID), sampler=Blocks(sweep=blocks))
    run = run_chains(
        kernel,
        jax.random.key(0),
        X,
        y,
        num_warmup=sweeps // 4,
        num_samples=sweeps,
        collect=("lengthscale", "lengthscale_accept_prob"),
    )
    log_theta = np.log(run.samples["lengthscale"])
    data = az.convert_to_dataset({"log_theta": log_theta})
    counts = np.isclose(log_theta[..., None], np.log(GRID)).mean((0, 1))
    return {
        "data": name,
        "rows": rows,
        "move": move,
        "mean": float(log_theta.mean()),
        "mcse": float(az.mcse(data)["log_theta"]),
        "quantiles": np.exp(np.quantile(log_theta, [0.05, 0.5, 0.95])).tolist(),
        "accept_prob": float(run.samples["lengthscale_accept_prob"].mean()),
        "rhat": float(az.rhat(data)["log_theta"]),
        "ess": float(az.ess(data)["log_theta"]),
        "shares": counts.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24)
    parser.add_argument("--sweeps", type=int, default=20_000)
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/printed_ratio.json")
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    numpyro.enable_x64()
    print(
        f"{'data':6} {'move':13} {'E log theta':>12} {'MCSE':>6} {'5%':>7} {'50%':>7} {'95%':>7} "
        f"{'accepted':>8} {'ESS':>6} {'R-hat':>6} {'distance':>8}"
    )
    records = []
    for name in ("wine", "glass"):
        reference = None
        for move in MOVES:
            record = measure(name, arguments.rows, move, arguments.sweeps)
            reference = reference or record
            gap = np.abs(np.subtract(record["shares"], reference["shares"]))
            record["total_variation"] = float(gap.sum() / 2)
            low, middle, high = record["quantiles"]
            print(
                f"{name:6} {move:13} {record['mean']:12.3f} {record['mcse']:6.3f} {low:7.2f} "
                f"{middle:7.2f} {high:7.2f} {record['accept_prob']:8.2f} {record['ess']:6.0f} "
                f"{record['rhat']:6.3f} {record['total_variation']:8.2f}",
                flush=True,
            )
            records.append(record)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(records, indent=1) + "\n")
    print(f"\nDistance is total variation from `{MOVES[0]}`. Written to {arguments.output}")


if __name__ == "__main__":
    main()
