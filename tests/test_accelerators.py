"""Nothing is for the CPU alone: programs are lowered for CUDA and TPU, which are not here."""

import functools

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import PAPER, BMSVMGibbs, Nystrom, Posterior, Sampled, prepare, run_chains
from bmsvm.inference.adaptation import Phase
from bmsvm.prediction import evaluate

PLATFORMS = ("cuda", "tpu")
RNG = np.random.default_rng(0)
Y = np.arange(21) % 3
X = RNG.normal(size=(21, 2)) + Y[:, None]
NEW = RNG.normal(size=(10, 2)) * 2 + 1

CONFIGURATIONS = {
    "hmc": {},
    "hinge": {"likelihood": "hinge"},
    "gibbs": {"likelihood": "hinge", "sampler": "gibbs"},
    "paper": {"likelihood": "hinge", "sampler": "paper"},
    "low rank": {"approximation": Nystrom(rank=5)},
    "independent": {"likelihood": "hinge", "coupling": "independent", "sampler": "gibbs"},
    "sampled": {"likelihood": "hinge", "lengthscale": Sampled(grid=np.geomspace(0.5, 8, 5))},
    "off the grid": {"likelihood": "hinge", "lengthscale": Sampled(grid="off")},
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
def test_the_start_and_a_sweep_are_lowered(name, double):
    """One chain after the other and vectorised differ in shapes only."""
    with jax.enable_x64(double):
        kernel = BMSVMGibbs(**{"lengthscale": 2.0, **CONFIGURATIONS[name]})
        problem = kernel.prepare(X, Y)
        assert problem.factor.basis.dtype == (np.float64 if double else np.float32)
        algorithm = kernel.algorithm(problem)

        def start(keys, problem):
            return jax.vmap(lambda key: algorithm.init(key, {}, problem))(keys)

        def sweep(keys, chains, count, problem):
            def one(key, chain):
                chain, info = algorithm.step(key, chain, problem, Phase(count, count + 1))
                return chain, info, algorithm.sites(chain, problem)

            return jax.vmap(one)(keys, chains)

        keys = jax.random.split(jax.random.key(0), 2)
        check(lowered(start, keys, problem))
        chains = jax.eval_shape(start, keys, problem)
        exported = jax.export.export(jax.jit(sweep), platforms=PLATFORMS)
        shapes = jax.tree.map(jax.typeof, (jnp.asarray(3), problem))
        check(exported(jax.typeof(keys), chains, *shapes))


def test_the_predictive_is_lowered(monkeypatch):
    """Its one program, with the arguments that a prediction calls it with."""
    program, calls = evaluate._averaged, []

    def watched(*arguments, **settings):
        calls.append((arguments, settings))
        return program(*arguments, **settings)

    monkeypatch.setattr(evaluate, "_averaged", watched)
    problem = prepare(X, Y, lengthscale=2.0)
    samples = {
        "weights": np.zeros((1, 5, problem.factor.basis.shape[1], 2)),
        "intercept": np.zeros((1, 5, 3)),
        "noise_variance": np.ones((1, 5)),
        "precision": np.ones((1, 5)),
    }
    Posterior(samples, problem, X, lengthscale=2.0).probabilities(X[:4])
    arguments, settings = calls[0]
    arrays = jax.tree.map(jnp.asarray, arguments)
    check(lowered(functools.partial(program, **settings), *arrays))


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
            problem = prepare(X, Y, lengthscale=2.0, hyperparameters=PAPER)
            run = run_chains(
                BMSVMGibbs(), jax.random.key(0), problem, num_warmup=500, num_samples=1000
            )
        posterior = Posterior(run.samples, problem, X, lengthscale=2.0, seed=1)
        found = np.concatenate([part.probabilities for part in posterior.evaluate(NEW)])
        draws = np.moveaxis(np.asarray(found, np.float64), -1, 0)
        by_chain = draws.reshape(8, -1, len(NEW), 3).mean(1)  # halves of four chains
        means.append(by_chain.mean(0))
        errors.append(by_chain.std(0, ddof=1) / np.sqrt(8))
    difference = np.abs(means[0] - means[1])
    print(f"largest difference {difference.max():.4f}, mean {difference.mean():.4f}")
    assert np.all(difference < 6 * np.hypot(*errors))
