"""The sampler and the model behave as NumPyro and ArviZ users expect of any other."""

import pickle

import arviz as az
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from arviz_groups import groups_of
from numpyro.infer import MCMC, NUTS, Predictive

import bmsvm
from bmsvm import PAPER, BMSVMGibbs, prepare
from bmsvm.arviz import to_arviz
from bmsvm.inference import Blocks
from bmsvm.inference.blocks import (
    exact_scores,
    hamiltonian,
    metropolis_scores,
    scale,
    stateless,
)
from bmsvm.models import coefficients, hierarchical_model
from bmsvm.models.conditionals import weights_given_rest
from bmsvm.models.likelihoods import class_probabilities

ARVIZ_1 = int(az.__version__.split(".")[0]) >= 1
N, C = 18, 3
CLASSES = np.array(["ash", "beech", "cedar"])
LABELS = np.arange(N) % C
NAMES = CLASSES[LABELS]
X = np.random.default_rng(0).normal(size=(N, 2)) + 2.0 * np.eye(C)[LABELS, :2]


def draw_weights(key, position, problem):
    return position._replace(weights=weights_given_rest(position, problem).sample(key)), {}


SWEEP = Blocks(sweep=(exact_scores(), stateless("weights", draw_weights), scale()))
STILL = Blocks(sweep=(stateless("still", lambda key, position, problem: (position, {})),))
MODEL = {"lengthscale": 2.0, "likelihood": "hinge", "hyperparameters": PAPER}
SAMPLERS = ("hmc", "gibbs", "paper")


@pytest.fixture(autouse=True, scope="module")
def compile_each_program_once(tmp_path_factory):
    """MCMC compiles its loop at every call of run, so let identical programs be found again."""
    if jax.config.jax_compilation_cache_dir:  # of all tests
        yield
        return
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = [getattr(jax.config, name) for name in names]
    jax.config.update(names[0], str(tmp_path_factory.mktemp("programs")))
    jax.config.update(names[1], 0.2)
    yield
    for name, value in zip(names, before, strict=True):
        jax.config.update(name, value)


def sampler(**settings):
    return BMSVMGibbs(**{**MODEL, "sampler": SWEEP, **settings})


def chain(kernel=None, *, warmup=10, samples=10, **settings):
    settings = {"progress_bar": False, "chain_method": "sequential", **settings}
    kernel = sampler() if kernel is None else kernel
    return MCMC(kernel, num_warmup=warmup, num_samples=samples, **settings)


def drawn(mcmc, *args, seed=0, **settings):
    mcmc.run(jax.random.key(seed), *(args or (X, NAMES)), **settings)
    return mcmc.get_samples(group_by_chain=True)


def assert_same(left, right, rtol=0.0):
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=rtol, atol=rtol, err_msg=name)


@pytest.fixture(scope="module")
def reference():
    mcmc = chain()
    drawn(mcmc)
    return mcmc


def test_sites_and_shapes(reference):
    samples = reference.get_samples()
    shapes = {name: value.shape for name, value in samples.items()}
    assert shapes == {
        "noise_variance": (10,),
        "precision": (10,),
        "intercept": (10, C),
        "scores": (10, N, C),
        "weights": (10, N, C - 1),
    }
    np.testing.assert_allclose(samples["scores"].sum(-1), 0, atol=1e-12)
    np.testing.assert_allclose(samples["intercept"].sum(-1), 0, atol=1e-12)


def test_chain_methods_give_the_same_draws():
    # Not bit for bit: XLA adds up batched reductions in another order, and sweeps pass the
    # rounding on. Over 20 sweeps it grows from 1e-16 to less than 1e-9.
    assert jax.local_device_count() >= 2
    runs = {
        method: drawn(chain(num_chains=2, chain_method=method))
        for method in ("sequential", "vectorized", "parallel")
    }
    assert runs["sequential"]["scores"].shape == (2, 10, N, C)
    assert not np.allclose(runs["sequential"]["scores"][0], runs["sequential"]["scores"][1])
    assert_same(runs["vectorized"], runs["sequential"], rtol=1e-7)
    assert_same(runs["parallel"], runs["sequential"], rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_give_the_same_draws_vectorized(name):
    """Without warm-up, in which vectorised chains learn scales and step size together."""
    kernel = BMSVMGibbs(**MODEL, sampler=name)
    if name == "hmc":  # forces in single precision would amplify how each program rounds
        double = Blocks(sweep=(hamiltonian(force_dtype=jnp.float64),))
        kernel = BMSVMGibbs(**MODEL, sampler=double)
    settings = {"num_chains": 2, "warmup": 0 if name == "hmc" else 10}
    vectorized = drawn(chain(kernel, chain_method="vectorized", **settings))
    assert_same(vectorized, drawn(chain(kernel, **settings)), rtol=1e-6)


def test_thinning_keeps_every_second_draw(reference):
    thinned = drawn(chain(thinning=2))
    every = reference.get_samples(group_by_chain=True)
    assert_same(thinned, {name: value[:, 1::2] for name, value in every.items()}, rtol=1e-12)


def test_progress_bar_shows_the_diagnostics(reference, monkeypatch, capfd):
    text = reference.sampler.get_diagnostics_str(reference.last_state)
    assert text == "acc. prob=1.00"
    monkeypatch.delenv("CI", raising=False)  # MCMC turns the bar off if either is set
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shown = drawn(chain(progress_bar=True))
    assert text in capfd.readouterr().err
    assert_same(shown, reference.get_samples(group_by_chain=True), rtol=1e-12)


def test_diagnostics_of_gradient_moves(reference):
    state = reference.last_state._replace(num_steps=jnp.asarray(8), step_size=jnp.asarray(0.25))
    assert reference.sampler.get_diagnostics_str(state) == "8 steps of size 0.25, acc. prob=1.00"


def test_extra_fields_and_excluded_sites(reference):
    assert set(reference.get_extra_fields()) == {"accept_prob", "step_size"}
    mcmc = chain()
    samples = drawn(mcmc, extra_fields=("accept_prob", "num_steps", "step_size", "~z.scores"))
    assert set(samples) == {"noise_variance", "precision", "intercept", "weights"}
    fields = mcmc.get_extra_fields()
    problem = mcmc.last_state.problem
    rank = problem.factor.eigenvalues.shape[0]
    assert samples["weights"].shape == (1, 10, rank, C - 1)
    for name in ("accept_prob", "num_steps", "step_size"):
        assert fields[name].shape == (10,)
    np.testing.assert_array_equal(fields["accept_prob"], 1.0)
    wide = coefficients(samples["weights"][0, -1], problem)
    assert wide.shape == (N, C)
    np.testing.assert_allclose(wide.sum(-1), 0, atol=1e-8)
    with pytest.raises(ValueError, match="log_likelihood needs the scores"):
        to_arviz(mcmc, log_likelihood=True)
    groups = groups_of(to_arviz(mcmc))
    assert "log_likelihood" not in groups
    assert "n_steps" in groups["sample_stats"]
    # and through ArviZ alone, a likelihood without scores is missing rather than made up
    data = az.from_numpyro(mcmc, log_likelihood=True)
    assert np.isnan(np.asarray(data["log_likelihood"]["y"])).all()


def test_summary_leaves_out_scores_and_weights(reference, capsys):
    reference.print_summary()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    names = [line[0].split("[")[0] for line in lines[1:] if not line[0].startswith("Number")]
    assert names == ["intercept"] * C + ["noise_variance", "precision"]


def test_warmup_then_run_equals_run(reference):
    mcmc = chain()
    mcmc.warmup(jax.random.key(0), X, NAMES)
    assert int(mcmc.post_warmup_state.i) == 10
    mcmc.run(mcmc.post_warmup_state.rng_key, X, NAMES)
    assert_same(
        mcmc.get_samples(group_by_chain=True), reference.get_samples(group_by_chain=True)
    )  # bit for bit


def test_running_on_equals_having_run_longer():
    longer = drawn(chain(samples=20))
    mcmc = chain()
    first = drawn(mcmc)
    mcmc.post_warmup_state = mcmc.last_state
    mcmc.run(mcmc.last_state.rng_key, X, NAMES)
    second = mcmc.get_samples(group_by_chain=True)
    joined = {name: np.concatenate([first[name], second[name]], axis=1) for name in longer}
    assert_same(joined, longer)  # bit for bit
    assert int(mcmc.last_state.i) == 30


@pytest.mark.parametrize("name", SAMPLERS)
def test_kernels_survive_pickling(name):
    kernel = BMSVMGibbs(**MODEL, sampler=name)
    again = pickle.loads(pickle.dumps(kernel))
    left, right = (each.prepare(X, NAMES) for each in (kernel, again))
    np.testing.assert_array_equal(left.factor.basis, right.factor.basis)
    assert again.algorithm(right) is kernel.algorithm(left)


def test_runs_survive_pickling():
    mcmc = chain(BMSVMGibbs(**MODEL, sampler="paper"))
    mcmc.run(jax.random.PRNGKey(0), X, NAMES)
    again = pickle.loads(pickle.dumps(mcmc))
    before = mcmc.get_samples(group_by_chain=True)
    assert_same(again.get_samples(group_by_chain=True), before)
    assert "log_likelihood" in groups_of(to_arviz(again))
    again.run(jax.random.PRNGKey(0), X, NAMES)
    assert_same(again.get_samples(group_by_chain=True), before)


def test_init_params_are_where_the_chain_starts():
    still = sampler(sampler=STILL)  # every draw is the initial state
    start = {
        "scores": np.linspace(-1, 1, N)[:, None] * np.array([1.0, -0.25, -0.75]),
        "noise_variance": 3.0,
        "precision": 0.5,
    }
    samples = drawn(chain(still, warmup=0, samples=1), init_params=start)
    for name, value in start.items():
        np.testing.assert_allclose(samples[name][0, 0], value, atol=1e-12)
    two = {name: np.stack([value, 2 * np.asarray(value)]) for name, value in start.items()}
    for method in ("sequential", "vectorized"):
        run = chain(still, warmup=0, samples=1, num_chains=2, chain_method=method)
        samples = drawn(run, init_params=two)
        for name, value in two.items():
            np.testing.assert_allclose(samples[name][:, 0], value, atol=1e-12)


def test_data_and_prepared_problem_give_the_same_draws(reference):
    expected = reference.get_samples(group_by_chain=True)
    problem = prepare(X, NAMES, **MODEL)
    assert_same(drawn(chain(BMSVMGibbs(sampler=SWEEP)), problem), expected)
    mcmc = chain()
    mcmc.run(jax.random.key(0), X=X, y=NAMES)
    assert_same(mcmc.get_samples(group_by_chain=True), expected)


def test_unknown_init_params_are_named():
    with pytest.raises(ValueError, match=r"init_params may hold .*'scores'.*; got \['weights'\]"):
        drawn(chain(), init_params={"weights": np.zeros((N, C - 1))})


def test_a_kernel_remembers_no_data():
    kernel, rows = sampler(), X.copy()
    before = dict(vars(kernel))
    first = kernel.prepare(rows, LABELS)
    rows *= 2
    second = kernel.prepare(rows, LABELS)
    assert not np.allclose(first.factor.eigenvalues, second.factor.eigenvalues)
    assert vars(kernel) == before


def test_jit_model_args(reference):
    mcmc = chain(jit_model_args=True)
    assert_same(drawn(mcmc, X, LABELS), reference.get_samples(group_by_chain=True))
    other = drawn(mcmc, X[::-1].copy(), LABELS)
    assert_same(other, drawn(chain(), X[::-1].copy(), LABELS))


def assert_arviz_groups(data, observed):
    assert {"posterior", "log_likelihood", "observed_data"} <= set(groups_of(data))
    assert data["posterior"]["scores"].dims == ("chain", "draw", "row", "class")
    assert data["posterior"]["intercept"].dims == ("chain", "draw", "class")
    assert data["log_likelihood"]["y"].dims == ("chain", "draw", "row")
    assert data["observed_data"]["y"].dims == ("row",)
    np.testing.assert_array_equal(data["observed_data"]["y"], observed)


@pytest.mark.filterwarnings("ignore")  # so few draws say little, and ArviZ says so
@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_arviz_reads_a_run(likelihood):
    kernel = sampler(likelihood=likelihood, sampler=Blocks(sweep=(metropolis_scores(),)))
    mcmc = chain(kernel, samples=60, num_chains=2, chain_method="vectorized")
    samples = drawn(mcmc)
    data = az.from_numpyro(mcmc, log_likelihood=True)
    assert_arviz_groups(data, LABELS)
    log_likelihood = bmsvm.models.likelihoods.LIKELIHOODS[likelihood]
    expected = jax.vmap(jax.vmap(lambda z: log_likelihood(z, jnp.asarray(LABELS))))
    np.testing.assert_allclose(
        data["log_likelihood"]["y"], expected(samples["scores"]), rtol=1e-10, atol=1e-10
    )
    assert np.isfinite(az.loo(data).elpd if ARVIZ_1 else az.loo(data).elpd_loo)
    if hasattr(az, "waic"):
        assert np.isfinite(az.waic(data).elpd_waic)

    named = to_arviz(mcmc, rows=[f"tree {i}" for i in range(N)])
    assert_arviz_groups(named, LABELS)
    assert list(named["posterior"]["class"].values) == list(CLASSES)
    assert str(named["posterior"]["row"].values[-1]) == f"tree {N - 1}"
    one = named["posterior"]["scores"].sel({"class": "beech", "row": "tree 4"})
    np.testing.assert_array_equal(one, samples["scores"][:, :, 4, 1])
    with pytest.raises(ValueError, match="classes must have one label for each class, 3 of them"):
        to_arviz(mcmc, classes=["a", "b"])


@pytest.mark.slow
def test_nuts_runs_on_the_same_model():
    problem = prepare(X, NAMES, **MODEL)
    mcmc = chain(NUTS(hierarchical_model, max_tree_depth=4), warmup=20, samples=20)
    samples = drawn(mcmc, problem)
    assert samples["scores"].shape == (1, 20, N, C)
    assert all(np.isfinite(value).all() for value in samples.values())
    assert_arviz_groups(az.from_numpyro(mcmc, log_likelihood=True), LABELS)
    named = to_arviz(mcmc, classes=CLASSES)
    assert list(named["posterior"]["class"].values) == list(CLASSES)


def test_predictive_draws_labels(reference):
    """Labels come with the probabilities of their scores; false alarm below 1e-6."""
    problem, samples = prepare(X, NAMES, **MODEL), reference.get_samples()
    many = {
        name: jnp.tile(value, (100, *[1] * (value.ndim - 1))) for name, value in samples.items()
    }
    predictive = Predictive(hierarchical_model, many, condition_deterministic=True)
    labels = predictive(jax.random.key(1), problem, observed=False)["y"]
    assert labels.shape == (1000, N)
    frequencies = jnp.mean(jax.nn.one_hot(labels, C), axis=(0, 1))
    expected = class_probabilities(samples["scores"], "hinge").mean((0, 1))
    np.testing.assert_allclose(frequencies, expected, atol=5 * 0.5 / np.sqrt(1000 * N))
    agreement = jnp.mean(labels == LABELS)
    own = class_probabilities(samples["scores"], "hinge")[:, np.arange(N), LABELS].mean()
    np.testing.assert_allclose(agreement, own, atol=5 * 0.5 / np.sqrt(1000 * N))
