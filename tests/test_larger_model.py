"""The sampler as a block of ``numpyro.infer.Gibbs``, inside a model with more parameters."""

import re
from dataclasses import replace
from pathlib import Path

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

from bmsvm import BMSVMGibbs, Hyperparameters, Sampled, prepare, run_chains
from bmsvm.arviz import to_arviz
from bmsvm.inference import MACHINE_SITES
from bmsvm.models import hierarchical_model
from bmsvm.models.hierarchy import scores_of
from bmsvm.models.numpyro_model import machine_sites

FALSE_ALARM = 1e-4
N, C = 12, 3
LABELS = np.array([0, 0, 0, 0, 0, 0, 1, 1, 0, 2, 0, 0])  # so that the intercept matters
X = np.random.default_rng(0).normal(size=(N, 2)) + 1.5 * np.eye(C)[LABELS, :2]
COUNTS = jnp.array([3.0, 1.0, 2.0])
GAPS = jnp.array([4.0, 13.0])


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
    eta = numpyro.sample("eta", dist.Gamma(2.0, 10.0))
    numpyro.sample("counts", dist.Poisson(rate).expand([3]).to_event(1), obs=counts)
    numpyro.sample("gaps", dist.Exponential(eta).expand([2]).to_event(1), obs=gaps)
    sites = {"rate": rate, "eta": eta}
    hierarchical_model(given(problem, sites), integrate_weights=False)


def composite(sampler="hmc"):
    machine = BMSVMGibbs(sampler=sampler, model=larger_model, given=given)
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
    least = by_gibbs[2].min(), by_nuts[2].min()
    print(f"largest of {z.size} |z|: {np.abs(z).max():.2f}; smallest ESS {least}")
    assert np.abs(z).max() < scipy.stats.norm.isf(FALSE_ALARM / z.size / 2)


def state_at(kernel, problem, sites, **start):
    kwargs = {GIBBS_SITES_KWARG: sites}
    return kernel.init(jax.random.key(0), 10, start, (problem, COUNTS, GAPS), kwargs)


def assert_at(state, sites, expected):
    """The position is the one that the model computes from the sites."""
    conditioned = numpyro.handlers.substitute(larger_model, {**sites, **state.z})
    trace = numpyro.handlers.trace(conditioned).get_trace(expected, COUNTS, GAPS)
    position = state.chain.position
    for name, value in (("weights", position.weights), ("noise_variance", position.noise_variance)):
        np.testing.assert_allclose(value, trace[name]["value"], rtol=1e-12)
    scores = scores_of(position.columns, expected)
    np.testing.assert_allclose(scores, trace["scores"]["value"], atol=1e-12)
    again = machine_sites(position, given(expected, sites))
    for name in MACHINE_SITES:
        np.testing.assert_allclose(again[name], state.z[name], atol=1e-12, err_msg=name)


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_refresh_computes_the_position_from_the_sites(coupling):
    problem = problem_of(coupling=coupling)
    kernel = BMSVMGibbs(sampler="gibbs", model=larger_model, given=given)
    sites = {"rate": jnp.asarray(2.0), "eta": jnp.asarray(0.5)}
    arguments = (problem, COUNTS, GAPS)
    state = kernel.sample(state_at(kernel, problem, sites), arguments, {})
    assert_at(state, sites, problem)
    other = {"rate": jnp.asarray(1.0), "eta": jnp.asarray(3.0)}
    fresh = kernel.refresh(state, arguments, {GIBBS_SITES_KWARG: other})
    assert_at(fresh, other, problem)
    np.testing.assert_array_equal(fresh.z["white_intercept"], state.z["white_intercept"])
    assert fresh.problem.hyper.precision_rate == 1.0
    ratio = fresh.chain.position.intercept / state.chain.position.intercept
    np.testing.assert_allclose(ratio, np.sqrt(0.5 / 3.0))


def test_chains_start_where_they_are_told():
    problem, kernel = problem_of(), BMSVMGibbs(model=larger_model, given=given)
    sites = {"rate": jnp.asarray(2.0), "eta": jnp.asarray(0.5)}
    rng = np.random.default_rng(0)
    shapes = {"white_intercept": (2,), "white_weights": (N, 2), "white_noise": (N, 2)}
    start = {name: jnp.asarray(rng.normal(size=shape)) for name, shape in shapes.items()}
    start |= {"noise_variance": jnp.asarray(1.5), "precision": jnp.asarray(0.25)}
    state = state_at(kernel, problem, sites, **start)
    for name, value in start.items():
        np.testing.assert_allclose(state.z[name], value, rtol=1e-12)
    assert_at(state, sites, problem)
    with pytest.raises(ValueError, match=r"init_params may hold .*; got \['scores'\] too"):
        state_at(kernel, problem, sites, scores=jnp.zeros((N, C)))
    unconstrained = {"rate": jnp.zeros(2), "eta": jnp.zeros(2)}  # of the block of NUTS
    both = {name: jnp.stack([value, value]) for name, value in start.items()}
    samples = drawn(
        composite("gibbs"), problem, warmup=0, samples=2, chains=2, method="sequential",
        init_params={**both, **unconstrained},
    )  # fmt: skip
    assert all(np.isfinite(value).all() for value in samples.values())


def test_what_cannot_be_a_block_says_so():
    sites = {"rate": 1.0, "eta": 1.0}
    sampled = prepare(X, LABELS, lengthscale=Sampled(grid=[1.0, 2.0]))
    block = BMSVMGibbs(model=larger_model, given=given)
    with pytest.raises(ValueError, match="model needs a problem whose lengthscale is fixed"):
        state_at(block, sampled, sites)
    with pytest.raises(ValueError, match=r"must be a problem of bmsvm.prepare; got ndarray"):
        state_at(block, X, sites)
    with pytest.raises(ValueError, match="model must be given with given"):
        BMSVMGibbs(given=given)
    with pytest.raises(ValueError, match=r"runs in numpyro.infer.Gibbs only"):
        run_chains(block, jax.random.key(0), problem_of())
    with pytest.raises(ValueError, match=r"needs another block for \['eta'\]"):
        state_at(block, problem_of(), {"rate": 1.0})
    with pytest.raises(
        ValueError, match=r"integrate_weights=False\); it has no site 'white_weights'"
    ):
        BMSVMGibbs(model=hierarchical_model).init(jax.random.key(0), 1, {}, (problem_of(),), {})
    other = BMSVMGibbs(lengthscale=7.0, model=larger_model, given=given)
    keywords = {"problem": problem_of(), "counts": COUNTS, "gaps": GAPS, GIBBS_SITES_KWARG: sites}
    with pytest.raises(ValueError, match=r"lengthscale must be given to bmsvm.prepare"):
        other.init(jax.random.key(0), 1, {}, (), keywords)


def test_a_site_that_another_block_sums_out_needs_no_block():
    def model(problem):
        hierarchical_model(problem, integrate_weights=False)
        rate = numpyro.sample("rate", dist.Gamma(2.0, 2.0))
        late = numpyro.sample("late", dist.Bernoulli(0.3), infer={"enumerate": "parallel"})
        numpyro.sample("wait", dist.Exponential(rate / (1 + late)), obs=1.0)

    others = {GIBBS_SITES_KWARG: {"rate": 1.0}}
    state = BMSVMGibbs(model=model).init(jax.random.key(0), 2, {}, (problem_of(),), others)
    assert set(state.z) >= set(MACHINE_SITES)


@pytest.mark.parametrize("method", ["sequential", jax.vmap])
def test_a_model_that_uses_the_functions_elsewhere_is_refused(method):
    """The block would ignore that part of the model, and the posterior be wrong."""
    second = jnp.linspace(-1.0, 1.0, N)

    def model(problem, *, also):
        slope = numpyro.sample("slope", dist.Normal())
        machine = hierarchical_model(problem, integrate_weights=False)
        heights = also * machine.functions[:, 0]
        numpyro.sample("second", dist.Normal(slope * heights, 0.5).to_event(1), obs=second)

    kernel = Gibbs([(BMSVMGibbs(model=model), MACHINE_SITES), (NUTS(model), ["slope"])])
    mcmc = MCMC(
        kernel, num_warmup=2, num_samples=2, num_chains=2, chain_method=method, progress_bar=False
    )
    mcmc.run(jax.random.key(0), problem_of(), also=0.0)
    with pytest.raises(
        ValueError, match=r"only through hierarchical_model\(.*given=;.*NUTS\(model\)"
    ):
        mcmc.run(jax.random.key(0), problem_of(), also=1.0)


def test_a_model_without_a_density_is_refused():
    def model(problem):
        hierarchical_model(problem, integrate_weights=False)
        numpyro.factor("nowhere", jnp.nan)

    with pytest.raises(ValueError, match="finite log density"):
        BMSVMGibbs(model=model).init(jax.random.key(0), 2, {}, (problem_of(),), {})


def test_arviz_reads_a_larger_model():
    mcmc = MCMC(composite("gibbs"), num_warmup=5, num_samples=20, progress_bar=False)
    mcmc.run(jax.random.key(0), problem_of(), COUNTS, GAPS)
    data = to_arviz(mcmc)
    assert data["posterior"]["rate"].dims == ("chain", "draw")
    assert data["posterior"]["scores"].dims == ("chain", "draw", "row", "class")
    assert data["log_likelihood"]["y"].shape == (1, 20, N)


def test_the_example_of_the_documentation_runs():
    page = (Path(__file__).parents[1] / "docs" / "howto.md").read_text(encoding="utf-8")
    section = page.split("## Part of a larger model")[1].split("\n## ")[0]
    code = re.search(r"```python\n(.*?)```", section, flags=re.S).group(1)
    code = code.replace("num_warmup=500, num_samples=500", "num_warmup=10, num_samples=10")
    names = {"X": X, "y": LABELS}
    exec(code, names)
    samples = names["mcmc"].get_samples()
    assert samples["rate"].shape == (10,)
    assert samples["scores"].shape == (10, N, C)
