"""R-hat and effective sample sizes: those of ArviZ, and what is said about them."""

import warnings
from dataclasses import replace

import arviz
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from bmsvm import Sampled, prepare
from bmsvm.convergence import (
    Diagnosis,
    advice,
    diagnose,
    largest_r_hat,
    sampler_checks,
    theta_checks,
    warn_of_checks,
    warn_unless_converged,
)

RNG = np.random.default_rng(0)
SETTINGS = {"num_chains": 4, "num_warmup": 300, "num_samples": 500}


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
        warn_unless_converged({}, **{**SETTINGS, "num_samples": 5})


@pytest.mark.parametrize(
    ("found", "said", "not_said"),
    [
        ({"x": (1.3, 400.0)}, ["x has R-hat 1.30", "num_warmup"], ["effective", "fit_more"]),
        ({"x": (1.01, 20.0)}, ["x has an effective sample size of 20"], ["R-hat", "num_warmup"]),
        (
            {"x": (1.3, 20.0)},
            ["x has R-hat 1.30", ") and an effective sample size of 20", "fit_more", "num_warmup"],
            [],
        ),
        (
            {"x": (1.3, 400.0), "y": (1.01, 20.0)},
            ["x has R-hat 1.30", "and y has an effective sample size of 20 (should be above 50)"],
            [],
        ),
    ],
    ids=["R-hat", "size", "both", "of two quantities"],
)
def test_the_advice_quotes_what_failed_and_nothing_else(found, said, not_said):
    good = {"good": Diagnosis(1.0, 500.0)}
    text = advice(good | {name: Diagnosis(*each) for name, each in found.items()}, **SETTINGS)
    assert all(part in text for part in said)
    assert not any(part in text for part in [*not_said, "good"])


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
        warn_unless_converged({}, **{**SETTINGS, "num_samples": draws})


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


ROWS = np.random.default_rng(0).normal(size=(12, 2))


@pytest.mark.parametrize("theta", [Sampled(grid=[1.0, 2.0, 4.0]), Sampled(grid="off")])
def test_a_lengthscale_that_never_moves_is_named(theta):
    problem = prepare(ROWS, np.arange(12) % 3, lengthscale=theta)
    still = np.full((4, 50), 2.0)
    with pytest.warns(ConvergenceWarning, match=r"^lengthscale .* the same in all draws, 2\."):
        warn_of_checks(
            theta_checks({"lengthscale": still}, problem), ConvergenceWarning, stacklevel=2
        )
    moved = np.where(np.arange(50) == 7, 4.0, still)
    (found,) = theta_checks({"lengthscale": moved}, problem).values()
    assert found.passed
    assert found.value == 2  # 2.0 and 4.0
    assert theta_checks({"lengthscale": still[:, :5]}, problem) == {}  # too few draws


def test_lengthscales_of_features_have_moved_if_one_has():
    problem = prepare(ROWS, np.arange(12) % 3, lengthscale=2.0)
    still = np.tile([1.0, 3.0], (4, 50, 1))
    moved = still.copy()
    moved[2, 7, 1] = 3.5
    for draws, passed in ((still, False), (moved, True)):
        (found,) = theta_checks({"lengthscale": draws}, problem).values()
        assert found.passed is passed


def test_a_lengthscale_that_cannot_move_is_not_named():
    problem = prepare(ROWS, np.arange(12) % 3, lengthscale=Sampled(grid=[2.0, 4.0]))
    one = problem.grid._replace(values=problem.grid.values[:1])
    still = {"lengthscale": np.full((4, 50), 2.0)}
    assert theta_checks(still, replace(problem, grid=one)) == {}
    assert theta_checks({}, prepare(ROWS, np.arange(12) % 3, lengthscale=2.0)) == {}


# False alarms, and real ones -----------------------------------------------------------------

DEFAULT = {"num_chains": 4, "num_warmup": 150, "num_samples": 200}
"""Chains of a default fit."""


def autoregressive(correlation, quantities, seed, chains=4, draws=200):
    """Stationary draws whose autocorrelation is a power of the lag, by name."""
    noise = np.random.default_rng(seed).normal(size=(draws, quantities, chains))
    x = np.empty_like(noise)
    x[0] = noise[0]
    for i in range(1, draws):
        x[i] = correlation * x[i - 1] + np.sqrt(1 - correlation**2) * noise[i]
    return {f"x{j}": x[:, j].T for j in range(quantities)}


@pytest.mark.parametrize("correlation", [-0.9, -0.5, 0.0, 1 / 3])
def test_converged_chains_raise_no_alarm(correlation):
    """93 quantities, as with ten classes, of an effective size of 400 of 800 draws or more.

    By :mod:`bmsvm.convergence` a false alarm has probability 0.001 at most in each case.
    """
    found = diagnose(autoregressive(correlation, 93, seed=3))
    assert advice(found, **DEFAULT) is None


def test_the_limit_of_r_hat_is_its_quantile_at_an_effective_size_of_100():
    """Of 930 quantities some are above 1.05, and one above the limit has probability 0.001.

    Autoregressive draws of correlation 7/9 have an eighth of their number as effective size.
    """
    found = diagnose(autoregressive(7 / 9, 930, seed=4))
    r_hats = np.array([each.r_hat for each in found.values()])
    assert np.mean(r_hats > 1.05) > 0.1
    assert r_hats.max() < largest_r_hat(4, 930)
    assert np.quantile(r_hats, 0.99) > np.sqrt(1 + 8 / 100 * 1.5)  # the limit is not far too large


def test_the_limit_of_r_hat_grows_with_what_is_watched():
    limits = [largest_r_hat(4, count) for count in (1, 10, 100, 1000)]
    assert limits == sorted(limits)
    assert 1.1 < limits[0] < limits[-1] < 1.25
    assert largest_r_hat(1, 10) == largest_r_hat(2, 10)  # one chain is judged by its halves


def with_one_bad(change):
    """93 good quantities of a default fit, and the last of them changed."""
    values = autoregressive(1 / 3, 93, seed=5)
    values["x92"] = values["x92"] + change
    return advice(diagnose(values), **DEFAULT)


FAILURES = {
    "chains in two places": 3 * (np.arange(4) % 2)[:, None],
    "one chain elsewhere": 2.0 * (np.arange(4) == 1)[:, None],
    "a trend": np.linspace(-2, 2, 200)[None],
    "a trend of one chain": np.linspace(-4, 4, 200) * (np.arange(4) == 2)[:, None],
    "a jump half way": 2.0 * (np.arange(200) >= 100)[None],
}


@pytest.mark.parametrize("change", FAILURES.values(), ids=FAILURES)
def test_real_failures_raise_an_alarm(change):
    assert "x92 has R-hat" in with_one_bad(change)


def test_a_chain_of_another_width_raises_an_alarm():
    """Its mean is that of the others: only the distances from the median tell it apart."""
    values = autoregressive(0.0, 1, seed=6)["x0"]
    values[3] *= 0.1
    assert "x has R-hat" in advice(diagnose({"x": values}), **DEFAULT)


def test_chains_and_draws_are_not_mixed_up():
    """Chains far apart, each of independent draws: over draws instead of chains they agree."""
    apart = normals(4, 200) + 3 * np.arange(4)[:, None]
    assert diagnose({"x": apart})["x"].r_hat > 2
    trend = normals(4, 200) + np.linspace(0, 5, 200)
    assert diagnose({"x": trend})["x"].r_hat > 1.3
    found = diagnose({"x": apart, "y": normals(4, 200)})
    assert found["y"].r_hat < 1.02


# Trajectories --------------------------------------------------------------------------------


def trajectories(accept_prob=0.8, num_steps=20, step_size=0.1):
    """What four chains report, the last one as given."""
    said = {
        "accept_prob": np.full((4, 200), 0.8),
        "num_steps": np.full((4, 200), 20),
        "step_size": np.full((4, 200), 0.1),
    }
    given = {"accept_prob": accept_prob, "num_steps": num_steps, "step_size": step_size}
    for name, value in given.items():
        said[name][3] = value
    return said


def test_tuned_trajectories_pass():
    found = sampler_checks(trajectories())
    assert all(check.passed and check.advice == "" for check in found.values())
    assert found["acceptance"].value == pytest.approx(0.8)
    assert found["trajectory"].value == pytest.approx(2.0)
    assert repr(found["acceptance"]) == "Check(0.8, at least 0.3: passed)"


@pytest.mark.parametrize(
    ("name", "said", "message"),
    [
        ("acceptance", {"accept_prob": 0.1}, "chain 3 accepts 0.10 .*num_warmup"),
        ("acceptance", {"accept_prob": 0.0}, "chain 3 accepts 0.00 .*num_warmup"),
        ("trajectory", {"num_steps": 128, "step_size": 0.002}, "chain 3 has trajectories of 0.26 "),
    ],
    ids=str,
)
def test_a_chain_that_hardly_moves_is_named(name, said, message):
    found = sampler_checks(trajectories(**said))
    assert [each for each, check in found.items() if check.advice] == [name]
    assert [each for each, check in found.items() if not check.passed] == [name]
    assert f": failed: {found[name].advice})" in repr(found[name])
    with pytest.warns(ConvergenceWarning, match=message):
        warn_of_checks(found, ConvergenceWarning, stacklevel=2)


def test_samplers_without_trajectories_are_not_judged_by_them():
    assert sampler_checks({"precision": np.ones((4, 200))}) == {}
    assert sampler_checks(trajectories() | {"num_steps": np.zeros((4, 200), int)}) == {}
