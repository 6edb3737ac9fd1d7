"""The machine under a label model of one's own: true labels that only annotators have seen."""

import re
from pathlib import Path

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
import scipy.stats
from arviz_groups import groups_of
from numpyro.infer import MCMC

from bmsvm import Posterior
from bmsvm.arviz import to_arviz
from bmsvm.models import hierarchical_model

N, C, ANNOTATORS = 15, 3, 3
FALSE_ALARM = 1e-4
RNG = np.random.default_rng(0)
TRUTH = np.arange(N) % C
X = RNG.normal(size=(N, 2)) + 2.0 * np.eye(C)[TRUTH, :2]
WRONG = RNG.random((N, ANNOTATORS)) < [0.1, 0.3, 0.5]
VOTES = jnp.asarray(np.where(WRONG, RNG.integers(0, C, WRONG.shape), TRUTH[:, None]))


@pytest.fixture(scope="module")
def page():
    """The example of the documentation, its runs replaced by shorter ones."""
    text = (Path(__file__).parents[1] / "docs" / "howto.md").read_text(encoding="utf-8")
    section = text.split("## Labels by several annotators")[1].split("\n## ")[0]
    names = {"X": X, "y": TRUTH}
    for code in re.findall(r"```python\n(.*?)```", section, flags=re.S):
        exec(code.replace("num_warmup=500, num_samples=500", "num_warmup=5, num_samples=5"), names)
    return names


def run(kernel, problem, seed, **settings):
    mcmc = MCMC(kernel, num_chains=4, chain_method=jax.vmap, progress_bar=False, **settings)
    mcmc.run(jax.random.key(seed), problem, VOTES)
    return mcmc


def watched(samples):
    """Log variances, functions' scores at some rows and confusions, shape (chain, draw, m)."""
    logs = [np.log(samples[name])[..., None] for name in ("noise_variance", "precision")]
    parts = [samples["scores"][:, :, ::4], samples["confusion"], samples["intercept"]]
    return np.concatenate(
        [*logs, *(np.asarray(part).reshape(*logs[0].shape[:2], -1) for part in parts)], axis=-1
    )


def moments(values):
    values = np.concatenate([values, values**2], axis=-1)
    size = np.asarray(az.ess(az.convert_to_dataset({"x": values}), method="mean")["x"])
    return values.mean((0, 1)), values.std((0, 1)) / np.sqrt(size), size


def test_the_example_of_the_documentation_runs(page):
    assert page["mcmc"].get_samples()["y"].shape == (5, N)
    assert page["nuts"].get_samples()["confusion"].shape == (5, ANNOTATORS, C, C)
    posterior = Posterior.from_numpyro(page["mcmc"], X, lengthscale=2.0)
    np.testing.assert_allclose(posterior.probabilities(X[:4]).sum(1), 1, rtol=1e-6)


def test_labels_that_are_a_parameter_are_no_data_for_arviz(page):
    """The labels of the problem only stand in for them."""
    groups = groups_of(to_arviz(page["mcmc"]))
    assert groups["posterior"]["y"].shape == (1, 5, N)
    assert groups["posterior_predictive"]["y"].shape == (1, 5, N)
    assert not {"observed_data", "log_likelihood"} & set(groups)
    with pytest.raises(ValueError, match="log_likelihood must not be True where the labels y are"):
        to_arviz(page["mcmc"], log_likelihood=True)


@pytest.mark.slow
def test_gibbs_with_labels_and_nuts_without_them_have_one_posterior(page):
    """First and second moments agree within Monte Carlo error; false alarm 1e-4."""
    gibbs = run(page["kernel"], page["problem"], 0, num_warmup=500, num_samples=1500)
    nuts = run(page["nuts"].sampler, page["problem"], 1, num_warmup=500, num_samples=1000)
    by_gibbs, by_nuts = (
        moments(watched(each.get_samples(group_by_chain=True))) for each in (gibbs, nuts)
    )
    for _, _, sizes in (by_gibbs, by_nuts):
        assert sizes.min() > 200
    z = (by_gibbs[0] - by_nuts[0]) / np.hypot(by_gibbs[1], by_nuts[1])
    print(f"largest of {z.size} |z|: {np.abs(z).max():.2f}; ESS {by_gibbs[2].min():.0f}")
    assert np.abs(z).max() < scipy.stats.norm.isf(FALSE_ALARM / z.size / 2)


def test_without_labels_there_is_no_site_of_them(page):
    seeded = numpyro.handlers.seed(hierarchical_model, jax.random.key(0))
    trace = numpyro.handlers.trace(seeded).get_trace(page["problem"], observed=None)
    assert "y" not in trace
    machine = seeded(page["problem"], observed=None)
    assert machine.labels is None
    assert machine.functions is None
    assert machine.scores.shape == (N, C)
    whole = numpyro.handlers.trace(seeded)
    trace = whole.get_trace(page["problem"], integrate_weights=False)
    machine = numpyro.handlers.seed(hierarchical_model, jax.random.key(0))(
        page["problem"], integrate_weights=False
    )
    np.testing.assert_array_equal(machine.functions, trace["latent"]["value"])
    np.testing.assert_array_equal(machine.labels, page["problem"].labels)
