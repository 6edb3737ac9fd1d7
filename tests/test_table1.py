"""The table of the paper: who is tested on what, fits in batches, and runs that go on."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest

from bmsvm import BMSVMGibbs, prepare
from bmsvm.cli import main
from bmsvm.experiments import cells as table_cells
from bmsvm.experiments import protocol, render, table1
from bmsvm.experiments.cells import Cell, cells_of, schedule_of
from bmsvm.experiments.completed import _noise, _scores, completed_blocks, row_cavity, seen_of
from bmsvm.experiments.printed import PRINTED, printed_error
from bmsvm.experiments.results import r_hats, scored
from bmsvm.experiments.stack import (
    Schedule,
    completed_problem,
    leave_one_out_stack,
    run_stack,
    split_stack,
)
from bmsvm.inference.loo import cavity
from bmsvm.inference.predict import class_probabilities, features_at
from bmsvm.inference.presets import preset_blocks
from bmsvm.inference.run import run_chains
from bmsvm.kernels import gaussian
from bmsvm.models.hierarchy import Position
from bmsvm.models.regram import with_gram

SWEEPS = {
    "drawn": (completed_blocks("drawn"), {"likelihood": "hinge", "completed": True}),
    "sum": (completed_blocks("sum"), {"likelihood": "hinge", "completed": True}),
    "hinge": (preset_blocks("default", "hinge"), {"likelihood": "hinge", "completed": False}),
}


def small_data(n=18, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    rows = rng.normal(size=(n, 2)) + 1.5 * np.eye(3)[labels][:, :2]
    return protocol.Data(rows, labels, 3)


def settings_of(sweep, **more):
    return {"lengthscale": 1.5, "hyperparameters": oracle.LIVELY, **SWEEPS[sweep][1], **more}


# Protocol ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", protocol.DATA)
def test_rows_are_learned_from_or_tested(name):
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
    relabelled = data._replace(labels=data.labels[::-1])
    for part, again in zip(parts, protocol.parts_of(name, relabelled), strict=True):
        np.testing.assert_array_equal(part.train, again.train)


def test_every_row_stands_on_every_data_set():
    cells = cells_of()
    assert len(set(cells)) == len(cells)
    assert {(cell.row, cell.data) for cell in cells} == {
        (row, data) for row in table_cells.ROWS for data in protocol.DATA
    }
    assert {cell.data for cell in cells if cell.theta == "fixed"} == {"wine", "glass", "waveform"}
    schedule = schedule_of(Cell("bmsvm", "wine", "fixed"))
    assert schedule.warmup + schedule.draws * schedule.thinning == 10_000
    assert (schedule.warmup, schedule.thinning) == (5000, 10)
    assert set(PRINTED["bmsvm"]) == {"wine", "glass", "waveform", "vehicle"}
    assert printed_error("normalized", "vehicle3") == 0.0816


# Fits in batches -----------------------------------------------------------------------------


def test_the_cavity_of_one_row_is_that_of_all():
    data = small_data()
    rng = np.random.default_rng(1)
    problem = prepare(data.rows, data.labels, lengthscale=1.5, hyperparameters=oracle.LIVELY)
    columns = jnp.asarray(rng.normal(size=(18, 2)))
    mean, variance = cavity(columns, 0.4, 1.0, problem)
    found = row_cavity(5, columns[5], seen_of(columns.T, 0.4, problem), problem)
    np.testing.assert_allclose(found.mean, mean[5], rtol=1e-10)
    np.testing.assert_allclose(found.variance, variance[5], rtol=1e-10)


LANES = 40
"""Of one number and length everywhere, so that one program serves several tests."""


@pytest.mark.parametrize("sweep", ["drawn", "hinge", pytest.param("sum", marks=pytest.mark.long)])
def test_a_left_out_label_changes_nothing(sweep):
    data = small_data()
    blocks, _ = SWEEPS[sweep]
    schedule = Schedule(pilot=20 if sweep == "hinge" else 0, warmup=10, draws=8, thinning=2)
    labels = data.labels.copy()
    labels[4] = (labels[4] + 1) % 3
    found, other = (
        run_stack(
            0,
            leave_one_out_stack(each, [4, 7] * (LANES // 2), settings_of(sweep)),
            blocks,
            schedule,
        )
        for each in (data, data._replace(labels=labels))
    )
    for one, two in (
        (found.exclusion, other.exclusion),
        (found.probabilities, other.probabilities),
    ):
        np.testing.assert_array_equal(one[::2], two[::2])
        assert np.all(np.any(one[1::2] != two[1::2], axis=(1, 2)))  # row 4 is learned from here
    for name, values in found.traces.items():
        np.testing.assert_array_equal(values[:, ::2], other.traces[name][:, ::2])


def agree(one, two, widest=5.5):
    """Compare means over independent chains (m, q): each of q quantities within so many errors."""
    error = np.sqrt(one.var(0, ddof=1) / len(one) + two.var(0, ddof=1) / len(two))
    np.testing.assert_array_less(np.abs(one.mean(0) - two.mean(0)) / error, widest)


@pytest.mark.parametrize("sweep", ["drawn", "hinge"])
def test_leaving_out_by_weight_is_fitting_without_the_row(sweep):
    # 40 chains each, 5 quantities: with about 75 degrees of freedom 5.5 errors are exceeded once in
    # some 200,000 runs of the test.
    data, row, chains = small_data(), 4, LANES
    blocks, _ = SWEEPS[sweep]
    pilot = 200 if sweep == "hinge" else 0
    stack = leave_one_out_stack(data, [row] * chains, settings_of(sweep))
    drawn = run_stack(0, stack, blocks, Schedule(pilot, 300, 200, 2))
    logs = [drawn.traces[name].mean(0) for name in ("log_noise_variance", "log_precision")]
    found = np.column_stack([*logs, drawn.probabilities[:, 0]])

    rest = np.arange(18) != row
    rows = protocol.standardized(data.rows)
    sampler = BMSVMGibbs(
        lengthscale=1.5,
        coupling="independent" if sweep == "drawn" else "sum_to_zero",
        hyperparameters=oracle.LIVELY,
        preset="paper" if sweep == "drawn" else "default",
    )
    run = run_chains(
        sampler,
        jax.random.key(1),
        rows[rest],
        data.labels[rest],
        num_warmup=300,
        num_samples=200,
        thinning=2,
        num_chains=chains,
        progress_bar=False,
    )
    problem = sampler.prepare(rows[rest], data.labels[rest])
    features = features_at(gaussian(1.5), rows[[row]], rows[rest], problem.factor)
    flat = {name: x.reshape(-1, *x.shape[2:]) for name, x in run.samples.items()}
    chances = class_probabilities(jax.random.key(2), flat, features, problem)
    chances = np.asarray(chances).reshape(chains, -1, 3).mean(1)
    logs = [np.log(run.samples[name]).mean(1) for name in ("noise_variance", "precision")]
    agree(found, np.column_stack([*logs, chances]))


def test_the_filled_in_own_scores_are_minus_the_sum_of_the_others():
    data = small_data()
    problem = completed_problem(with_gram(prepare(data.rows, data.labels), np.eye(18)))
    rng = np.random.default_rng(2)
    position = Position(
        columns=jnp.asarray(rng.normal(size=(18, 3))),
        intercept=jnp.zeros(3),
        weights=jnp.asarray(rng.normal(size=(18, 3))),
        noise_variance=jnp.asarray(1.0),
        precision=jnp.asarray(1.0),
    )
    noise = _noise(jax.random.key(0), (3, 18), jnp.float64)
    filled = np.asarray(_scores(position, problem, noise, "sum"))
    np.testing.assert_allclose(filled.sum(0), 0.0, atol=1e-12)
    drawn = np.asarray(_scores(position, problem, noise, "drawn"))
    own = data.labels == np.arange(3)[:, None]
    np.testing.assert_array_equal(drawn[~own], filled[~own])
    assert np.all(drawn[own] != filled[own])


def test_splits_with_sampled_theta_predict_all_their_rows():
    data = small_data(40)
    parts = [protocol.Part(np.arange(20) + at, np.arange(20, 27) - at) for at in (0, 0)]
    settings = settings_of("sum", lengthscale="sample", lengthscale_grid=np.geomspace(0.5, 5, 8))
    stack = split_stack(data, parts, settings)
    blocks = completed_blocks("sum", theta_every=2)
    drawn = run_stack(0, stack, blocks, Schedule(0, 30, 40, 2))
    assert drawn.exclusion.shape == drawn.probabilities.shape == (2, 7, 3)
    np.testing.assert_allclose(drawn.probabilities.sum(-1), 1.0, rtol=1e-6)
    assert len(np.unique(drawn.traces["log_lengthscale"])) > 1
    assert r_hats(drawn.traces).shape == (2,)


# Runs that go on, and what they write --------------------------------------------------------


def fake(cell, options, report=lambda share: None):
    guesses, truth = [np.array([0, 1]), np.array([1, 1])], [np.array([0, 1]), np.array([0, 1])]
    chances = None if cell.theta == "cv" else [np.full((2, 2), 0.5)] * 2
    hats = {} if cell.theta == "cv" else {"r_hat_median": 1.01, "r_hat_largest": 1.2}
    return {
        **scored(guesses, truth, chances),
        **hats,
        "n_fits": 2,
        "seconds": 3.0,
        "settings": options.settings_of(cell),
    }


def options_at(path, **more):
    return table1.Options(path, data=("wine",), rows=("bmsvm", "msvm"), progress=False, **more)


def test_finished_cells_are_not_run_again(tmp_path, monkeypatch):
    ran = []

    def stops(cell, options, report):
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(cell.name)
        return fake(cell, options)

    monkeypatch.setattr(table1, "run_cell", stops)
    with pytest.raises(KeyboardInterrupt):
        table1.run_table(options_at(tmp_path))
    assert ran == ["bmsvm-wine-fixed", "bmsvm-wine-sampled"]
    again = []
    monkeypatch.setattr(table1, "run_cell", lambda *a: again.append(a[0].name) or fake(*a))
    found = table1.run_table(options_at(tmp_path, jobs=2))
    assert again == ["msvm-wine-cv"]
    assert [each["row"] for each in found] == ["bmsvm", "bmsvm", "msvm"]
    assert not list(tmp_path.rglob("*.tmp"))
    with pytest.raises(ValueError, match="give another --output"):
        table1.run_table(options_at(tmp_path, quick=True))
    (tmp_path / "cells" / "msvm-wine-cv.json").write_text('{"error": ')
    with pytest.raises(ValueError, match=r"msvm-wine-cv\.json is no finished cell: remove it"):
        table1.run_table(options_at(tmp_path))


def test_errors_have_their_standard_errors():
    found = scored(
        [np.array([0, 1]), np.array([1, 1])],
        [np.array([0, 1]), np.array([0, 1])],
        [np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[0.25, 0.75], [0.5, 0.5]])],
    )
    assert found["errors"] == [0.0, 0.5]
    assert found["error"] == 0.25
    assert found["error_standard_error"] == pytest.approx(0.25)
    losses = [np.log(2) / 2, np.log(8) / 2]
    assert found["log_loss"] == pytest.approx(np.mean(losses))


def test_what_is_written(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(table1, "run_cell", fake)
    command = ["table1", "--data", "wine", "--rows", "bmsvm,msvm", "--output", str(tmp_path), "-q"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "0.2500 ± 0.2500" in shown
    written = json.loads((tmp_path / "table1.json").read_text())
    assert [cell["row"] for cell in written["cells"]] == ["bmsvm", "bmsvm", "msvm"]
    text = (tmp_path / "table1.md").read_text(encoding="utf-8")
    assert text.startswith("`bmsvm table1 --data wine --rows bmsvm,msvm`")
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 5
    assert len({line.count("|") for line in table}) == 1
    assert "0.0169" in table[2]
    assert "1.01, 1.20" in table[2]
    assert (tmp_path / "table1.png").stat().st_size > 1000
    assert render.terminal(written["cells"]) in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "iris"], "data must be one of"),
        (["--rows", "svm"], "rows must be one of"),
        (["--jobs", "0"], "jobs must be"),
    ],
)
def test_mistakes_are_named(options, message, tmp_path, capsys):
    assert main(["table1", "--output", str(tmp_path), *options]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_cell_of_the_machines(tmp_path):
    options = table1.Options(tmp_path, quick=True)
    found = table1.run_cell(Cell("ovr", "wine", "cv"), options)
    assert found["n_tested"] == found["n_fits"] == 12
    assert 0 <= found["error"] < 0.5
    assert found["log_loss"] is None
    json.dumps(found)
