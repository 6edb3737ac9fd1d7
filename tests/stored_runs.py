"""Short chains, kept in a directory or in memory."""

import contextlib
from unittest import mock

import jax
import numpy as np

from bmsvm import BMSVMGibbs, Nystrom, Sampled, run_chains
from bmsvm.checkpoint import Checkpoint

RNG = np.random.default_rng(0)
Y = np.arange(14) % 3
X = RNG.normal(size=(14, 2)) + Y[:, None]
SETTINGS = {"num_warmup": 60, "num_chains": 2, "num_samples": 130}
SITES = ("precision", "scores")

GRID = Sampled(grid=np.geomspace(0.5, 5, 3))
ALGORITHMS = {
    "hmc": {"sampler": "hmc"},
    "hmc, theta on a grid": {"sampler": "hmc", "lengthscale": GRID},
    "hmc, theta off a grid": {"sampler": "hmc", "lengthscale": Sampled(grid="off", every=2)},
    "hmc, low rank": {"sampler": "hmc", "approximation": Nystrom(rank=5)},
    "hmc, low rank, theta on a grid": {
        "sampler": "hmc",
        "approximation": Nystrom(rank=5),
        "lengthscale": GRID,
    },
}
"""Settings of the kernel, by the state that their chains have."""


def kernel(**changes):
    """Return a kernel whose program compiles fast."""
    return BMSVMGibbs(**{"lengthscale": 2.0, "likelihood": "hinge", "sampler": "gibbs", **changes})


def run(store=None, X=X, seed=0, kernel=kernel(), **settings):  # noqa: B008
    key = jax.random.key(seed)
    settings = {**SETTINGS, "collect": SITES, **settings}
    return run_chains(kernel, key, X, Y, store=store, **settings)


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


@contextlib.contextmanager
def interrupted_after(piece):
    """Press Ctrl-C just after so many pieces are committed."""
    commits, original = iter(range(1, 1000)), Checkpoint.commit

    def interrupted(self, *args):
        original(self, *args)
        if next(commits) == piece:
            raise KeyboardInterrupt

    with mock.patch.object(Checkpoint, "commit", interrupted):
        yield
