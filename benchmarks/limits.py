"""What the limits of convergence find: ``python benchmarks/limits.py [--quantities 3000]``.

Autoregressive chains of a known effective size, four of 200 draws. First they have converged: how
often is R-hat or the estimated effective size of a single quantity beyond a limit, by chance? Then
one of the chains is off by some standard deviations: how often is it noticed?
"""

from __future__ import annotations

import argparse

import numpy as np

from bmsvm.convergence import SMALLEST_ESS, diagnose, largest_r_hat

CHAINS, DRAWS = 4, 200
WATCHED = 22
"""Quantities of a fit with three classes: sigma2, tau, and two functions at each of ten rows."""


def chains(size: float, quantities: int, rng: np.random.Generator) -> np.ndarray:
    """Stationary draws (chain, draw, quantity) whose effective size is ``size`` of all."""
    share = size / (CHAINS * DRAWS)
    correlation = (1 - share) / (1 + share)
    noise = rng.normal(size=(DRAWS, CHAINS, quantities))
    x = np.empty_like(noise)
    x[0] = noise[0]
    for i in range(1, DRAWS):
        x[i] = correlation * x[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return x.transpose(1, 0, 2)


def watched(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R-hat and estimated effective size of each quantity."""
    found = diagnose({str(j): values[:, :, j] for j in range(values.shape[2])}).values()
    return np.array([each.r_hat for each in found]), np.array([each.ess for each in found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quantities", type=int, default=3000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    print("Converged chains: share of single quantities")
    print(f"{'size':>6} {'R-hat > 1.05':>13} {'ESS < 100':>10} {'ESS < 50':>9}")
    for size in (100, 200, 400):
        r_hat, ess = watched(chains(size, given.quantities, rng))
        print(
            f"{size:6d} {np.mean(r_hat > 1.05):13.2%} {np.mean(ess < 100):10.2%} "
            f"{np.mean(ess < SMALLEST_ESS):9.2%}"
        )
    limit = largest_r_hat(CHAINS, WATCHED)
    print("\nOne chain is off by standard deviations, of a size of 400: medians, and share noticed")
    print(f"by R-hat > {limit:.2f} or ESS < {SMALLEST_ESS:.0f}")
    print(f"{'off by':>7} {'R-hat':>6} {'ESS':>5} {'noticed':>8}")
    for off in (0.5, 1.0, 1.5):
        values = chains(400, given.quantities, rng)
        values[0] += off
        r_hat, ess = watched(values)
        noticed = np.mean((r_hat > limit) | (ess < SMALLEST_ESS))
        print(f"{off:7.1f} {np.median(r_hat):6.2f} {np.median(ess):5.0f} {noticed:8.1%}")


if __name__ == "__main__":
    main()
