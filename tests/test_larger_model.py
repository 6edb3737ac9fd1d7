"""The sampler as a block of ``numpyro.infer.Gibbs``, inside a model with more parameters."""

from dataclasses import replace

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.infer import MCMC, NUTS, Gibbs
from numpyro.infer.gibbs import GIBBS_SITES_KWARG

from bmsvm import BMSVMGibbs, Hyperparameters, Sampled, prepare
from bmsvm.inference import MACHINE_SITES
from bmsvm.models import hierarchical_model
from bmsvm.models.numpyro_model import machine_sites

FALSE_ALARM = 1e-4
N, C = 12, 3
LABELS = np.arange(N) % C
X = np.random.default_rng(0).normal(size=(N, 2)) + 1.5 * np.eye(C)[LABELS, :2]
COUNTS = jnp.array([3.0, 1.0, 2.0])
GAPS = jnp.array([0.4, 1.3])


def problem_of(likelihood="normalized", coupling="sum_to_zero"):
    return prepare(
        X,
        LABELS,
        lengthscale=2.0,
        likelihood=likelihood,
        coupling=coupling,
        hyperparameters=Hyperparameters(precision_shape=6.0, intercept_precision=1.0),
    )


def given(problem, sites):
    """The rate of tau's prior, and eta, are other sites of the model."""
    priors = replace(problem.hyper, precision_rate=sites["rate"], intercept_precision=sites["eta"])
    return replace(problem, hyper=priors)


def larger_model(problem, counts, gaps):
    """Both hyperparameters have priors and observations of their own."""
    rate = numpyro.sample("rate", dist.Gamma(4.0, 2.0))
    eta = numpyro.sample("eta", dist.Gamma(3.0, 2.0))
    numpyro.sample("counts", dist.Poisson(rate).expand([3]).to_event(1), obs=counts)
    numpyro.sample("gaps", dist.Exponential(eta).expand([2]).to_event(1), obs=gaps)
    sites = {"rate": rate, "eta": eta}
    hierarchical_model(given(problem, sites), integrate_weights=False)


def composite(sampler="hmc"):
    machine = BMSVMGibbs(sampler=sampler, given=given)
    return Gibbs([(machine, MACHINE_SITES), (NUTS(larger_model), ["rate", "eta"])])


def drawn(kernel, problem, *, warmup, samples, chains=4, method=jax.vmap, seed=0, **settings):
    mcmc = MCMC(
        kernel,
        num_warmup=warmup,
        num_samples=samples,
        num_chains=chains,
        chain_method=method,
        progress_bar=False,
    )
    mcmc.run(jax.random.key(seed), problem, COUNTS, GAPS, **settings)
    return mcmc.get_samples(group_by_chain=True)


def watched(samples):
    """Quantities of interest, shape (chain, draw, m)."""
    logs = [np.log(samples[name])[..., None] for name in ("noise_variance", "precision", "eta")]
    scores = np.asarray(samples["scores"][:, :, :3]).reshape(*logs[0].shape[:2], -1)
    rate = np.asarray(samples["rate"])[..., None]
    return np.concatenate([*logs, rate, samples["intercept"], scores], axis=-1)


def moments(values):
    """Means of quantities (chain, draw, m) and their squares, and standard errors by ESS."""
    values = np.concatenate([values, values**2], axis=-1)
    size = np.asarray(az.ess(az.convert_to_dataset({"x": values}), method="mean")["x"])
    return values.mean((0, 1)), values.std((0, 1)) / np.sqrt(size), size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("likelihood", "coupling"), [("normalized", "sum_to_zero"), ("hinge", "independent")]
)
def test_gibbs_and_nuts_on_everything_have_one_posterior(likelihood, coupling):
    """First and second moments agree within Monte Carlo error; false alarm 1e-4 each."""
    problem = problem_of(likelihood, coupling)
    by_gibbs = moments(watched(drawn(composite(), problem, warmup=500, samples=2500)))
    nuts = NUTS(larger_model, target_accept_prob=0.9)
    by_nuts = moments(watched(drawn(nuts, problem, warmup=500, samples=1500, seed=1)))
    for _, _, sizes in (by_gibbs, by_nuts):
        assert sizes.min() > 400
    z = (by_gibbs[0] - by_nuts[0]) / np.hypot(by_gibbs[1], by_nuts[1])
    print(f"largest of {z.size} |z|: {np.abs(z).max():.2f}; ESS", by_gibbs[2].min(), by_nuts[2].min())
    assert np.abs(z).max() < scipy.stats.norm.isf(FALSE_ALARM / z.size / 2)
