"""The chains behind a classifier: seeds, precision, continuation, interruption, pickling."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from classifier_cases import X, Y, model
from few_draws import few_draws
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from bmsvm import HMC, PredictiveDistribution, Sampled, _progress, load, save
from bmsvm.convergence import Check, checks
from bmsvm.inference import run as runner


@pytest.fixture(scope="module")
def fitted():
    with few_draws():
        return model().fit(X, Y)


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"lengthscale": "sample", "thinning": 2}, marks=pytest.mark.long)],
    ids=str,
)
def test_fitting_more_is_having_fitted_longer(settings):
    thinning = settings.get("thinning", 1)
    chosen = {"sampler": HMC(thinning=thinning)}
    if "lengthscale" in settings:
        chosen["lengthscale"] = Sampled(grid=np.geomspace(0.5, 5, 6))
    longer = model(**chosen, num_samples=70).fit(X, Y)
    parts = model(**chosen, num_samples=15).fit(X, Y).fit_more(5).fit_more(50)
    assert parts.run_.num_samples == 70
    assert parts.n_iter_ == longer.n_iter_ == 60 + 70 * thinning
    for name, value in longer.run_.samples.items():
        np.testing.assert_array_equal(parts.run_.samples[name], value)
    np.testing.assert_array_equal(parts.predict_proba(X), longer.predict_proba(X))


@pytest.mark.few_draws
def test_seeds_decide_everything(fitted):
    same, other = model().fit(X, Y), model(random_state=1).fit(X, Y)
    np.testing.assert_array_equal(same.predict_proba(X), fitted.predict_proba(X))
    assert not np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
    state = np.random.RandomState(3)
    first = model(random_state=state).fit(X, Y)
    assert first.seed_ != model(random_state=state).fit(X, Y).seed_


@pytest.mark.few_draws
def test_precision_is_double_whatever_jax_is_set_to(fitted):
    with jax.enable_x64(False):
        single = model().fit(X, Y)
        assert not jax.config.jax_enable_x64
        np.testing.assert_array_equal(single.predict_proba(X), fitted.predict_proba(X))
        stored = pickle.loads(pickle.dumps(single))
        np.testing.assert_array_equal(stored.predict_proba(X), fitted.predict_proba(X))
        more = stored.fit_more(5)
    assert more.run_.samples["weights"].dtype == np.float64
    np.testing.assert_array_equal(
        more.run_.samples["weights"], model(num_samples=45).fit(X, Y).run_.samples["weights"]
    )


def assert_one_problem(model):
    assert model.posterior_.problem is model.run_.problem
    assert model.posterior_.problem.factor.basis.dtype == np.float64


def test_a_pickled_model_is_the_same_and_has_one_problem(fitted):
    assert_one_problem(fitted)
    again = pickle.loads(pickle.dumps(fitted))
    assert_one_problem(again)
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    for name, value in fitted.run_.samples.items():
        np.testing.assert_array_equal(again.posterior_.samples[name], value)
    # The problem, of 32 x 32 numbers, is there once and not twice.
    whole, parts = (len(pickle.dumps(each)) for each in (fitted, (fitted.run_, fitted.posterior_)))
    alone = len(pickle.dumps(fitted.run_)) + len(pickle.dumps(fitted.posterior_))
    assert max(whole, parts) < alone - fitted.run_.problem.factor.basis.nbytes


UNPICKLE = """
import pickle, sys
import jax, numpy as np
assert not jax.config.jax_enable_x64
with open(sys.argv[1], "rb") as file:
    model, rows = pickle.load(file)
assert model.posterior_.problem is model.run_.problem
assert model.posterior_.problem.factor.basis.dtype == np.float64
np.save(sys.argv[2], model.predict_proba(rows))
"""


def test_a_process_in_single_precision_predicts_the_same_bits(fitted, tmp_path):
    stored, found = tmp_path / "model.pickle", tmp_path / "found.npy"
    stored.write_bytes(pickle.dumps((fitted, X)))
    environment = {**os.environ, "JAX_ENABLE_X64": "0"}
    done = subprocess.run(
        [sys.executable, "-c", UNPICKLE, str(stored), str(found)],
        env=environment,
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(found), fitted.predict_proba(X))


def test_reading_a_model_draws_nothing(fitted):
    """No attribute or method has random numbers that another call does not have."""
    rows = fitted.standardized_rows(X)
    predictive, posterior = fitted.predictive_, fitted.posterior_
    for _ in range(2):
        np.testing.assert_array_equal(predictive.probabilities(rows), fitted.predict_proba(X))
        np.testing.assert_array_equal(posterior.functions(rows), fitted.class_functions(X))
        np.testing.assert_array_equal(posterior.exclusion(rows), fitted.predict_exclusion(X))
        drawn, named = predictive.sample(rows), fitted.posterior_predictive(X)
        np.testing.assert_array_equal(drawn.functions.ravel(), named["f"].values.ravel())
        np.testing.assert_array_equal(drawn.probabilities.ravel(), named["p"].values.ravel())
        labels = fitted.classes_[drawn.labels].ravel()
        np.testing.assert_array_equal(labels, named["y"].values.ravel())
    assert fitted.run_.samples is fitted.run_.samples
    assert fitted.predictive_ is predictive
    assert fitted.posterior_ is posterior
    for one, other in zip(posterior.leave_one_out(), posterior.leave_one_out(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.few_draws
def test_an_interrupted_fit_is_a_model_of_what_is_finished(monkeypatch):
    whole = model(num_samples=130).fit(X, Y)
    advance, calls = runner.advance_chains, iter(range(1000))

    def interrupted(*args, **kwargs):
        if next(calls) == 3 + 4:  # three chunks of warm-up, four of draws
            raise KeyboardInterrupt
        return advance(*args, **kwargs)

    monkeypatch.setattr(runner, "advance_chains", interrupted)
    with pytest.warns(UserWarning, match=r"100 of at most 130 .*fit_more\(30\)") as caught:
        part = model(num_samples=130).fit(X, Y)
    assert len([each for each in caught if "interrupted" in str(each.message)]) == 1
    assert part.run_.interrupted
    assert part.predict(X).shape == (24,)
    part.fit_more(30)
    assert not part.run_.interrupted
    np.testing.assert_array_equal(part.predict_proba(X), whole.predict_proba(X))


@pytest.mark.few_draws
def test_an_interruption_before_the_first_draws_leaves_no_model(monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    refitted = model().fit(X, Y)
    monkeypatch.setattr(runner, "advance_chains", interrupted)
    for unfitted in (model(), refitted):  # nor one of an older fit
        with pytest.raises(KeyboardInterrupt):
            unfitted.fit(X, Y)
        with pytest.raises(NotFittedError):
            unfitted.predict(X)


@pytest.mark.few_draws
def test_progress_is_shown_in_a_terminal_and_not_in_a_script(capsys, monkeypatch):
    model().fit(X, Y).predict(X)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(_progress, "DELAY", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    shown = model().fit(X, Y)
    said = capsys.readouterr().err
    assert "warm-up" in said
    assert "fit: calibrate (stage 4 of 4)" in said
    shown.predict(X)
    assert "predict" in capsys.readouterr().err


def test_what_is_watched_has_names(fitted):
    names = list(fitted.diagnostics_)
    assert names[:2] == ["noise_variance", "precision"]
    assert "f at training row 23, class green" in names
    assert len(names) == 2 + 10 * 2
    assert all(each.ess > 0 and each.r_hat > 0.9 for each in fitted.diagnostics_.values())


def test_a_short_fit_warns():
    with pytest.warns(ConvergenceWarning, match=r"(R-hat|sample size) .* fit_more\(\d+\)"):
        model(num_samples=20).fit(X, Y)


@pytest.mark.few_draws
def test_a_fit_tells_of_checks_that_have_not_passed(fitted, monkeypatch):
    assert set(fitted.checks_) == {"acceptance", "trajectory", "large Pareto k"}
    assert all(check.passed for check in fitted.checks_.values())
    bad = {"acceptance": Check(0.1, 0.3, False, "chain 0 accepts nothing")}
    monkeypatch.setattr(checks, "sampler_checks", lambda samples: bad)
    with pytest.warns(ConvergenceWarning, match="chain 0 accepts nothing") as caught:
        model().fit(X, Y)
    (one,) = [each for each in caught if "accepts nothing" in str(each.message)]
    assert one.filename == __file__


@pytest.mark.few_draws
def test_large_pareto_k_of_the_calibration_are_told_without_a_limit(fitted, tmp_path):
    found = fitted.checks_["large Pareto k"]
    held_out, rows = fitted.posterior_.held_out_draws()
    assert found.value == np.mean(held_out.pareto_k[rows < len(X)] > 0.7)
    assert found.passed
    assert repr(found).endswith("without a limit)")
    save(fitted, tmp_path / "model.bmsvm")
    assert load(tmp_path / "model.bmsvm").checks_["large Pareto k"] == found
    for settings in ({"predictive": "posterior"}, {"likelihood": "squared"}):
        assert "large Pareto k" not in model(**settings).fit(X, Y).checks_


@pytest.mark.few_draws
def test_an_interruption_of_the_calibration_keeps_all_draws(monkeypatch, fitted):
    def interrupted(self, **settings):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PredictiveDistribution, "calibrated", interrupted)
        with pytest.warns(UserWarning, match="calibrated"):
            stopped = model().fit(X, Y)
    for name, value in fitted.run_.samples.items():
        np.testing.assert_array_equal(stopped.run_.samples[name], value)
    assert stopped.predictive_.calibration is None
    raw = model(predictive="posterior").fit(X, Y)
    np.testing.assert_array_equal(stopped.predict_proba(X), raw.predict_proba(X))
    assert stopped.fit_more(1).predictive_.calibration is not None


@pytest.mark.few_draws
def test_a_fit_that_is_refused_leaves_no_older_model():
    again = model().fit(X, Y)
    with pytest.raises(ValueError, match="classes"):
        again.fit(X, np.zeros(len(X)))
    with pytest.raises(NotFittedError):
        again.predict(X)
