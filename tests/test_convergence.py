"""R-hat and effective sample sizes: those of ArviZ, and what is said about them."""

import warnings

import arviz
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bmsvm.convergence import diagnose, warn_unless_converged

RNG = np.random.default_rng(0)
SETTINGS = {"num_warmup": 300, "num_samples": 500}


def by_arviz(values):
    """Rank-normalised split R-hat and bulk effective sample size of draws (chain, draw)."""
    data = arviz.convert_to_dataset({"x": values})
    return float(arviz.rhat(data)["x"]), float(arviz.ess(data)["x"])


def normals(*shape):
    return np.random.default_rng(1).normal(size=shape)


def alternating(chains, draws):
    """Draws each of which is near minus the one before."""
    noise, x = normals(draws, chains), np.zeros((draws, chains))
    for i in range(1, draws):
        x[i] = -0.9 * x[i - 1] + noise[i]
    return x.T


QUANTITIES = {
    "independent": normals(4, 500),
    "walk": np.cumsum(normals(4, 500), axis=1),
    "apart": normals(4, 500) + 3 * np.arange(4)[:, None],
    "heavy": np.random.default_rng(2).standard_t(1.5, size=(4, 500)),
    "alternating": alternating(4, 500),
}


def test_the_numbers_are_those_of_arviz():
    found = diagnose(QUANTITIES)
    assert list(found) == list(QUANTITIES)
    for name, values in QUANTITIES.items():
        np.testing.assert_allclose(found[name], by_arviz(values), rtol=1e-12)


def test_chains_that_have_not_met_are_named():
    rng = np.random.default_rng(0)
    good, apart = rng.normal(size=(2, 4, 500))
    apart = apart + 3 * np.arange(4)[:, None]
    slow = np.cumsum(rng.normal(size=(4, 500)), axis=1)
    stuck = np.repeat(np.arange(4.0)[:, None], 500, axis=1)
    found = diagnose({"a": good, "b": apart, "d": stuck, "e": 0 * good})
    assert list(found) == ["a", "b", "d"]
    assert found["a"].r_hat < 1.01
    assert 1500 < found["a"].ess < 2600
    assert found["b"].r_hat > 2
    assert found["d"].r_hat > 1e3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_converged(diagnose({"a": good}), **SETTINGS)
    with pytest.warns(ConvergenceWarning, match=r"\bb has R-hat \d.*num_warmup.*300"):
        warn_unless_converged(diagnose({"a": good, "b": apart}), **SETTINGS)
    with pytest.warns(ConvergenceWarning, match=r"\bs has R-hat .*fit_more\(\d+\)"):
        warn_unless_converged(diagnose({"a": good, "s": slow}), **SETTINGS)
    with pytest.warns(ConvergenceWarning, match=r"^5 draws .*num_samples"):
        warn_unless_converged({}, num_warmup=300, num_samples=5)


def test_chains_that_stand_still_in_different_places_have_an_infinite_r_hat():
    stuck = np.repeat(np.arange(4.0)[:, None], 500, axis=1)
    found = diagnose({"stuck": stuck})["stuck"]
    assert found.r_hat == np.inf
    assert found.ess < 10
    with pytest.warns(ConvergenceWarning, match=r"\bstuck has R-hat inf"):
        warn_unless_converged({"stuck": found}, **SETTINGS)


def test_one_chain_that_stands_still_among_others_is_noticed():
    one = normals(4, 500)
    one[2] = 5.0
    found = diagnose({"one": one})["one"]
    assert found.r_hat > 1.5
    with pytest.warns(ConvergenceWarning, match=r"\bone has R-hat"):
        warn_unless_converged({"one": found}, **SETTINGS)


@pytest.mark.parametrize("chains", [1, 2, 4])
def test_anticorrelated_draws_raise_no_false_alarm(chains):
    """Their effective size is larger than their number, and never negative."""
    found = diagnose({"x": alternating(chains, 500)})
    assert found["x"].ess > 500 * chains
    assert found["x"].r_hat < 1.05
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_converged(found, **SETTINGS)


def test_one_chain_is_compared_with_itself():
    """Its two halves: near 1 where they agree, large where they do not."""
    noise = np.random.default_rng(0).normal(size=(1, 41))
    assert diagnose({"x": noise})["x"].r_hat < 1.2
    assert diagnose({"x": noise + 5 * (np.arange(41) > 20)})["x"].r_hat > 1.5
    long = normals(1, 1001)
    halves = np.stack([long[0, :500], long[0, 500:1000]])
    np.testing.assert_allclose(diagnose({"x": long})["x"], by_arviz(halves), rtol=1e-12)


@pytest.mark.parametrize("draws", [1, 5, 9])
def test_too_few_draws_are_not_judged(draws):
    assert diagnose({"x": normals(4, draws)}) == {}
    with pytest.warns(ConvergenceWarning, match=f"^{draws} draws"):
        warn_unless_converged({}, num_warmup=3, num_samples=draws)


@pytest.mark.parametrize("draws", [10, 11, 13])
def test_few_draws_of_one_chain_have_numbers(draws):
    found = diagnose({"x": normals(1, draws)})["x"]
    assert found.r_hat > 0.5
    assert found.ess > 0


def test_what_never_moves_is_not_judged():
    assert diagnose({"x": np.ones((4, 500))}) == {}
    assert diagnose({}) == {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_converged({}, **SETTINGS)
