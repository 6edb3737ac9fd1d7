"""Geweke's test: labels redrawn given the scores, scores moved given the labels, is the prior.

Under the normalised likelihood the joint p(y, Z, parameters) is a distribution of everything, so
that alternating one sweep given y with a draw of y given Z leaves the prior alone. Chains start
at exact draws of the prior; what they are after some rounds is compared with what they were.

The squared pseudo-likelihood sums to s(z) over the labels, and not to one: the joint, normalised
over everything, is the prior tilted by s. Chains start at exact draws of that.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm.models import scores_of
from bmsvm.models.numpyro_model import Labels
from reproduction.simulate import COMPACT, draw_joint

CASE = oracle.Case(3, "sum_to_zero", "normalized", (0, 1, 2, 0), seed=6)
CHAINS = 8000
ROUNDS = 10
FALSE_ALARM = 1e-4 / len(oracle.SAMPLERS)


SQUARED = (
    oracle.Case(2, "sum_to_zero", "squared", (0, 1, 1, 0), seed=6),
    pytest.param(
        oracle.Case(3, "sum_to_zero", "squared", (0, 1, 2), seed=7), marks=pytest.mark.long
    ),
)


def after_rounds(algorithm, problem, positions, seed):
    """Redraw the labels and sweep, ROUNDS times, from every position."""
    start = algorithm.init(jax.random.key(0), {}, problem)

    def run(key, position):
        def one_round(state, key):
            key_labels, key_sweep = jax.random.split(key)
            scores = scores_of(state.position.columns, problem)
            labels = Labels(scores, problem.likelihood).sample(key_labels)
            given = dataclasses.replace(problem, labels=labels.astype(problem.labels.dtype))
            state, _ = algorithm.step(key_sweep, state, given, oracle.PAST_WARM_UP)
            return state, None

        begin = start._replace(position=position)
        return jax.lax.scan(one_round, begin, jax.random.split(key, ROUNDS))[0].position

    keys = jax.random.split(jax.random.key(seed), len(positions.precision))
    return oracle.quick_jit(jax.vmap(run))(keys, positions)


def watched(positions):
    """log sigma2, log tau, arsinh b, log norms of v and of T: shape (chains, m)."""
    logs = [np.log(positions.noise_variance), np.log(positions.precision)]
    norms = [
        np.log(np.linalg.norm(part, axis=1)) for part in (positions.weights, positions.columns)
    ]
    return np.column_stack([*logs, np.arcsinh(positions.intercept), *norms])


def scores_against_the_prior(sampler, seed):
    """Z-scores of first and second moments, after against before."""
    problem = CASE.problem()
    before = oracle.prior_draws(np.random.default_rng(7), CHAINS, problem)
    algorithm = oracle.SAMPLERS[sampler].algorithm(problem)
    after = after_rounds(algorithm, problem, jax.tree.map(jnp.asarray, before), seed)
    return oracle.moment_z(watched(before), watched(after))


@pytest.mark.parametrize("sampler", ["hmc", "paper", pytest.param("gibbs", marks=pytest.mark.long)])
def test_the_joint_distribution_is_that_of_the_prior(sampler):
    """No first or second moment of (sigma2, tau, b, v, T) leaves the prior.

    False alarm: 1e-4 over all samplers.
    """
    z = scores_against_the_prior(sampler, seed=20)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


@pytest.mark.parametrize("case", SQUARED, ids=str)
def test_the_joint_distribution_of_squares_is_the_tilted_prior(case):
    """No first or second moment of (sigma2, tau, b, v, T) leaves it; exact scores, then the rest.

    False alarm: 1e-4 over both cases.
    """
    problem = dataclasses.replace(case.problem(), hyper=COMPACT)
    size = CHAINS if case.n_classes == 2 else 2000
    before = draw_joint(np.random.default_rng(8), size, problem).position
    algorithm = oracle.SAMPLERS["gibbs"].algorithm(problem)
    after = after_rounds(algorithm, problem, jax.tree.map(jnp.asarray, before), 22)
    z = oracle.moment_z(watched(before), watched(after))
    assert oracle.largest(z) < oracle.threshold(5e-5, z.size)


def test_the_printed_shape_of_the_noise_is_rejected(monkeypatch):
    """With the paper's shape (a_sigma + nc)/2 the same comparison fails beyond doubt."""
    oracle.use_printed_noise_shape(monkeypatch)
    assert oracle.largest(scores_against_the_prior("gibbs", seed=21)) > 20
