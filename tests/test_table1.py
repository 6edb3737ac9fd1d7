"""The table of the paper: protocol, single fits, and what is written."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bmsvm import PAPER, BMSVMClassifier, Paper
from bmsvm.models import Position
from bmsvm.models.conditionals import noise_variance_collapsed, project, weights_full
from reproduction import fits, protocol, table1
from reproduction.all_rows import all_rows_blocks, all_rows_problem, fill_own_scores
from reproduction.cells import run_cells
from reproduction.fits import Fit

LABELS = np.array([0, 1, 2, 1, 0, 2, 2])
ROWS = np.random.default_rng(3).normal(size=(7, 2)) + 2 * np.eye(3)[LABELS][:, :2]


# Protocol ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", protocol.DATA)
def test_a_row_is_trained_on_or_tested(name):
    data = protocol.load(name)
    parts = protocol.parts_of(name, data)
    if name in ("wine", "glass"):
        assert len(parts) == len(data.rows) == {"wine": 178, "glass": 214}[name]
        assert [int(part.test[0]) for part in parts] == list(range(len(parts)))
        sizes = {(len(part.train), len(part.test)) for part in parts}
        assert sizes == {(len(parts) - 1, 1)}
    else:
        expected = {"waveform": (300, 4700), "vehicle": (300, 546), "vehicle3": (300, 346)}[name]
        assert [(len(part.train), len(part.test)) for part in parts] == [expected] * 10
        assert len({tuple(part.train) for part in parts}) == 10
    for part in parts:
        assert not set(part.train) & set(part.test)
        assert len(np.unique(data.labels[part.train])) == data.n_classes
    relabelled = data._replace(labels=data.labels[::-1])
    for part, again in zip(parts, protocol.parts_of(name, relabelled), strict=True):
        np.testing.assert_array_equal(part.train, again.train)


def test_every_row_stands_on_every_data_set():
    cells = table1.cells_of(list(table1.ROWS), protocol.DATA, "paper", quick=False)
    assert {(cell["row"], cell["data"]) for cell in cells.values()} == {
        (row, data) for row in table1.ROWS for data in protocol.DATA
    }
    fixed = {cell["data"] for cell in cells.values() if cell["theta"] == "fixed"}
    assert fixed == {"wine", "glass", "waveform"}
    sampled = table1.cells_of(["bmsvm"], protocol.DATA, "sampled", quick=False)
    assert {cell["theta"] for cell in sampled.values()} == {"sampled"}
    assert set(table1.PRINTED["bmsvm"]) == {"wine", "glass", "waveform", "vehicle"}
    assert table1.printed_error("normalized", "vehicle3") == 0.0816


def test_the_paper_row_is_the_algorithm_of_the_paper():
    model = BMSVMClassifier.paper()
    thinning = model.sampler.thinning
    assert model.num_warmup + model.num_samples * thinning == 10_000
    assert (model.num_warmup, thinning, model.num_chains) == (5000, 10, 1)
    assert (model.sampler, model.coupling) == (Paper(), "independent")
    assert (model.likelihood, model.hyperparameters) == ("hinge", PAPER)
    assert model.predictive == "paper"


def test_a_left_out_row_has_no_part_in_its_prediction(monkeypatch):
    """The fit is given the training rows, their labels, and the new row without its label."""
    given = []

    def fit(row, rows, labels, new, **more):
        given.append((rows, labels, new))
        return Fit(np.zeros(len(new), int), np.full((len(new), 3), 1 / 3), {"r_hat": 1.0})

    monkeypatch.setattr(table1, "fit_posterior", fit)
    table1.compute("bmsvm", "wine", "fixed", quick=False)
    data = protocol.load("wine")
    assert len(given) == len(data.rows) == 178
    for i, (rows, labels, new) in enumerate(given):
        np.testing.assert_array_equal(rows, np.delete(data.rows, i, axis=0))
        np.testing.assert_array_equal(labels, np.delete(data.labels, i))
        np.testing.assert_array_equal(new, data.rows[[i]])


# Fits ----------------------------------------------------------------------------------------


def test_own_scores_are_minus_the_sum_of_the_others():
    """Eq. (12), from columns that lack them and from columns that have them."""
    problem = all_rows_problem(ROWS, LABELS, 1.5)
    rng = np.random.default_rng(2)
    columns = jnp.asarray(rng.normal(size=(7, 3)))
    position = Position(columns, jnp.zeros(3), jnp.zeros((7, 3)), jnp.ones(()), jnp.ones(()))
    filled, _, _ = fill_own_scores().step(None, position, (), problem, None)
    np.testing.assert_allclose(filled.columns.sum(axis=1), 0.0, atol=1e-12)
    others = LABELS[:, None] != np.arange(3)
    np.testing.assert_array_equal(filled.columns[others], columns[others])
    again, _, _ = fill_own_scores().step(None, filled, (), problem, None)
    np.testing.assert_allclose(again.columns, filled.columns, atol=1e-12)


def test_every_column_is_regressed_on_all_rows():
    """sigma2 and the weights against formulas with the dense matrix R = I + K/tau."""
    problem = all_rows_problem(ROWS, LABELS, 1.5)
    columns, tau = np.random.default_rng(4).normal(size=(7, 3)), 0.7
    squared = ((ROWS[:, None] - ROWS[None]) ** 2).sum(-1)
    gram = np.exp(-squared / (2 * 1.5**2))
    covariance = np.eye(7) + gram / tau + 1 / PAPER.intercept_precision
    seen = project(jnp.asarray(columns), problem)
    noise = noise_variance_collapsed(seen, jnp.asarray(tau), problem)
    quadratic = np.trace(columns.T @ np.linalg.solve(covariance, columns))
    rate, shape = (PAPER.noise_rate + quadratic) / 2, (PAPER.noise_shape + 7 * 3) / 2
    np.testing.assert_allclose(noise.mean, rate / (shape - 1), rtol=1e-9)
    intercept = jnp.asarray([0.3, -0.1, 0.2])
    without_noise = jnp.asarray(1e-30)
    weights = weights_full(seen, intercept, jnp.asarray(tau), without_noise, problem)
    basis, eigenvalues = (np.asarray(part) for part in problem.factor)
    functions = (basis * np.sqrt(eigenvalues)) @ np.asarray(weights.sample(jax.random.key(0)))
    expected = gram @ np.linalg.solve(gram + tau * np.eye(7), columns - np.asarray(intercept))
    np.testing.assert_allclose(functions, expected, atol=1e-8)


@pytest.mark.long
def test_sigma2_of_the_sweep_over_all_rows_grows():
    """No stationary distribution: sigma2 about doubles between the first and last kept draws."""
    data = protocol.load("wine")
    rest = np.arange(len(data.rows)) % 30 > 0
    found = fits.fit_all_rows(data.rows[rest], data.labels[rest], data.rows[~rest], theta=3.5)
    numbers = found.numbers
    assert numbers["noise_variance_last_tenth"] > 1.3 * numbers["noise_variance_first_tenth"]
    assert np.mean(found.classes != data.labels[~rest]) < 0.5
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_theta_of_the_sweep_over_all_rows_is_sampled():
    assert [block.name for block in all_rows_blocks(sample_theta=True)][-1] == "lengthscale"
    found = fits.fit_all_rows(ROWS, LABELS, ROWS[:2], theta="sample", quick=True)
    assert found.probabilities.shape == (2, 3)
    assert found.numbers["lengthscale"] > 0


def test_posteriors_and_machines_predict():
    data = protocol.load("wine")
    rows, labels, new = data.rows[::2], data.labels[::2], data.rows[1::2]
    found = fits.fit_posterior("sum_to_zero", rows, labels, new, theta=3.5, quick=True)
    assert np.mean(found.classes != data.labels[1::2]) < 0.1
    assert found.numbers["r_hat"] >= 0.9
    assert found.numbers["lengthscale"] == 3.5
    tuned = fits.tune_machine("ovr", rows, labels)
    assert tuned["gamma"] in fits.TUNING.gamma
    machine = fits.fit_machine("ovr", rows, labels, new, tuned)
    assert machine.probabilities is None
    assert np.mean(machine.classes != data.labels[1::2]) < 0.1
    json.dumps([found.numbers, machine.numbers])


# What is written -----------------------------------------------------------------------------


def test_errors_have_their_standard_errors():
    guesses = [np.array([0, 1]), np.array([1, 1])]
    chances = [np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[0.25, 0.75], [0.5, 0.5]])]
    numbers = [{"r_hat": 1.01}, {"r_hat": 1.2}]
    found = table1.scored(
        [Fit(*each) for each in zip(guesses, chances, numbers, strict=True)],
        [np.array([0, 1]), np.array([0, 1])],
    )
    assert found["errors"] == [0.0, 0.5]
    assert found["error"] == 0.25
    assert found["error_standard_error"] == pytest.approx(0.25)
    losses = [np.log(2) / 2, np.log(8) / 2]
    assert found["log_loss"] == pytest.approx(np.mean(losses))
    assert (found["r_hat_median"], found["r_hat_largest"]) == (pytest.approx(1.105), 1.2)


def fake(row, data, theta, quick):
    truth = [np.array([0, 1]), np.array([0, 1])]
    chances = None if theta == "cv" else np.full((2, 2), 0.5)
    parts = [Fit(np.array(guess), chances, {"r_hat": 1.2}) for guess in ([0, 1], [1, 1])]
    return {**table1.scored(parts, truth), "cpu_seconds": 3.0}


def test_results_are_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table1, "compute", fake)
    command = ["--data", "wine", "vehicle3", "--rows", "bmsvm", "msvm", "all_rows"]
    assert table1.main([*command, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    text = (tmp_path / "table1.md").read_text(encoding="utf-8")
    assert shown == text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 6
    assert len({line.count("|") for line in table}) == 1
    assert "0.2500 ± 0.2500 | 0.0169 |" in table[2]
    assert "1.20, 1.20" in table[2]
    assert "0.0816 (BMSVM)" in text
    written = json.loads((tmp_path / "table1.json").read_text())
    assert {cell["arguments"]["row"] for cell in written} == {"bmsvm", "msvm", "all_rows"}
    assert (tmp_path / "table1.png").stat().st_size > 1000


@pytest.mark.parametrize("wrong", [["--data", "iris"], ["--rows", "svm"], ["--theta", "1"]])
def test_mistakes_are_named(wrong, tmp_path, capsys):
    with pytest.raises(SystemExit):
        table1.main(["--out", str(tmp_path), *wrong])
    assert f"invalid choice: '{wrong[1]}'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_cells_in_processes_have_the_same_numbers(tmp_path):
    cells = table1.cells_of(["ovr", "altmsvm"], ["wine"], "paper", quick=True)
    found = run_cells(table1.compute, cells, tmp_path, jobs=2, progress=False)
    alone = table1.compute(**cells["ovr-wine-cv"])
    for name in ("errors", "fits"):
        assert found["ovr-wine-cv"][name] == alone[name]
    assert alone["n_fits"] == 6
    assert 0 <= alone["error"] < 0.5


@pytest.mark.long
def test_the_quick_table_is_whole(tmp_path):
    """Every row of every data set is run, cut down, and has numbers."""
    command = ["--quick", "--jobs", "2", "--out", str(tmp_path)]
    assert table1.main([*command, "--rows", *table1.ROWS, "--data", *protocol.DATA]) == 0
    found = json.loads((tmp_path / "table1.json").read_text())
    assert len(found) == len(table1.ROWS) * len(protocol.DATA)
    for numbers in found:
        assert 0 <= numbers["error"] <= 1
        assert 0 < numbers.get("log_loss", 1) < 10
        assert numbers.get("r_hat_largest", 1) >= 0.9
