"""Classifiers and chains in ArviZ, of both versions: groups, names, and that its functions run."""

import copy
import importlib.util
from dataclasses import replace

import arviz as az
import jax
import matplotlib
import numpy as np
import pytest
from arviz_groups import groups_of
from few_draws import few_draws
from numpyro.infer import MCMC
from sklearn.exceptions import NotFittedError
from small_models import CODES, NEW, WORDS, X, Y, fit

from bmsvm import PAPER, BMSVMClassifier, BMSVMGibbs, Sampled, prepare, run_chains
from bmsvm.arviz import to_arviz

ARVIZ_1 = int(az.__version__.split(".")[0]) >= 1
GROUPS = {
    "posterior",
    "posterior_predictive",
    "log_likelihood",
    "observed_data",
    "constant_data",
    "sample_stats",
}
N = len(X)


@pytest.fixture(scope="module")
def model():
    return fit(num_samples=40)


@pytest.fixture(scope="module")
def chains():
    """A run on labelled rows at a fixed theta."""
    mcmc = MCMC(
        BMSVMGibbs(lengthscale=1.5, likelihood="hinge", hyperparameters=PAPER, sampler="gibbs"),
        num_warmup=20,
        num_samples=40,
        num_chains=2,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(0), (X / X.std()).to_numpy(), Y)
    return mcmc


@pytest.fixture(scope="module")
def of_model(model):
    return to_arviz(model, new_rows=NEW)


@pytest.fixture(scope="module")
def of_chains(chains):
    return to_arviz(chains, features=list(X.columns), new_rows=(NEW / X.std()).to_numpy())


@pytest.fixture(params=["classifier", "chains"])
def data(request, of_model, of_chains):
    return of_model if request.param == "classifier" else of_chains


def test_every_group_is_there_with_its_names(data):
    groups = groups_of(data)
    assert set(groups) == GROUPS | {"predictions", "predictions_constant_data"}
    assert groups["posterior"]["intercept"].dims == ("chain", "draw", "class")
    assert groups["posterior"]["class"].values.tolist() == WORDS.tolist()
    for name in ("posterior_predictive", "log_likelihood"):
        assert groups[name]["y"].dims == ("chain", "draw", "row")
        assert groups[name]["y"].shape == (2, 40, N)
    np.testing.assert_array_equal(groups["observed_data"]["y"], CODES)
    assert groups["constant_data"]["X"].dims == ("row", "feature")
    assert groups["constant_data"]["feature"].values.tolist() == ["width", "height"]
    assert {"acceptance_rate", "step_size"} <= set(groups["sample_stats"])
    assert "tree_depth" not in groups["sample_stats"]
    np.testing.assert_array_equal(groups["sample_stats"]["acceptance_rate"], 1.0)  # exact draws
    new = groups["predictions"]
    assert new["p"].dims == ("chain", "draw", "row", "class")
    assert new["p"].shape == (2, 40, len(NEW), 3)
    np.testing.assert_allclose(new["p"].sum("class"), 1, rtol=1e-6)
    assert set(np.unique(new["y"])) <= {0, 1, 2}
    assert new["row"].values.tolist() == list(range(len(NEW)))


def test_the_data_come_back_in_their_units(of_model, model):
    np.testing.assert_allclose(of_model["constant_data"]["X"], X, rtol=1e-12)
    np.testing.assert_allclose(of_model["predictions_constant_data"]["X"], NEW, rtol=1e-12)
    assert float(of_model["constant_data"]["lengthscale"]) == model.lengthscale_
    drawn = model.posterior_predictive(NEW)
    np.testing.assert_array_equal(of_model["predictions"]["p"], drawn["p"])
    np.testing.assert_array_equal(WORDS[of_model["predictions"]["y"].values], drawn["y"])


def test_rows_are_called_as_they_are_told(model):
    names = [f"tree {i}" for i in range(N)]
    data = to_arviz(model, rows=names, new_rows=NEW.set_axis(list("abcde")))
    assert data["log_likelihood"]["row"].values.tolist() == names
    assert data["predictions"]["row"].values.tolist() == list("abcde")
    with pytest.raises(ValueError, match=f"rows must have one label for each row, {N} of them"):
        to_arviz(model, rows=names[1:])
    with pytest.raises(ValueError, match="features must have one label for each feature, 2 of"):
        to_arviz(model, features=["width"])


def test_functions_are_those_at_the_training_rows(model):
    small = to_arviz(model, functions=True, log_likelihood=False, posterior_predictive=False)
    assert set(groups_of(small)) == GROUPS - {"log_likelihood", "posterior_predictive"}
    functions = small["posterior"]["functions"]
    assert functions.dims == ("chain", "draw", "row", "class")
    np.testing.assert_allclose(
        functions.mean(("chain", "draw")), model.class_functions(X), rtol=1e-6, atol=1e-6
    )


def test_what_is_calibrated_says_so(chains):
    """Leave-one-out of ArviZ is of the model, the labels of a classifier of calibrated draws."""
    posterior = "of the posterior, not calibrated"
    for how, about in (
        ("calibrated", "of the predictive distribution: calibrated by leave-one-out"),
        ("posterior", posterior),
    ):
        model = fit(predictive=how)
        data = groups_of(to_arviz(model, functions=True, new_rows=NEW))
        assert data["posterior"]["functions"].attrs["comment"] == posterior
        assert data["log_likelihood"]["y"].attrs["comment"] == posterior
        assert data["posterior_predictive"]["y"].attrs["comment"] == about
        drawn = model.posterior_predictive(NEW)
        assert drawn["f"].attrs["comment"] == posterior
        for name in ("p", "y"):
            assert data["predictions"][name].attrs["comment"] == about
            assert drawn[name].attrs["comment"] == about
        assert (model.predictive_.calibration is None) == (about == posterior)
    of_chains = groups_of(to_arviz(chains))
    for group in ("log_likelihood", "posterior_predictive"):
        assert of_chains[group]["y"].attrs["comment"] == posterior
    pooled = fit(likelihood="normalized", sampler="auto").posterior_predictive(NEW)
    assert pooled["p"].attrs["comment"].endswith(", pooled with least squares")


def test_models_whose_scores_cannot_be_integrated_out_have_no_log_likelihood(model):
    other = copy.copy(model)
    problem = replace(model.posterior_.problem, coupling="independent")
    posterior = replace(model.posterior_, problem=problem)
    other.predictive_ = replace(model.predictive_, posterior=posterior)
    assert "log_likelihood" not in groups_of(to_arviz(other, posterior_predictive=False))
    with pytest.raises(ValueError, match='log_likelihood needs coupling="sum_to_zero"'):
        to_arviz(other, posterior_predictive=False, log_likelihood=True)


def test_weights_and_rows_left_out():
    weights = np.ones(N)
    weights[[0, 3]] = 0, 2.5
    with few_draws():
        weighted = BMSVMClassifier(
            lengthscale=1.5, likelihood="hinge", sampler="gibbs", num_chains=2, num_warmup=20,
            num_samples=20, random_state=0,
        ).fit(X, Y, sample_weight=weights)  # fmt: skip
    data = to_arviz(weighted)
    assert data["observed_data"]["row"].values.tolist() == list(range(1, N))
    assert data["constant_data"]["row_weight"].sel(row=3) == 2.5
    np.testing.assert_allclose(data["constant_data"]["X"].sel(row=3), X.iloc[3])


def assert_theta_is_sampled(data):
    assert data["posterior"]["lengthscale"].dims == ("chain", "draw")
    assert "lengthscale" not in data["constant_data"]
    rate = data["sample_stats"]["lengthscale_acceptance_rate"]
    assert 0 < float(rate.mean()) <= 1


def test_a_sampled_lengthscale_has_its_acceptance(model):
    other = copy.copy(model)
    half = np.full((2, 40), 0.5)
    grid = prepare(X / X.std(), Y, lengthscale=Sampled(grid=[0.5, 1.0])).grid
    posterior = replace(
        model.posterior_,
        samples={**model.posterior_.samples, "lengthscale": half, "lengthscale_accept_prob": half},
        problem=replace(model.posterior_.problem, grid=grid),
        lengthscale=None,
    )
    other.predictive_ = replace(model.predictive_, posterior=posterior)
    assert_theta_is_sampled(to_arviz(other, log_likelihood=False, posterior_predictive=False))


@pytest.mark.slow
def test_a_fit_with_theta_keeps_its_acceptance():
    grid = np.geomspace(0.5, 5, 4)
    assert_theta_is_sampled(to_arviz(fit(lengthscale=Sampled(grid=grid))))


def test_chains_on_a_problem_say_what_they_lack(chains):
    problem = prepare(X / X.std(), Y, lengthscale=1.5)
    mcmc = MCMC(BMSVMGibbs(sampler="gibbs"), num_warmup=0, num_samples=12, progress_bar=False)
    mcmc.run(jax.random.key(0), problem)
    data = to_arviz(mcmc, classes=WORDS)
    assert data["posterior"]["class"].values.tolist() == WORDS.tolist()
    assert "constant_data" not in groups_of(data)
    with pytest.raises(ValueError, match="new_rows needs the training rows"):
        to_arviz(mcmc, new_rows=NEW)
    run = run_chains(BMSVMGibbs(sampler="gibbs"), jax.random.key(0), problem, num_samples=12)
    with pytest.raises(
        ValueError, match=r"run_chains does not keep: Posterior.from_numpyro\(run, X"
    ):
        to_arviz(run, new_rows=NEW)
    with pytest.raises(ValueError, match="features cannot be labelled"):
        to_arviz(mcmc, features=["a", "b"])
    with pytest.raises(ValueError, match=r"new_rows must have shape \(m, 2\)"):
        to_arviz(chains, new_rows=np.ones((3, 4)))


def test_what_it_does_not_take_it_names(model, chains):
    with pytest.raises(TypeError, match="fitted must be a numpyro"):
        to_arviz({"precision": [1.0]})
    with pytest.raises(NotFittedError):
        to_arviz(BMSVMClassifier())
    with pytest.raises(ValueError, match="functions=True is for a classifier"):
        to_arviz(chains, functions=True)
    with pytest.raises(ValueError, match="rows of weight 0, such as a classifier adds"):
        to_arviz(model.run_)
    with pytest.raises(ValueError, match="thin must be"):
        to_arviz(model, thin=0)


def test_new_rows_need_the_weights_and_no_scores():
    rows = (X / X.std()).to_numpy()
    kernel = BMSVMGibbs(lengthscale=1.5, sampler="gibbs")
    for left_out in ("weights", "scores"):
        mcmc = MCMC(kernel, num_warmup=0, num_samples=12, progress_bar=False)
        mcmc.run(jax.random.key(0), rows, Y, extra_fields=(f"~z.{left_out}",))
        if left_out == "weights":
            with pytest.raises(ValueError, match="new_rows needs the weights"):
                to_arviz(mcmc, new_rows=rows[:3])
        else:
            data = to_arviz(mcmc, new_rows=rows[:3])
            assert data["predictions"]["p"].shape == (1, 12, 3, 3)


@pytest.mark.filterwarnings("ignore")  # so few draws say little, and ArviZ says so
def test_arviz_works_on_it_unmodified(data, tmp_path):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ["noise_variance", "precision", "intercept"]
    summary = az.summary(data, var_names=names)
    assert list(summary.index)[:3] == ["noise_variance", "precision", "intercept[blue]"]
    for function in (az.rhat, az.ess):
        found = function(data, var_names=names)
        found = found["posterior"] if "posterior" in getattr(found, "children", ()) else found
        assert np.isfinite(np.asarray(found["intercept"])).all()
    loo = az.loo(data, pointwise=True)
    assert np.isfinite(loo.elpd if ARVIZ_1 else loo.elpd_loo)
    table = az.compare({"one": data, "two": data})
    assert set(table.index) == {"one", "two"}
    for plot in (az.plot_trace, az.plot_rank, az.plot_ppc_dist if ARVIZ_1 else az.plot_ppc):
        options = {} if "ppc" in plot.__name__ else {"var_names": names}
        plot(data, **options)
        plt.savefig(tmp_path / "picture.png")
        plt.close("all")
    if any(map(importlib.util.find_spec, ("netCDF4", "h5netcdf"))):  # ArviZ 1.x brings neither
        data.to_netcdf(tmp_path / "data.nc")
        assert (tmp_path / "data.nc").stat().st_size > 10_000


@pytest.mark.filterwarnings("ignore")
def test_the_classifiers_posterior_needs_no_choice_of_variables(of_model):
    assert len(az.summary(of_model)) == 5  # sigma2, tau and three intercepts
    az.plot_trace(of_model)
    az.plot_rank(of_model)
    matplotlib.pyplot.close("all")
