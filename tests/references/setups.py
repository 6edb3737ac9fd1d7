"""Small problems whose posteriors are known from long runs of NUTS: data, model, and sites."""

import functools

import numpy as np
import oracle
from sklearn.datasets import load_iris, load_wine

from bmsvm import PAPER, Sampled, prepare

ROWS_SHOWN = 3
EDGES = np.geomspace(0.5, 20.0, 49)
FINE = np.sqrt(EDGES[1:] * EDGES[:-1])  # midpoints: sums over cells are integrals, to O(h^2)
ON_GRID = Sampled(grid=FINE)


def off_grid(every=10):
    """Continuous theta, proposed every so many sweeps."""
    return Sampled(grid="off", bounds=(EDGES[0], EDGES[-1]), every=every)


def blobs():
    """Four overlapping classes in the plane, 24 rows."""
    rng = np.random.default_rng(40)
    y = np.arange(24) % 4
    return rng.normal(size=(24, 2)) + 1.5 * rng.normal(size=(4, 2))[y], y


def some_rows(load, count):
    """Return every so many rows of a data set, standardised."""
    X, y = load(return_X_y=True)
    chosen = np.linspace(0, len(y) - 1, count).astype(int)
    X = X[chosen]
    return (X - X.mean(0)) / X.std(0), y[chosen]


# data, lengthscale, coupling, likelihood, hyperparameters
SETUPS = {
    "wine": (functools.partial(some_rows, load_wine, 24), 3.5, "sum_to_zero", "hinge", PAPER),
    "iris": (functools.partial(some_rows, load_iris, 20), 2.0, "sum_to_zero", "normalized", PAPER),
    "blobs": (blobs, 1.5, "independent", "hinge", oracle.LIVELY),
    "squares": (
        functools.partial(some_rows, load_iris, 21),
        2.0,
        "sum_to_zero",
        "squared",
        oracle.LIVELY,
    ),
}


def data_of(name):
    return SETUPS[name][0]()


def settings_of(name, lengthscale=None):
    """Model of a problem, with its own lengthscale or another."""
    _, own, coupling, likelihood, hyperparameters = SETUPS[name]
    return {
        "lengthscale": own if lengthscale is None else lengthscale,
        "coupling": coupling,
        "likelihood": likelihood,
        "hyperparameters": hyperparameters,
    }


@functools.cache
def problem_of(name, sampled=False):
    return prepare(*data_of(name), **settings_of(name, off_grid() if sampled else None))


def sites_of(draws):
    """What is compared of draws that lead with (chain, draw); arsinh tames the Gaussian tails."""
    sites = {
        "log_noise_variance": np.log(draws["noise_variance"]),
        "log_precision": np.log(draws["precision"]),
        "intercept": np.arcsinh(draws["intercept"]),
        "scores": np.arcsinh(np.asarray(draws["scores"])[:, :, :ROWS_SHOWN]),
    }
    if "latent" in draws:
        sites["latent"] = np.arcsinh(np.asarray(draws["latent"])[:, :, :ROWS_SHOWN])
    if "lengthscale" in draws:
        sites["log_lengthscale"] = np.log(draws["lengthscale"])
    return sites
