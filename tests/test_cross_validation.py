"""Cross-validation: scores of fits, whichever way the fits are run."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.model_selection import KFold

from bmsvm import PAPER, BMSVMClassifier, BMSVMGibbs, GridCV, Posterior, prepare, run_chains
from bmsvm.inference import chunks
from bmsvm.kernels import Gaussian, gram, median_distance
from bmsvm.models.regram import with_gram
from bmsvm.selection import cross_validation as module

RNG = np.random.default_rng(0)
Y = np.array(["ash", "elm", "oak"])[np.arange(24) % 3]
X = RNG.normal(size=(24, 2)) + 2.5 * np.eye(3)[np.arange(24) % 3][:, :2]
GRID = np.array([0.02, 1.5, 6.0])
KEY = jax.random.key(0)
OPTIONS = {"grid": GRID, "folds": 3, "num_warmup": 60, "num_samples": 50, "num_chains": 2}


def validate(y=Y, resume=None, model=None, **options):
    how = GridCV(**{**OPTIONS, **options})
    given = {"likelihood": "hinge", "hyperparameters": PAPER, **(model or {})}
    return how.select(X, y, rng_key=KEY, resume=resume, **given)


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
    assert whole.lengthscale == GRID[whole.mean().argmin()]
    assert whole.num_rows == 24
    assert isinstance(whole.lengthscale, float)


def test_a_cell_is_a_fit_of_its_own(whole):
    labels = np.unique(Y, return_inverse=True)[1]
    pairs = list(KFold(3).split(X))
    cell = validate(folds=pairs)
    train, test = pairs[0]
    model = {"likelihood": "hinge", "hyperparameters": PAPER}
    problem = prepare(X[train], Y[train], lengthscale=GRID[1], **model)
    problem = with_gram(problem, gram(Gaussian().at(GRID[1]), X[train]))
    key = jax.random.fold_in(jax.random.fold_in(KEY, 1), 0)
    run = run_chains(BMSVMGibbs(), key, problem, num_warmup=60, num_samples=50, num_chains=2)
    posterior = Posterior(run.samples, problem, X[train], "gaussian", GRID[1])
    mean = posterior.probabilities(X[test])
    # The draws are the same; the noise of the scores is integrated at other points.
    expected = -np.log(mean[np.arange(len(test)), labels[test]]).mean()
    assert cell.log_loss[1, 0] == pytest.approx(expected, abs=0.1)
    same = dataclasses.replace(posterior, seed=1).probabilities(X[test])
    exact = -np.log(same[np.arange(len(test)), labels[test]]).mean()
    assert cell.log_loss[1, 0] == pytest.approx(exact, rel=1e-9)


def test_held_out_rows_count_by_their_weights():
    """The same fit, scored by one of two rows at a time: the mean over both is that of the fold."""
    train, test = np.arange(22), np.arange(22, 24)

    def scored(weights):
        model = {"row_weights": np.append(np.ones(22), weights)}
        return validate(grid=GRID[1:2], folds=[(train, test)], model=model).log_loss[0, 0]

    first, second, both = scored([1, 0]), scored([0, 1]), scored([3, 1])
    assert abs(first - second) > 1e-3
    assert both == pytest.approx((3 * first + second) / 4, rel=1e-12)
    with pytest.raises(ValueError, match=r"^row_weights"):
        scored([0, 0])


def test_threads_have_the_precision_of_the_caller(monkeypatch):
    """Which a context sets for one thread only."""
    seen, original = [], module.run_chains

    def spy(*args, **kwargs):
        seen.append(jnp.zeros(()).dtype)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "run_chains", spy)
    with jax.enable_x64(False):
        validate(n_jobs=2, sampler="gibbs", num_warmup=5, num_samples=5)
    assert set(seen) == {np.dtype(np.float32)}
    assert len(seen) == 9


def test_some_rows_keep_their_labels_and_weights():
    problem = prepare(X, Y, lengthscale=1.0, row_weights=np.arange(1.0, 25.0))
    some = with_gram(problem, np.eye(3), [5, 1, 0])
    np.testing.assert_array_equal(some.labels, [2, 1, 0])
    np.testing.assert_array_equal(some.row_weights, [6, 2, 1])


def test_threads_give_the_same_scores_and_one_program_serves(whole):
    compiled = chunks.compiled_chunk._cache_size()
    assert_same(validate(loo=True, n_jobs=2), whole)
    assert chunks.compiled_chunk._cache_size() == compiled


def test_an_interruption_keeps_finished_cells_and_the_rest_follows(whole, monkeypatch):
    calls, original = iter(range(1000)), module._Task.run

    def interrupted(self, cell):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return original(self, cell)

    monkeypatch.setattr(module._Task, "run", interrupted)
    with pytest.warns(UserWarning, match=r"4 of 12 .* resume"):
        part = validate(loo=True)
    assert part.interrupted
    assert np.isfinite(part.log_loss).sum() == 4
    assert part.lengthscale == GRID[0]  # the only one that is finished
    full = validate(loo=True, resume=part)
    assert not full.interrupted
    assert_same(full, whole)
    with pytest.raises(ValueError, match=r"^resume .*\(2, 3\).*\(3, 3\)"):
        validate(resume=part, grid=GRID[:2])
    with pytest.raises(ValueError, match=r"^resume .*5"):
        validate(resume=5)


def test_an_interruption_of_the_first_run_is_passed_on(monkeypatch):
    def interrupted(self, cell):
        raise KeyboardInterrupt

    monkeypatch.setattr(module._Task, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        validate()
    unfitted = BMSVMClassifier(lengthscale="cv")
    with pytest.raises(KeyboardInterrupt):
        unfitted.fit(X, Y)


def test_a_classifier_does_not_go_on_from_an_interrupted_choice(monkeypatch):
    """Unlike its own chains, of which the finished draws are a model."""
    calls, original = iter(range(1000)), module._Task.run

    def interrupted(self, cell):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return original(self, cell)

    monkeypatch.setattr(module._Task, "run", interrupted)
    unfitted = BMSVMClassifier(lengthscale=GridCV(**OPTIONS), likelihood="hinge")
    with pytest.warns(UserWarning, match="2 of 9"), pytest.raises(KeyboardInterrupt):
        unfitted.fit(X, Y)
    assert not hasattr(unfitted, "posterior_")


def test_leave_one_out_needs_no_folds(whole):
    alone = validate(criterion="loo", folds="nonsense")
    assert alone.log_loss.shape == (3, 0)
    assert np.isnan(alone.mean("log_loss")).all()
    assert alone.lengthscale == GRID[whole.mean("loo").argmin()]


def test_a_class_of_one_row_is_predicted_by_the_fold_that_has_not_seen_it():
    labels = Y.copy()
    labels[labels == "oak"] = "elm"
    labels[4] = "yew"
    result = validate(y=labels, grid=GRID[1:2])
    assert np.isfinite(result.log_loss).all()
    assert result.log_loss.max() < 5  # the model gives a class without rows its share


def test_folds_have_one_size():
    labels = np.unique(Y[:23], return_inverse=True)[1]
    folds = module.make_folds(4, labels, seed=0)
    assert len({len(fold.train) for fold in folds}) == 1
    assert sorted(np.concatenate([fold.test for fold in folds])) == list(range(23))
    assert all(not set(fold.train) & set(fold.test) for fold in folds)


def test_the_default_grid_surrounds_the_median_distance():
    distance = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(24, 1)]
    assert median_distance(X) == pytest.approx(np.median(distance))
    assert median_distance(np.ones((3, 2))) == 1.0
    grid = module.default_grid(X)
    assert grid.size == 13
    assert grid[6] == pytest.approx(np.median(distance))


@pytest.mark.parametrize(
    ("settings", "argument", "value"),
    [
        ({"criterion": "auc"}, "criterion", "'auc'"),
        ({"model": {"kernel": "linear"}}, "lengthscale", "linear"),
        ({"criterion": "loo", "model": {"likelihood": "probit"}}, "leave-one-out", "'probit'"),
        ({"grid": []}, "grid", "[]"),
        ({"grid": [1.0, -1.0]}, "grid", "[1.0, -1.0]"),
        ({"grid": [[1.0, 2.0, 3.0]]}, "grid", "[[1.0, 2.0, 3.0]]"),
        ({"folds": 1}, "folds", "1"),
        ({"folds": 20}, "folds", "20"),
        ({"folds": 2.5}, "folds", "2.5"),
        ({"folds": [([0, 99], [1])]}, "folds", "99"),
        ({"folds": [([0], [1])]}, "folds", "fold 0"),
        ({"folds": []}, "folds", "[]"),
        ({"n_jobs": 0}, "n_jobs", "0"),
        ({"num_samples": 0}, "num_samples", "0"),
        ({"sampler": "fast"}, "sampler", "'fast'"),
    ],
    ids=str,
)
def test_bad_arguments_are_named(settings, argument, value):
    with pytest.raises(ValueError, match=f"^{argument}") as caught:
        validate(**settings)
    assert value in str(caught.value)


@pytest.mark.few_draws
def test_the_classifier_predicts_at_the_lengthscale_that_was_chosen():
    """By the same choice as a call of its own with the classifier's key and rows."""
    quick = GridCV(grid=[0.5, 2.0], folds=3, num_warmup=10, num_samples=10, num_chains=2)
    settings = {"num_warmup": 20, "num_samples": 10, "standardize": "standard", "random_state": 0}
    fitted = BMSVMClassifier(lengthscale=quick, **settings).fit(X, Y)
    rows = (X - X.mean(0)) / X.std(0)
    with jax.enable_x64(True):
        alone = quick.select(rows, Y, rng_key=jax.random.key(fitted.seed_))
    np.testing.assert_allclose(fitted.selection_.log_loss, alone.log_loss, rtol=1e-6)
    assert fitted.lengthscale_ == alone.lengthscale == fitted.posterior_.lengthscale
    assert "lengthscale" not in fitted.run_.samples
    expected = prepare(rows, Y, lengthscale=alone.lengthscale, spare_rows=8)
    np.testing.assert_allclose(
        fitted.posterior_.problem.factor.eigenvalues, expected.factor.eigenvalues, atol=1e-9
    )
