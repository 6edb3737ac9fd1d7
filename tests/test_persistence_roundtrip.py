"""Saved models are the same after loading, and what cannot be saved is named."""

import copy
import dataclasses
import json
import pickle

import jax
import numpy as np
import pytest
from few_draws import few_draws
from model_files import contents_of, digest_of, image_of
from numpyro.distributions import Gamma
from safetensors import safe_open
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import LeaveOneOut
from small_models import NEW, SMALL, X, Y, fit, renamed

import bmsvm
from bmsvm import (
    HMC,
    AltMSVM,
    BMSVMClassifier,
    BMSVMGibbs,
    Fourier,
    Hyperparameters,
    MSVMClassifier,
    Nystrom,
    OneVsRestSVC,
    Paper,
    Predictive,
    Sampled,
    kernels,
    load,
    save,
)
from bmsvm.inference import Blocks
from bmsvm.inference.blocks import scale
from bmsvm.machines import Grid
from bmsvm.persistence import ESTIMATORS
from bmsvm.selection import ModeSelection, Selection


@pytest.fixture(scope="module")
def fitted():
    return fit()


def after_loading(model, tmp_path):
    save(model, tmp_path / "model.bmsvm")
    return load(tmp_path / "model.bmsvm")


def assert_same_model(one, other):
    np.testing.assert_array_equal(one.predict_proba(NEW), other.predict_proba(NEW))
    assert vars(one).keys() == vars(other).keys()
    assert one.classes_.dtype == other.classes_.dtype
    np.testing.assert_array_equal(one.classes_, other.classes_)
    assert one.diagnostics_ == other.diagnostics_
    assert one.run_.samples.keys() == other.run_.samples.keys()
    for name, draws in one.run_.samples.items():
        np.testing.assert_array_equal(draws, other.run_.samples[name])


def assert_same_program(one, other):
    """Require states that are the same to JAX, which then compiles nothing anew."""
    states = [model.run_.state for model in (one, other)]
    types = [jax.tree.map(jax.typeof, jax.tree.leaves(state)) for state in states]
    assert types[0] == types[1]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    algorithms = [model.run_.kernel.algorithm(model.run_.problem) for model in (one, other)]
    assert algorithms[0] is algorithms[1]


# Models --------------------------------------------------------------------------------------

GRID = np.geomspace(0.5, 5, 3)
CONFIGURATIONS = {
    "fixed": {},
    "hmc": {"sampler": HMC(thinning=2), "kernel": kernels.Matern32(), "predictive": "posterior"},
    "grid": {"lengthscale": Sampled(prior="log-uniform", grid=GRID)},
    "off-grid": {"lengthscale": Sampled(grid="off", bounds=[0.2, 20], every=3)},
    "per-feature": {"lengthscale": Sampled("log-uniform", per_feature=True), "sampler": "hmc"},
    "low-rank": {"approximation": Nystrom(rank=5), "sampler": HMC()},
    "low-rank-grid": {
        "approximation": Fourier(rank=6),
        "sampler": "hmc",
        "lengthscale": Sampled(grid=GRID),
    },
    "normalized": {
        "likelihood": "normalized",
        "sampler": "auto",
        "lengthscale": Sampled(grid=GRID),
    },
    "independent": {
        "coupling": "independent",
        "lengthscale": [1.0, 2.0],
        "sampler": Paper(thinning=2),
        "hyperparameters": Hyperparameters(noise_rate=2.0),
        "predictive": Predictive(remainder=False, decision="exclusion"),
        "class_weight": {"blue": 0.5, "green": 1, "red": 2.0},
        "standardize": False,
    },
}
LONG = {"grid", "off-grid", "per-feature", "low-rank", "low-rank-grid", "normalized"}
"""They take longest to compile; test_persistence_values.py saves their structures."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in CONFIGURATIONS],
)
def test_loading_returns_the_model_and_its_chains_resume(name, tmp_path):
    settings = CONFIGURATIONS[name]
    model = fit(**settings)
    loaded = after_loading(model, tmp_path)
    assert_same_model(model, loaded)
    assert repr(loaded) == repr(model)
    assert loaded.run_.seconds == model.run_.seconds > 0
    assert_same_program(model, loaded)
    with few_draws():
        loaded.fit_more(10)
    # Compare with a longer run, not with the model in memory: one may hide the other's error.
    longer = fit(**settings, num_samples=30)
    np.testing.assert_array_equal(longer.predict_proba(NEW), loaded.predict_proba(NEW))
    for site, draws in longer.run_.samples.items():
        np.testing.assert_array_equal(draws, loaded.run_.samples[site])


def test_pickling_returns_the_model_too(fitted):
    unpickled = pickle.loads(pickle.dumps(fitted))
    assert_same_model(fitted, unpickled)
    assert_same_program(fitted, unpickled)


@pytest.mark.parametrize("machine", [MSVMClassifier, AltMSVM, OneVsRestSVC])
def test_machines_are_saved(machine, tmp_path):
    grid = Grid(gamma=[0.1, 1.0], folds=3)
    model = machine(kernel=kernels.Gaussian(), lengthscale=1.5, gamma="cv", grid=grid).fit(X, Y)
    loaded = after_loading(model, tmp_path)
    assert vars(loaded).keys() == vars(model).keys()
    assert repr(loaded) == repr(model)
    np.testing.assert_array_equal(loaded.class_functions(NEW), model.class_functions(NEW))
    np.testing.assert_array_equal(loaded.predict(NEW), model.predict(NEW))
    np.testing.assert_array_equal(loaded.tuning_.error, model.tuning_.error)


SELECTIONS = {
    "squares-cv": Selection(
        kernel=kernels.Gaussian(),
        lengthscale=1.5,
        hyperparameters=Hyperparameters(),
        num_rows=np.int64(18),
    ),
    "mode-cv": ModeSelection(
        kernel=kernels.Laplacian(),
        lengthscale=1.5,
        hyperparameters=Hyperparameters(precision_shape=50.0),
        num_rows=18,
        pairs=((kernels.Laplacian(), 1.5), (kernels.Gaussian(), 2.0)),
        precision=0.3,
        grid=np.array([1.0, 1.5]),
        precisions=np.array([0.1, 0.3]),
        log_loss=np.ones((2, 2)),
        weights=np.full((2, 2), 0.25),
    ),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_the_choice_of_the_lengthscale_is_saved(fitted, name, tmp_path):
    selection, other = SELECTIONS[name], copy.copy(fitted)
    other.selection_ = selection
    found = after_loading(other, tmp_path).selection_
    assert type(found) is type(selection)
    np.testing.assert_equal(vars(found), vars(selection))


def test_run_and_posterior_share_draws_and_problem(fitted, tmp_path):
    loaded = after_loading(fitted, tmp_path)
    assert loaded.posterior_.problem is loaded.run_.problem
    assert loaded.posterior_.samples is loaded.run_.samples
    _, arrays = contents_of(image_of(fitted))
    own = {name for name in arrays if name.startswith("predictive_")}
    posterior = {"predictive_.posterior.lengthscale", "predictive_.posterior.training_rows"}
    assert own == posterior | {"predictive_.calibration.counts"}


@pytest.mark.parametrize("changed", ["problem", "samples"])
def test_a_posterior_that_is_not_that_of_the_run_is_not_saved(fitted, changed, tmp_path):
    other, posterior = copy.copy(fitted), fitted.posterior_
    fewer = {name: draws[:, :-1] for name, draws in posterior.samples.items()}
    changes = {"samples": fewer, "problem": dataclasses.replace(posterior.problem)}
    posterior = dataclasses.replace(posterior, **{changed: changes[changed]})
    other.predictive_ = dataclasses.replace(fitted.predictive_, posterior=posterior)
    with pytest.raises(ValueError, match="posterior_"):
        save(other, tmp_path / "model.bmsvm")


def test_all_that_is_learned_is_saved(fitted):
    assert vars(fitted).keys() <= {*fitted.get_params(), *ESTIMATORS[BMSVMClassifier]}


def test_a_model_of_rows_without_names_and_some_without_weight(tmp_path):
    # Two rows of no weight leave as many as the other models have, and one program serves all.
    rows = np.concatenate([X.to_numpy(), NEW.to_numpy()[:2]])
    gram = np.exp(-0.1 * ((rows[:, None] - rows) ** 2).sum(-1))
    labels, weights = np.concatenate([Y, Y[:2]]), np.repeat([1.0, 0.0], [len(Y), 2])
    with few_draws():
        model = BMSVMClassifier(
            kernel="precomputed", likelihood="hinge", sampler="gibbs", **SMALL
        ).fit(gram, labels, weights)
    loaded = after_loading(model, tmp_path)
    np.testing.assert_array_equal(loaded.kept_rows_, np.arange(len(Y)))
    np.testing.assert_array_equal(loaded.predict_proba(gram), model.predict_proba(gram))
    machine = MSVMClassifier(kernel="precomputed").fit(
        gram[::-1, ::-1], labels[::-1], weights[::-1]
    )
    again = after_loading(machine, tmp_path)
    assert again.kept_rows_[0] == 2
    np.testing.assert_array_equal(again.class_functions(gram), machine.class_functions(gram))


@pytest.mark.parametrize(
    "classes",
    [
        np.array([-3, 0, 2**62]),
        np.array([1, 2, 3], np.uint8),
        np.array([0.1, 1.0, 1e300]),
        np.array([0.1, 0.2, 0.3], np.float32),
        np.array(["a", "ß", "\ud800\x01<&'\""], "<U40"),
        np.array(["a", "b", "c"], object),
        np.array([1, 2, 3], object),
        np.array(["2001-01-01", "2002-01-01", "2003-01-01"], "datetime64[D]"),
    ],
    ids=lambda classes: str(classes.dtype),
)
def test_classes_keep_their_values_and_type(fitted, classes, tmp_path):
    found = after_loading(renamed(fitted, classes), tmp_path).classes_
    assert found.dtype == classes.dtype
    assert found.tolist() == classes.tolist()
    assert [type(each) for each in found.tolist()] == [type(each) for each in classes.tolist()]


def test_other_programs_read_the_file(fitted, tmp_path):
    save(fitted, tmp_path / "model.bmsvm")
    with safe_open(tmp_path / "model.bmsvm", "np") as file:
        document = json.loads(file.metadata()["bmsvm"])
        np.testing.assert_array_equal(
            file.get_tensor("predictive_.posterior.training_rows"),
            fitted.posterior_.training_rows,
        )
        draws = file.get_tensor("run_.samples.precision")
        np.testing.assert_array_equal(draws, fitted.run_.samples["precision"])
    assert document["class"] == "BMSVMClassifier"
    assert document["parameters"]["likelihood"] == "hinge"
    assert document["versions"]["bmsvm"] == bmsvm.__version__
    assert document["versions"]["jax"] == jax.__version__


def test_the_digest_is_the_documented_one(fitted):
    image = image_of(fitted)
    document, arrays = contents_of(image)
    assert digest_of(json.dumps(document), arrays).encode() in image


# What cannot be saved ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"kernel": kernels.Linear().at()}, r"parameters\.kernel .* no code"),
        ({"kernel": kernels.Function(np.dot)}, r"parameters\.kernel .* no code"),
        ({"kernel": kernels.Parametric(dict, Gamma(1.0))}, r"parameters\.kernel .* no code"),
        ({"sampler": Blocks(sweep=(scale(),))}, r"parameters\.sampler .* no code"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
        ({"class_weight": object()}, "class_weight"),
        ({"lengthscale": np.array([1 + 2j])}, "lengthscale.*complex128"),
        ({"lengthscale": np.array([object()])}, "lengthscale"),
    ],
)
def test_what_cannot_be_saved_is_named(fitted, changes, named, tmp_path):
    other = renamed(fitted, fitted.classes_).set_params(**changes)
    with pytest.raises(ValueError, match=named):
        save(other, tmp_path / "model.bmsvm")
    assert not list(tmp_path.iterdir())


def test_a_block_of_a_larger_model_cannot_be_saved(fitted, tmp_path):
    other = copy.copy(fitted)
    block = BMSVMGibbs(model=lambda *_: None, given=lambda *_: None)
    other.run_ = dataclasses.replace(fitted.run_, kernel=block)
    with pytest.raises(ValueError, match=r"run_\.kernel\.given .* no code"):
        save(other, tmp_path / "model.bmsvm")


def test_only_fitted_models_of_bmsvm_are_saved(tmp_path):
    for estimator in (BMSVMClassifier(), MSVMClassifier()):
        with pytest.raises(NotFittedError):
            save(estimator, tmp_path / "model.bmsvm")
    with pytest.raises(ValueError, match="LeaveOneOut"):
        save(LeaveOneOut(), tmp_path / "model.bmsvm")
