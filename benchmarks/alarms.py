"""False alarms: ``python benchmarks/alarms.py [--fits 60]``.

Default fits of easy data, each with a seed of its own. Counted are the warnings that they give, all
of which are false alarms. Beside them stand the largest R-hat, the smallest effective sample size
and the smallest mean acceptance of a chain, and the share of rows whose Pareto's k is above 0.7 in
the leave-one-out of the calibration, from the smallest to the largest of the fits. The file of
results also has the smallest and the largest number of steps of a trajectory.

Each fit is written to the file of results when it is made. Another call makes the missing fits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets

from bmsvm import BMSVMClassifier, datasets

DIGITS_ROWS = 200


def _digits(seed: int):
    X, y = sklearn_datasets.load_digits(return_X_y=True)
    chosen = np.random.default_rng(seed).permutation(len(X))[:DIGITS_ROWS]
    return X[chosen], y[chosen]


DATA = {
    "wine": lambda seed: datasets.load_wine(return_X_y=True),
    "iris": lambda seed: sklearn_datasets.load_iris(return_X_y=True),
    "moons": lambda seed: sklearn_datasets.make_moons(200, noise=0.2, random_state=seed),
    "blobs": lambda seed: sklearn_datasets.make_blobs(150, centers=4, random_state=seed),
    "digits": _digits,
}


def fit(name: str, seed: int) -> dict:
    """Fit one data set with the default settings, and record what is watched."""
    X, y = DATA[name](seed)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = BMSVMClassifier(random_state=seed).fit(X, y)
    seconds = time.perf_counter() - began
    samples, found = model.run_.samples, model.diagnostics_
    steps = samples["num_steps"]
    return {
        "data": name,
        "seed": seed,
        "seconds": round(seconds, 1),
        "quantities": len(found),
        "r_hat": max(each.r_hat for each in found.values()),
        "ess": min(each.ess for each in found.values()),
        "acceptance": float(samples["accept_prob"].mean(axis=1).min()),
        "large_k": model.checks_["large Pareto k"].value,
        "steps": [int(steps.min()), int(steps.max())],
        "alarms": [str(each.message) for each in caught if issubclass(each.category, UserWarning)],
    }


def report(results: list[dict]) -> None:
    """Print one line for each data set."""
    print(
        f"{'data':>8} {'fits':>5} {'alarms':>7} {'R-hat':>7} {'ESS':>6} {'accepted':>9} "
        f"{'k > 0.7':>13}"
    )
    for name in DATA:
        of = [each for each in results if each["data"] == name]
        if of:
            large_k = [each["large_k"] for each in of]
            print(
                f"{name:>8} {len(of):5d} {sum(bool(each['alarms']) for each in of):7d} "
                f"{max(each['r_hat'] for each in of):7.3f} {min(each['ess'] for each in of):6.0f} "
                f"{min(each['acceptance'] for each in of):9.2f} "
                f"{min(large_k):6.0%} {max(large_k):6.0%}"
            )
    alarmed = [each for each in results if each["alarms"]]
    print(f"{len(alarmed)} alarms in {len(results)} fits")
    for each in alarmed:
        print(f"{each['data']}, seed {each['seed']}: {'; '.join(each['alarms'])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fits", type=int, default=60, help="of all data together")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/alarms.json"))
    given = parser.parse_args()
    path = given.output
    path.parent.mkdir(parents=True, exist_ok=True)
    results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    done = {(each["data"], each["seed"]) for each in results}
    names = list(DATA)
    for number in range(given.fits):
        name, seed = names[number % len(names)], number // len(names)
        if (name, seed) not in done:
            results.append(fit(name, seed))
            path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(results[-1]), flush=True)
    report(results)
    return 1 if any(each["alarms"] for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
