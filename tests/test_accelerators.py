"""Nothing is for the CPU alone: programs are lowered for CUDA and TPU, which are not here."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import BMSVMGibbs, prepare
from bmsvm.inference import run as runner
from bmsvm.inference.predict import class_probabilities, features_at
from bmsvm.kernels import gaussian

PLATFORMS = ("cuda", "tpu")
RNG = np.random.default_rng(0)
Y = np.arange(21) % 3
X = RNG.normal(size=(21, 2)) + Y[:, None]
NEW = RNG.normal(size=(10, 2)) * 2 + 1

CONFIGURATIONS = {
    "default": {"likelihood": "normalized"},
    "hinge": {"likelihood": "hinge"},
    "gibbs": {"preset": "gibbs"},
    "paper": {"preset": "paper"},
    "probit": {"likelihood": "probit"},
    "large": {"likelihood": "normalized", "preset": "large"},
    "independent": {"coupling": "independent", "preset": "gibbs"},
    "sampled": {"lengthscale": "sample", "lengthscale_grid": np.geomspace(0.5, 8, 5)},
    "off the grid": {"lengthscale": "sample", "lengthscale_grid": "off"},
}


def lowered(function, *arguments):
    """Lower a function for both platforms, with the data as arguments."""
    shapes = jax.tree.map(jax.typeof, arguments)
    return jax.export.export(jax.jit(function), platforms=PLATFORMS)(*shapes)


def check(exported):
    assert exported.platforms == PLATFORMS
    assert len(exported.mlir_module_serialized) > 1000


@pytest.mark.parametrize(
    "double",
    [False, pytest.param(True, marks=pytest.mark.long)],
    ids=["float32", "float64"],
)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_set_up_and_sweep_are_lowered(name, double):
    with jax.enable_x64(double):
        sampler = BMSVMGibbs(**{"lengthscale": 2.0, **CONFIGURATIONS[name]})
        problem = sampler.prepare(X, Y)
        assert problem.factor.basis.dtype == (np.float64 if double else np.float32)
        keys = jax.random.split(jax.random.key(0), 2)
        init = lambda keys, problem: sampler.init(keys, 10, None, (problem,), {})  # noqa: E731
        check(lowered(init, keys, problem))
        state = sampler.init(keys, 10, None, (problem,), {})
        advance = functools.partial(
            runner._advance, blocks=sampler.blocks, collect=("scores", "weights", "accept_prob")
        )
        check(lowered(advance, state, jnp.asarray(3), jnp.asarray(1)))


def test_the_predictive_is_lowered():
    problem = prepare(X, Y, lengthscale=2.0)
    features = features_at(gaussian(2.0), X[:4], X, problem.factor)
    draws = {
        "scores": jnp.zeros((5, 21, 3)),
        "noise_variance": jnp.ones(5),
        "precision": jnp.ones(5),
    }
    check(lowered(class_probabilities, jax.random.key(0), draws, features, problem))


def test_what_only_the_processor_has_would_be_seen():
    """The test of the tests: a Schur decomposition has no lowering for a TPU."""

    def host_only(x):
        return jax.lax.linalg.schur(x)[0]

    with pytest.raises(NotImplementedError):
        lowered(host_only, jnp.eye(3))


@pytest.mark.long
def test_single_precision_predicts_the_same():
    """Class probabilities of both types, within six Monte Carlo standard errors of a difference."""
    means, errors = [], []
    for double in (False, True):
        with jax.enable_x64(double):
            problem = prepare(X, Y, lengthscale=2.0, likelihood="normalized")
            run = runner.run_chains(
                BMSVMGibbs(lengthscale=2.0, likelihood="normalized"),
                jax.random.key(0),
                problem,
                num_warmup=500,
                num_samples=1000,
                progress_bar=False,
            )
            features = features_at(gaussian(2.0), NEW, X, problem.factor)
            flat = {
                name: draws.reshape(-1, *draws.shape[2:]) for name, draws in run.samples.items()
            }
            found = class_probabilities(jax.random.key(1), flat, features, problem)
            by_chain = np.asarray(found, np.float64).reshape(8, -1, len(NEW), 3).mean(1)
            means.append(by_chain.mean(0))
            errors.append(by_chain.std(0, ddof=1) / np.sqrt(8))
    difference = np.abs(means[0] - means[1])
    print(f"largest difference {difference.max():.4f}, mean {difference.mean():.4f}")
    assert np.all(difference < 6 * np.hypot(*errors))
