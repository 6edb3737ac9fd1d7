"""Short chains, kept in a directory or in memory."""

import jax
import numpy as np

from bmsvm import BMSVMGibbs, run_chains

RNG = np.random.default_rng(0)
Y = np.arange(14) % 3
X = RNG.normal(size=(14, 2)) + Y[:, None]
SETTINGS = {"num_warmup": 60, "num_chains": 2, "progress_bar": False, "num_samples": 130}
SITES = ("precision", "scores")


def run(store=None, X=X, seed=0, sampler=None, **settings):
    sampler = sampler or BMSVMGibbs(lengthscale=2.0)
    key = jax.random.key(seed)
    settings = {**SETTINGS, "collect": SITES, **settings}
    return run_chains(sampler, key, X, Y, store=store, **settings)


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
