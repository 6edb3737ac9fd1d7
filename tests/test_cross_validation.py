"""Cross-validation: scores of fits, whichever way the fits are run; and theta set by one word."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.infer import MCMC
from sklearn.model_selection import KFold

from bmsvm import BMSVMGibbs, cross_validate, kernels, run_chains
from bmsvm.inference import cross_validation as module
from bmsvm.inference import run as runner
from bmsvm.inference import select
from bmsvm.inference.predict import class_probabilities, features_at
from bmsvm.models.regram import with_gram

RNG = np.random.default_rng(0)
Y = np.array(["ash", "elm", "oak"])[np.arange(24) % 3]
X = RNG.normal(size=(24, 2)) + 2.5 * np.eye(3)[np.arange(24) % 3][:, :2]
GRID = np.array([0.02, 1.5, 6.0])
SETTINGS = {
    "rng_key": jax.random.key(0),
    "grid": GRID,
    "folds": 3,
    "num_warmup": 60,
    "num_samples": 50,
    "num_chains": 2,
    "progress_bar": False,
}


def validate(**settings):
    return cross_validate(X, settings.pop("y", Y), **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def whole():
    return validate(loo=True)


def assert_same(one, other):
    for name in ("grid", "log_loss", "error", "loo", "pareto_k"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_useless_lengthscale_loses(whole):
    assert whole.log_loss.shape == whole.error.shape == (3, 3)
    assert whole.loo.shape == (3, 24)
    for criterion in ("log_loss", "error", "loo"):
        mean = whole.mean(criterion)
        assert mean.shape == whole.standard_error(criterion).shape == (3,)
        assert mean[0] > mean[1:].min()
    assert whole.lengthscale == GRID[whole.best]
    assert isinstance(whole.lengthscale, float)


def test_a_cell_is_a_fit_of_its_own(whole):
    labels = np.unique(Y, return_inverse=True)[1]
    pairs = list(KFold(3).split(X))
    cell = validate(folds=pairs)
    train, test = pairs[0]
    sampler = BMSVMGibbs(lengthscale=GRID[1])
    problem = sampler.prepare(X[train], Y[train])
    problem = with_gram(problem, kernels.gram(kernels.gaussian(GRID[1]), X[train]))
    key = jax.random.fold_in(jax.random.fold_in(SETTINGS["rng_key"], 1), 0)
    key_run, key_predict = jax.random.split(key)
    run = run_chains(
        sampler,
        key_run,
        problem,
        num_warmup=60,
        num_samples=50,
        num_chains=2,
        progress_bar=False,
    )
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in run.samples.items()}
    features = features_at(kernels.gaussian(GRID[1]), X[test], X[train], problem.factor)
    mean = np.asarray(class_probabilities(key_predict, draws, features, problem)).mean(0)
    # The draws are the same; test folds are padded to one size, and so predicted with other noise.
    expected = -np.log(mean[np.arange(len(test)), labels[test]]).mean()
    assert cell.log_loss[1, 0] == pytest.approx(expected, abs=0.1)


def test_held_out_rows_count_by_their_weights():
    """The same fit, scored by one of two rows at a time: the mean over both is that of the fold."""
    train, test = np.arange(22), np.arange(22, 24)

    def scored(weights):
        return validate(
            grid=GRID[1:2], folds=[(train, test)], row_weights=np.append(np.ones(22), weights)
        ).log_loss[0, 0]

    first, second, both = scored([1, 0]), scored([0, 1]), scored([3, 1])
    assert abs(first - second) > 1e-3
    assert both == pytest.approx((3 * first + second) / 4, rel=1e-12)
    with pytest.raises(ValueError, match="row_weights must not all be zero in a fold"):
        scored([0, 0])


def test_threads_have_the_precision_of_the_caller():
    """Which a context sets for one thread only."""
    seen, original = [], module._Task._run

    def spy(self, cell):
        seen.append(jnp.zeros(()).dtype)
        return cell, (0.0, 0.0)

    module._Task._run = spy
    try:
        with jax.enable_x64(False):
            validate(n_jobs=2)
    finally:
        module._Task._run = original
    assert set(seen) == {np.dtype(np.float32)}
    assert len(seen) == 9


def test_some_rows_keep_their_labels_and_weights():
    problem = BMSVMGibbs().prepare(X, Y, np.arange(1.0, 25.0))
    some = with_gram(problem, np.eye(3), [5, 1, 0])
    np.testing.assert_array_equal(some.labels, [2, 1, 0])
    np.testing.assert_array_equal(some.row_weights, [6, 2, 1])


@pytest.mark.parametrize("method", ["marginal-likelihood", "cv"])
def test_ways_to_set_theta_see_the_weights(method, monkeypatch):
    seen = {}

    def choose(X, y, *, row_weights, **settings):
        seen["weights"] = row_weights
        return type("Found", (), {"lengthscale": 2.0})

    monkeypatch.setitem(select.SELECTIONS, method, choose)
    weights = np.arange(24.0)
    BMSVMGibbs(lengthscale=method).prepare(X, Y, weights)
    np.testing.assert_array_equal(seen["weights"], weights)


def test_threads_give_the_same_scores_and_one_program_serves(whole):
    compiled = runner._advance._cache_size()
    assert_same(validate(loo=True, n_jobs=2), whole)
    assert runner._advance._cache_size() == compiled


def test_an_interruption_keeps_finished_cells_and_the_rest_follows(whole, monkeypatch):
    calls, original = iter(range(1000)), module._Task.run

    def interrupted(self, cell):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return original(self, cell)

    monkeypatch.setattr(module._Task, "run", interrupted)
    with pytest.warns(UserWarning, match="4 of 12 runs were made; .* resume"):
        part = validate(loo=True)
    assert part.interrupted
    assert np.isfinite(part.log_loss).sum() == 4
    assert part.best == 0  # the only one that is finished
    full = validate(loo=True, resume=part)
    assert not full.interrupted
    assert_same(full, whole)
    with pytest.raises(ValueError, match="resume must have the same grid"):
        validate(resume=part, grid=GRID[:2])


def test_an_interruption_of_the_first_run_is_passed_on(monkeypatch):
    def interrupted(self, cell):
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Task, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        validate()
    sampler = BMSVMGibbs(lengthscale="cv", lengthscale_options={"progress_bar": False})
    with pytest.raises(KeyboardInterrupt):
        sampler.prepare(X, Y)


def test_leave_one_out_needs_no_folds(whole):
    alone = validate(criterion="loo", folds="nonsense")
    assert alone.log_loss.shape == (3, 0)
    assert np.isnan(alone.mean("log_loss")).all()
    assert alone.best == int(whole.mean("loo").argmin())


def test_a_class_of_one_row_is_predicted_by_the_fold_that_has_not_seen_it():
    labels = Y.copy()
    labels[labels == "oak"] = "elm"
    labels[4] = "yew"
    with pytest.warns(UserWarning, match="'yew' has 1 rows, fewer than the 3 folds.*without it"):
        result = validate(y=labels, grid=GRID[1:2])
    assert np.isfinite(result.log_loss).all()
    assert result.log_loss.max() < 5  # the model gives a class without rows its share


def test_folds_have_one_size():
    classes, labels = np.unique(Y[:23], return_inverse=True)
    folds = module.make_folds(4, X[:23], classes, labels, seed=0)
    assert len({len(fold.train) for fold in folds}) == 1
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(23))
    assert all(not set(fold.train) & set(fold.test) for fold in folds)


def test_the_default_grid_surrounds_the_median_distance():
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(24, 1)]
    assert kernels.median_distance(X) == pytest.approx(np.median(distance))
    assert kernels.median_distance(np.ones((3, 2))) == 1.0
    grid = module.default_grid(X)
    assert grid.size == 13
    assert grid[6] == pytest.approx(np.median(distance))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"criterion": "auc"}, "criterion must be one of 'log_loss', 'error', 'loo'"),
        ({"kernel": "linear"}, "kernel must be one of 'gaussian'"),
        ({"grid": []}, "grid must be positive numbers"),
        ({"grid": [1.0, -1.0]}, "grid must be positive numbers"),
        ({"grid": [[1.0, 2.0, 3.0]]}, "for one per feature, of which X has 2"),
        ({"folds": 1}, "folds must be an integer of at least 2; got 1"),
        ({"folds": 20}, "folds must be at most the rows of the largest class, 8; got 20"),
        ({"folds": 2.5}, "folds must be an integer, a scikit-learn splitter, or pairs"),
        ({"folds": [([0, 99], [1])]}, "row numbers below 24"),
        ({"folds": [([0], [1])]}, "fold 0 must have at least 2 rows to learn from"),
        ({"folds": []}, "folds must have at least one pair"),
    ],
)
def test_bad_arguments_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        validate(**settings)


CV = {name: SETTINGS[name] for name in ("grid", "folds", "num_warmup", "num_samples", "num_chains")}
CV |= {"progress_bar": False, "seed": 3}
EVIDENCE = {"num_steps": 20, "num_warmup": 20, "num_chains": 2, "progress_bar": False}


@pytest.mark.filterwarnings("ignore:the ascent of the marginal likelihood")
@pytest.mark.parametrize(
    ("method", "options"), [("cv", CV), ("marginal-likelihood", EVIDENCE)], ids=lambda v: str(v)[:4]
)
def test_one_word_sets_the_lengthscale(method, options):
    sampler = BMSVMGibbs(lengthscale=method, lengthscale_options=options, preset="paper")
    assert sampler.lengthscale_selection is None
    mcmc = MCMC(sampler, num_warmup=20, num_samples=10, progress_bar=False)
    mcmc.run(jax.random.key(0), X, Y)
    theta = sampler.lengthscale_selection.lengthscale
    assert mcmc.get_samples()["scores"].shape == (10, 24, 3)
    assert "lengthscale" not in mcmc.get_samples()
    problem = sampler.prepare(X, Y)
    fixed = BMSVMGibbs(lengthscale=theta).prepare(X, Y)
    np.testing.assert_array_equal(problem.factor.basis, fixed.factor.basis)
    again = pickle.loads(pickle.dumps(sampler))
    assert again.lengthscale_selection.lengthscale == theta
    again.prepare(X, Y)
    assert again.lengthscale_selection.lengthscale == theta  # the seed is fixed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lengthscale": "guess"}, '"marginal-likelihood", "cv" or "mode-cv"; got \'guess\''),
        ({"kernel": "linear"}, "lengthscale='cv' needs a kernel that has one"),
        ({"lengthscale_options": {"fold": 3}}, r"lengthscale_options may hold.*got \['fold'\] too"),
        (
            {"lengthscale_options": {"seed": -1}},
            r'lengthscale_options\["seed"\] must be an integer',
        ),
        ({"lengthscale_options": [3]}, r"lengthscale_options must be a dict; got \[3\]"),
        ({"per_feature": True}, 'per_feature is for lengthscale="sample".*lengthscale_options'),
        ({"lengthscale_bounds": (0.1, 0.2)}, 'lengthscale_bounds is for lengthscale="sample"'),
        ({"lengthscale_grid": [1.0, 2.0]}, 'lengthscale_grid is for lengthscale="sample"'),
        (
            {"lengthscale": 2.0, "lengthscale_options": {"seed": 1}},
            'lengthscale_options are for lengthscale="marginal-likelihood", "cv" and "mode-cv"',
        ),
    ],
)
def test_bad_selections_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        BMSVMGibbs(**{"lengthscale": "cv", **settings}).prepare(X, Y)
