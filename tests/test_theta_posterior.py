"""Theta's posterior against NUTS on the continuous density, and against evidence by brute force.

NUTS factors ``I + K/tau`` by Cholesky for each theta; the sampler walks over eigendecompositions,
on a fine grid or off it. The brute force is annealed importance sampling with elliptical slices,
which knows of the model only the prior's covariance and the likelihood.
"""

import functools

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
import scipy.special
import scipy.stats
from numpyro.infer import MCMC, NUTS
from test_nuts import SETUPS, moments, z_scores

from bmsvm import BMSVMGibbs, prepare, run_chains
from bmsvm.models import hierarchical_model
from bmsvm.models.likelihoods import LIKELIHOODS

FALSE_ALARM = 1e-4
EDGES = np.geomspace(0.5, 20.0, 49)
FINE = np.sqrt(EDGES[1:] * EDGES[:-1])  # midpoints: sums over cells are integrals, to O(h^2)
WAYS = {
    "on the grid": {"lengthscale_grid": FINE},
    "off the grid": {
        "lengthscale_grid": "off",
        "lengthscale_bounds": (EDGES[0], EDGES[-1]),
        "propose_every": 2,
    },
}


def settings_of(name, way):
    _, _, coupling, likelihood, hyperparameters = SETUPS[name]
    return {
        "lengthscale": "sample",
        "coupling": coupling,
        "likelihood": likelihood,
        "hyperparameters": hyperparameters,
        **WAYS[way],
    }


def sites(draws):
    return moments(
        {
            "log theta": np.log(draws["lengthscale"]),
            "log sigma2": np.log(draws["noise_variance"]),
            "log tau": np.log(draws["precision"]),
            "intercept": np.arcsinh(draws["intercept"]),
            "scores": np.arcsinh(np.asarray(draws["scores"])[:, :, :3]),
        }
    )


@functools.cache
def by_nuts(name):
    problem = prepare(*SETUPS[name][0](), **settings_of(name, "off the grid"))
    mcmc = MCMC(
        NUTS(hierarchical_model, max_tree_depth=6),
        num_warmup=300,
        num_samples=700,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(42), problem)
    return sites(mcmc.get_samples(group_by_chain=True))


def by_sampler(name, way):
    sampler = BMSVMGibbs(**settings_of(name, way))
    run = run_chains(
        sampler,
        jax.random.key(43),
        *SETUPS[name][0](),
        num_warmup=500,
        num_samples=2500,
        progress_bar=False,
    )
    return sites(run.samples)


PAIRS = [
    ("wine", "on the grid"),
    ("iris", "on the grid"),
    ("blobs", "on the grid"),
    ("wine", "off the grid"),
    ("blobs", "off the grid"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), PAIRS)
def test_theta_and_all_else_have_the_posterior_of_nuts(name, way):
    """First and second moments agree within MCSE. False alarm: 1e-4 over all pairs."""
    z = z_scores(by_sampler(name, way), by_nuts(name))
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, len(PAIRS) * z.size)


# Brute force ----------------------------------------------------------------------------------

GRID = np.geomspace(0.5, 16.0, 6)
PARTICLES = 1500
TEMPERATURES = 60
TABLE = np.linspace(-6, 6, 2001)


def quantile_table(log_quantile):
    """Log quantiles of a prior at the quantiles of a standard normal."""
    return jnp.asarray(log_quantile(scipy.stats.norm.cdf(TABLE)))


def evidence(key, X, labels, n_classes, likelihood, hyper):
    """Log p(y | theta) on the grid, and its standard error: annealed importance sampling."""
    squared = ((X[:, None] - X[None]) ** 2).sum(-1)
    n, k = len(X), n_classes - 1
    log_noise = quantile_table(
        lambda q: np.log(
            scipy.stats.invgamma.ppf(q, hyper.noise_shape / 2, scale=hyper.noise_rate / 2)
        )
    )
    log_precision = quantile_table(
        lambda q: np.log(
            scipy.stats.gamma.ppf(q, hyper.precision_shape / 2, scale=2 / hyper.precision_rate)
        )
    )
    contrast = jnp.asarray(np.linalg.svd(np.eye(n_classes) - 1 / n_classes)[0][:, :k])

    def log_likelihood(white, theta):
        """Log L(y | T) where everything of the prior is a function of standard normals."""
        noise_variance = jnp.exp(jnp.interp(white[0], TABLE, log_noise))
        precision = jnp.exp(jnp.interp(white[1], TABLE, log_precision))
        gram = jnp.exp(-jnp.asarray(squared) / (2 * theta**2))
        covariance = jnp.eye(n) + gram / precision + 1 / hyper.intercept_precision
        root = jnp.linalg.cholesky(covariance)
        columns = jnp.sqrt(noise_variance) * root @ white[2:].reshape(n, k)
        return jnp.sum(LIKELIHOODS[likelihood](columns @ contrast.T, jnp.asarray(labels)))

    def elliptical_slice(key, white, here, theta, power):
        """Move that leaves N(0, I) L^power invariant (Murray, Adams and MacKay, 2010)."""
        key_other, key_height, key_angle, key_shrink = jax.random.split(key, 4)
        other = jax.random.normal(key_other, white.shape)
        height = power * here + jnp.log(jax.random.uniform(key_height))
        angle = jax.random.uniform(key_angle, maxval=2 * jnp.pi)

        def at(angle):
            moved = white * jnp.cos(angle) + other * jnp.sin(angle)
            return moved, log_likelihood(moved, theta)

        def shrink(carry):
            key, low, high, angle, *_ = carry
            low, high = jnp.where(angle < 0, angle, low), jnp.where(angle < 0, high, angle)
            key, key_angle = jax.random.split(key)
            angle = jax.random.uniform(key_angle, minval=low, maxval=high)
            return key, low, high, angle, *at(angle)

        start = (key_shrink, angle - 2 * jnp.pi, angle, angle, *at(angle))
        *_, white, here = jax.lax.while_loop(lambda c: power * c[-1] < height, shrink, start)
        return white, here

    def one_particle(key, theta):
        key, key_start = jax.random.split(key)
        white = jax.random.normal(key_start, (2 + n * k,))
        powers = jnp.linspace(0, 1, TEMPERATURES + 1) ** 3

        def temper(carry, inputs):
            white, here, log_weight = carry
            key, before, power = inputs
            log_weight = log_weight + (power - before) * here
            for part in jax.random.split(key, 2):
                white, here = elliptical_slice(part, white, here, theta, power)
            return (white, here, log_weight), None

        keys = jax.random.split(key, TEMPERATURES)
        start = (white, log_likelihood(white, theta), jnp.zeros(()))
        (_, _, log_weight), _ = jax.lax.scan(temper, start, (keys, powers[:-1], powers[1:]))
        return log_weight

    keys = jax.random.split(key, PARTICLES)
    weigh = jax.jit(jax.vmap(one_particle, (0, None)))
    log_weights = np.stack([weigh(keys, theta) for theta in GRID])
    shifted = np.exp(log_weights - log_weights.max(1, keepdims=True))
    value = log_weights.max(1) + np.log(shifted.mean(1))
    return value, shifted.std(1, ddof=1) / shifted.mean(1) / np.sqrt(PARTICLES)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_theta_has_the_posterior_of_the_evidence(likelihood):
    """Shares of the values of theta, 24 rows. False alarm: 1e-4, if the errors are right."""
    X, y = SETUPS["blobs"][0]()
    hyper = oracle.LIVELY
    value, error = evidence(jax.random.key(1), X, y, 4, likelihood, hyper)
    expected = scipy.special.softmax(value + np.log(GRID))
    # By the delta method, of shares p: dp_g = p_g (e_g - sum_h p_h e_h).
    spread = np.diag(expected) - np.outer(expected, expected)
    expected_error = np.sqrt(((spread * error) ** 2).sum(1))
    run = run_chains(
        BMSVMGibbs(
            lengthscale="sample",
            lengthscale_grid=GRID,
            likelihood=likelihood,
            hyperparameters=hyper,
        ),
        jax.random.key(44),
        X,
        y,
        num_warmup=500,
        num_samples=4000,
        collect=("lengthscale",),
        progress_bar=False,
    )
    cells = np.isclose(run.samples["lengthscale"][..., None], GRID).astype(float)
    share = cells.mean((0, 1))
    seen = expected > 1e-3
    monte_carlo = arviz.mcse(arviz.convert_to_dataset({"share": cells}))["share"].values
    z = (share - expected)[seen] / np.hypot(monte_carlo, expected_error)[seen]
    assert seen.sum() >= 3
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM / 2, z.size)
