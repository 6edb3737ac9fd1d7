"""Make the reference posteriors: ``python tests/references/make.py [name ...]``.

Long runs of NumPyro's NUTS on the model as a NumPyro program, with nothing integrated out where
theta is fixed (and once with the weights integrated out, to compare), and with ``I + K/tau``
factored by Cholesky where it is sampled; and the evidence of a grid of theta by annealed importance
sampling with elliptical slices, which knows of the model only the prior's covariance and the
likelihood. None of it uses the package's sampler.
"""

import functools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import oracle
import scipy.stats
from numpyro.infer import MCMC, NUTS

from bmsvm.models import hierarchical_model
from bmsvm.models.likelihoods import LIKELIHOODS
from references import setups, summaries

GRID = np.geomspace(0.5, 16.0, 6)
PARTICLES = 2000
TEMPERATURES = 60
TABLE = np.linspace(-6, 6, 2001)


def by_nuts(name, *, sampled=False, integrate_weights=False):
    problem = setups.problem_of(name, sampled)

    def model(problem):
        hierarchical_model(problem, integrate_weights=integrate_weights)

    mcmc = MCMC(
        NUTS(model, target_accept_prob=0.98),
        num_warmup=1000,
        num_samples=2500,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(42), problem, extra_fields=("diverging",))
    draws = mcmc.get_samples(group_by_chain=True)
    return {
        "method": "NUTS, 4 chains, 1000 + 2500 draws, target acceptance 0.98",
        "divergences": int(mcmc.get_extra_fields()["diverging"].sum()),
        "sites": summaries.summarize(setups.sites_of(draws)),
    }


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


def by_evidence(likelihood):
    X, y = setups.data_of("blobs")
    value, error = evidence(jax.random.key(1), X, y, 4, likelihood, oracle.LIVELY)
    return {
        "method": f"annealed importance sampling, {PARTICLES} particles, {TEMPERATURES} steps",
        "lengthscale": GRID,
        "log_evidence": value,
        "standard_error": error,
    }


MADE_BY = {
    **{name: functools.partial(by_nuts, name) for name in setups.SETUPS},
    **{
        f"{name}_theta": functools.partial(by_nuts, name, sampled=True, integrate_weights=True)
        for name in setups.SETUPS
    },
    "iris_integrated": functools.partial(by_nuts, "iris", integrate_weights=True),
    "evidence_hinge": functools.partial(by_evidence, "hinge"),
    "evidence_normalized": functools.partial(by_evidence, "normalized"),
}


def main():
    numpyro.enable_x64()
    for name in sys.argv[1:] or MADE_BY:
        began = time.perf_counter()
        versions = {"jax": jax.__version__, "numpyro": numpyro.__version__}
        summaries.write(name, {"name": name, "versions": versions, **MADE_BY[name]()})
        print(f"{name}: {time.perf_counter() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
