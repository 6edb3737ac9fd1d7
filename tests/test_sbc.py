"""Simulation-based calibration with few replications, and checks of its parts."""

import itertools
import json

import jax
import numpy as np
import oracle
import pytest
import scipy.stats

from bmsvm.models.couplings import contrast
from reproduction import ecdf, sbc, simulate
from reproduction.fits import Configuration, calibration_problem

FALSE_ALARM = 1e-4
OFTEN = (
    Configuration("normalized", "sum_to_zero", "fixed", "exact"),
    Configuration("hinge", "independent", "fixed", "truncated"),
    Configuration("squared", "sum_to_zero", "fixed", "exact", "table"),
)
LABELS = np.arange(8) % 3


@pytest.mark.parametrize(
    "configuration",
    [
        pytest.param(each, id=each.name, marks=() if each in OFTEN else pytest.mark.long)
        for each in sbc.CONFIGURATIONS
    ],
)
def test_ranks_are_uniform(configuration):
    """False alarm: 1e-4 over all configurations, and hardly more by the correlation of draws."""
    found = sbc.draw_ranks(configuration, sbc.QUICK)
    p = {name: ecdf.p_value(ranks, sbc.QUICK.draws + 1) for name, ranks in found["ranks"].items()}
    print(p, found["correlation"])
    assert min(p.values()) > FALSE_ALARM / len(sbc.CONFIGURATIONS) / len(p)
    assert max(found["correlation"].values()) < 0.3


def test_every_shipped_configuration_is_there():
    names = {each.name for each in sbc.CONFIGURATIONS}
    low_rank = 2 * 2 * 2  # sum_to_zero; likelihood, theta, and landmarks or waves
    squared = 2 * 2 * 2  # sum_to_zero; theta, factor, and the table or chains
    assert len(names) == len(sbc.CONFIGURATIONS) == 2 * 2 * 2 * 2 + low_rank + squared


@pytest.mark.parametrize("name", ["hinge", "normalized", "squared"])
@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
def test_the_simulator_draws_from_the_joint_density(name, coupling):
    """Means under the joint equal those of the prior weighted by sum_y p(S | y) L(y | z).

    The weights are the likelihood at labels drawn uniformly, for which nothing is thrown away.
    False alarm: 1e-4 over all cases.
    """
    few = name == "squared" and coupling == "independent"  # hardly a draw is kept
    configuration = Configuration(name, coupling, "fixed", "exact")
    problem = calibration_problem(configuration, LABELS[: configuration.n_rows])
    n = 2 if few else 3  # rows: few, so that the weights do not vary much
    basis, eigenvalues = (np.asarray(part) for part in problem.factor)
    factor = type(problem.factor)(basis[:n], eigenvalues)
    small = type(problem)(**{**vars(problem), "factor": factor, "labels": problem.labels[:n]})
    rng = np.random.default_rng(5)
    joint = simulate.draw_joint(rng, 5000 if few else 20_000, small)
    exact = statistics(joint.position.noise_variance, joint.position.precision, joint.labels)

    size = 150_000
    position, functions = simulate.draw_parameters(rng, size, small)
    labels = rng.integers(3, size=(size, n))
    columns = functions + np.sqrt(position.noise_variance)[:, None, None] * rng.normal(
        size=functions.shape
    )
    if coupling == "independent":
        np.put_along_axis(columns, labels[..., None], 0.0, -1)
        scores = columns.copy()
        np.put_along_axis(scores, labels[..., None], -columns.sum(-1, keepdims=True), -1)
    else:
        scores = columns @ contrast(3).T
    weights = simulate.likelihood_of_rows(scores, labels, name).prod(-1)
    weighted = statistics(position.noise_variance, position.precision, labels)
    mean = (weights[:, None] * weighted).sum(0) / weights.sum()
    error = np.sqrt(((weights[:, None] * (weighted - mean)) ** 2).sum(0)) / weights.sum()
    own = exact.std(0) / np.sqrt(len(exact))
    z = (exact.mean(0) - mean) / np.hypot(error, own)
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM / 6, z.size)


def statistics(noise_variance, precision, labels):
    logs = np.log(np.stack([noise_variance, precision], 1))
    same = (labels[:, :1] == labels[:, 1:]).astype(float)
    return np.concatenate([logs, logs**2, same], axis=1)


def test_the_probability_of_a_band_is_that_of_all_samples():
    """All 4^5 samples of five ranks among four values, one by one."""
    n_values, size = 4, 5
    samples = np.array(list(itertools.product(range(n_values), repeat=size)))
    p = np.array([ecdf.p_value(sample, n_values) for sample in samples])
    for level in np.unique(p):
        assert np.mean(p <= level + 1e-9) == pytest.approx(level, abs=1e-6)
    low, high = ecdf.simultaneous_band(size, n_values, 0.2)
    counts = np.array([ecdf.counts_below(sample, n_values) for sample in samples])
    outside = ((counts < low) | (counts > high)).any(1)
    assert 0 < outside.mean() <= 0.2
    assert p[outside].max() <= 0.2 < p[~outside].min()


@pytest.mark.parametrize(
    "wrong", [scipy.stats.beta(1.3, 1.0), scipy.stats.beta(1.6, 1.6), scipy.stats.beta(0.6, 0.6)]
)
def test_ranks_that_are_not_uniform_are_noticed(wrong):
    ranks = (32 * wrong.rvs(1000, random_state=3)).astype(int)
    assert ecdf.p_value(ranks, 32) < 1e-4


def test_ranks_beyond_their_values_are_refused():
    with pytest.raises(ValueError, match=r"^ranks must be among 0, \.\.\., 7; got 8"):
        ecdf.counts_below(np.array([0, 8]), 8)


def test_ties_are_broken_evenly():
    ranks = sbc.ranks_of(np.random.default_rng(0), np.zeros(4000), np.zeros((4000, 3)))
    assert scipy.stats.chisquare(np.bincount(ranks, minlength=4)).pvalue > 1e-4


def test_simulated_labels_have_every_class():
    joint = sbc.simulated(np.random.default_rng(0), 200, OFTEN[0])
    assert joint.labels.shape == (200, 8)
    assert all(len(np.unique(labels)) == 3 for labels in joint.labels)
    assert len(joint.functions) == len(joint.position.precision) == 200


def test_an_interrupted_run_is_resumed(tmp_path, monkeypatch, capsys):
    """Finished configurations are not run again, and other settings do not pass for the same."""
    ran = []

    def ranks(configuration, settings):
        ran.append(configuration)
        if len(ran) == 2:
            raise KeyboardInterrupt
        rng = np.random.default_rng(len(ran))
        return {"ranks": {"x": rng.integers(0, 32, 50).tolist()}, "correlation": {"x": 0.0}}

    monkeypatch.setattr(sbc, "draw_ranks", ranks)
    arguments = ["--quick", "--out", str(tmp_path), "--only", "normalized-independent-fixed"]
    with pytest.raises(KeyboardInterrupt):
        sbc.main(arguments)
    assert sbc.main(arguments) == 0
    assert len(ran) == 3
    assert sbc.main(arguments) == 0
    assert len(ran) == 3
    assert capsys.readouterr().out.count("passes") == 4
    assert (tmp_path / "sbc.png").stat().st_size > 1000
    lines = json.loads((tmp_path / "sbc.json").read_text())
    assert [line["replications"] for line in lines] == [50, 50]
    with pytest.raises(ValueError, match="pass another --out"):
        sbc.main([argument for argument in arguments if argument != "--quick"])
    with pytest.raises(SystemExit):
        sbc.main(["--only", "nothing"])


def test_a_wrong_sampler_fails(tmp_path, monkeypatch):
    """Ranks of a posterior that is too narrow fail the command."""

    def ranks(configuration, settings):
        drawn = np.random.default_rng(0).choice([0, 0, 10, 20, 31, 31], size=500)
        return {"ranks": {"x": drawn.tolist()}, "correlation": {"x": 0.0}}

    monkeypatch.setattr(sbc, "draw_ranks", ranks)
    assert sbc.main(["--quick", "--out", str(tmp_path)]) == 1
    assert "**fails**" in (tmp_path / "sbc.md").read_text()


def test_what_cannot_be_simulated_is_refused():
    problem = calibration_problem(OFTEN[1], LABELS)
    weighted = type(problem)(**{**vars(problem), "row_weights": jax.numpy.ones(problem.n_rows)})
    with pytest.raises(ValueError, match=r"^problem must have no row weights"):
        simulate.draw_joint(np.random.default_rng(0), 1, weighted)
