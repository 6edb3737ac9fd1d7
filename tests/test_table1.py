"""The table of the paper: who is tested on what, fits in batches, and runs that go on."""

import dataclasses
import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import joblib
import numpy as np
import oracle
import pytest
from bmsvm.experiments import cells as table_cells
from bmsvm.experiments import defaults, protocol, render, table1
from bmsvm.experiments.cells import Cell, cells_of, schedule_of
from bmsvm.experiments.completed import _noise, _scores, completed_blocks
from bmsvm.experiments.printed import PRINTED, printed_error
from bmsvm.experiments.results import r_hats, scored, summary_of_traces
from bmsvm.experiments.stack import (
    Schedule,
    Targets,
    _features,
    _predict,
    _prepared,
    blocks_of_rows,
    leave_one_out_stack,
    run_stack,
    split_stack,
)
from bmsvm.experiments.workers import run_pieces

from bmsvm import UNIT_NOISE, prepare
from bmsvm.cli import main
from bmsvm.inference.blocks import Phase, in_turn
from bmsvm.inference.presets import preset_blocks
from bmsvm.models.couplings import contrast
from bmsvm.models.hierarchy import Position, latent
from bmsvm.models.problem import Problem

SWEEPS = {
    "drawn": (completed_blocks("drawn"), {"likelihood": "hinge", "completed": True}),
    "sum": (completed_blocks("sum"), {"likelihood": "hinge", "completed": True}),
    "hinge": (preset_blocks("default", "hinge"), {"likelihood": "hinge", "completed": False}),
}
COUPLING = {"drawn": "independent", "hinge": "sum_to_zero"}

# Four rows, whose posteriors without the label of one of them can be drawn from exactly.
TINY = protocol.Data(
    protocol.standardized(np.random.default_rng(3).normal(size=(4, 2))), np.array([0, 1, 2, 1]), 3
)
LEFT_OUT = 3
GRID = np.geomspace(0.4, 6.0, 6)
DRAWS = 20_000
FALSE_ALARM = 1e-4 / 7  # each of the tests against exact draws


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
    assert "per_feature" not in {cell.row for cell in cells_of(theta="paper")}
    schedule = schedule_of(Cell("bmsvm", "wine", "fixed"))
    assert schedule.warmup + schedule.draws * schedule.thinning == 10_000
    assert (schedule.warmup, schedule.thinning) == (5000, 10)
    assert set(PRINTED["bmsvm"]) == {"wine", "glass", "waveform", "vehicle"}
    assert printed_error("normalized", "vehicle3") == 0.0816


# Fits in batches -----------------------------------------------------------------------------


class Exact(NamedTuple):
    """Independent draws of a posterior, in which columns have all rows, and f at the rows."""

    problem: Problem
    positions: Position
    functions: np.ndarray


@functools.cache
def exact_draws(coupling: str, theta: str) -> Exact:
    """Draws by rejection from the prior, the label of one row having no say."""
    how = {"lengthscale": 1.5}
    if theta == "sampled":
        how = {"lengthscale": "sample", "lengthscale_grid": GRID}
    problem = prepare(
        TINY.rows,
        TINY.labels,
        coupling=coupling,
        hyperparameters=oracle.LIVELY,
        row_weights=1.0 * (np.arange(4) != LEFT_OUT),
        **how,
    )
    rng, kept = np.random.default_rng(6), []
    while sum(len(part.precision) for part, _ in kept) < DRAWS:
        kernel = None  # theta is uniform, and so proportional to itself on a logarithmic grid
        if theta == "sampled":
            kernel = jnp.asarray(rng.choice(GRID.size, 2 * DRAWS, p=GRID / GRID.sum()))
        here = problem.at(kernel)
        draws = oracle.prior_draws(rng, 2 * DRAWS, here)._replace(kernel=kernel)
        basis, eigenvalues = (np.asarray(part) for part in here.factor)
        features = basis * np.sqrt(eigenvalues)[..., None, :]
        functions = draws.intercept[:, None] + features @ draws.weights
        keep = rng.uniform(size=2 * DRAWS) < oracle.likelihood_of(draws.columns, problem)
        if coupling == "independent":
            noise = np.sqrt(draws.noise_variance)[:, None, None] * rng.normal(size=functions.shape)
            own = TINY.labels[:, None] == np.arange(3)
            draws = draws._replace(columns=np.where(own, functions + noise, draws.columns))
        kept.append(jax.tree.map(lambda x, keep=keep: np.asarray(x)[keep], (draws, functions)))
    draws, functions = jax.tree.map(lambda *parts: np.concatenate(parts)[:DRAWS], *kept)
    return Exact(problem, jax.tree.map(jnp.asarray, draws), functions)


def plain_predictions(functions, noise_variance, coupling, seed=8):
    """Eqs. (20) and (21) at functions (draws, k) of one row, by one score each: (draws, 2 c)."""
    rng = np.random.default_rng(seed)
    scores = functions + np.sqrt(noise_variance)[:, None] * rng.normal(size=functions.shape)
    to_classes = contrast(3).T if coupling == "sum_to_zero" else np.eye(3) - 1 / 3  # eq. (5)
    functions, scores = functions @ to_classes, scores @ to_classes
    excess = np.exp(np.maximum(scores + 0.5, 0))
    excluded = np.exp(-np.maximum(functions + 0.5, 0))
    return np.concatenate([excluded, excess / excess.sum(1, keepdims=True)], axis=1)


@pytest.mark.parametrize("theta", ["fixed", "sampled"])
@pytest.mark.parametrize("coupling", ["independent", "sum_to_zero"])
def test_predictions_of_exact_draws_are_exact(coupling, theta):
    """From the cavity of the row, and as a split predicts it, which has not the row at all."""
    exact = exact_draws(coupling, theta)
    positions = exact.positions
    rest = np.arange(4) != LEFT_OUT
    settings = settings_of("drawn" if coupling == "independent" else "hinge")
    if theta == "sampled":
        settings |= {"lengthscale": "sample", "lengthscale_grid": GRID}
    inside = leave_one_out_stack(TINY, [LEFT_OUT], settings)
    problem = _prepared(TINY.rows[rest], TINY.labels[rest], settings)
    features = _features(TINY.rows[rest], TINY.rows[~rest], problem, settings["lengthscale"])
    expected = plain_predictions(
        exact.functions[:, LEFT_OUT], np.asarray(positions.noise_variance), coupling
    )
    for targets, here, columns in (
        (Targets(jnp.asarray(LEFT_OUT)), inside.problem, positions.columns),
        (Targets(None, *features), problem, positions.columns[:, rest]),
    ):
        one = functools.partial(_predict, targets=targets, problem=here)
        keys = jax.random.split(jax.random.key(0), DRAWS)
        *found, _ = oracle.quick_jit(jax.vmap(one))(keys, positions._replace(columns=columns))
        found = np.concatenate([np.asarray(part)[:, 0] for part in found], axis=1)
        z = oracle.paired_z(expected, found)
        assert oracle.largest(z) < oracle.threshold(FALSE_ALARM / 2, z.size)


def test_the_completed_sweep_leaves_the_posterior_of_independent_invariant():
    """Three sweeps from exact draws, theta moved in each, of a posterior without one label."""
    exact, blocks = exact_draws("independent", "sampled"), completed_blocks("drawn", theta_every=1)
    labels = np.where(np.arange(4) == LEFT_OUT, 0, TINY.labels)
    settings = settings_of("drawn", lengthscale="sample", lengthscale_grid=GRID)
    problem = dataclasses.replace(
        _prepared(TINY.rows, TINY.labels, settings),
        labels=jnp.asarray(labels),  # of which that of the row left out must have no say
        row_weights=exact.problem.row_weights,
    )

    def run(key, position):
        def sweep(position, key):
            phase = Phase(jnp.array(1), jnp.array(0))
            return in_turn(blocks, [key], position, ((),), problem, phase)[0], None

        return jax.lax.scan(sweep, position, jax.random.split(key, 3))[0]

    def watched(position):
        rows = jnp.array([0, LEFT_OUT])
        here = problem.at(position.kernel)
        functions = latent(position.intercept, position.weights, here)
        parts = (position.intercept, functions[rows].ravel(), position.columns[rows].ravel())
        logs = jnp.log(jnp.stack([position.noise_variance, position.precision]))
        theta = jax.nn.one_hot(position.kernel, GRID.size)
        return jnp.concatenate([logs, *map(jnp.arcsinh, parts), theta])

    keys = jax.random.split(jax.random.key(7), DRAWS)
    after = oracle.quick_jit(jax.vmap(run))(keys, exact.positions)
    old, new = (
        np.asarray(oracle.quick_jit(jax.vmap(watched))(each)) for each in (exact.positions, after)
    )
    assert np.mean(after.kernel != exact.positions.kernel) > 0.3
    z = oracle.paired_z(oracle.second_order(old, old), oracle.second_order(new, old))
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size)


LANES = 40
"""Of one number and length everywhere, so that one program serves several tests."""


@pytest.mark.parametrize("sweep", ["drawn", "hinge"])
def test_fits_in_a_batch_leave_their_rows_out(sweep):
    """Chains of all lanes, tuned by pilots where need be, against exact draws."""
    exact = exact_draws(COUPLING[sweep], "fixed")
    blocks, _ = SWEEPS[sweep]
    stack = leave_one_out_stack(TINY, [LEFT_OUT] * LANES, settings_of(sweep))
    pilot = 200 if sweep == "hinge" else 0
    drawn = run_stack(0, stack, blocks, Schedule(pilot, 200, 300, 4))
    logs = [drawn.traces[name][0].mean(0) for name in ("log_noise_variance", "log_precision")]
    found = np.column_stack([*logs, drawn.exclusion[:, 0], drawn.probabilities[:, 0]])
    noise, precision = exact.positions.noise_variance, exact.positions.precision
    functions = exact.functions[:, LEFT_OUT]
    predicted = plain_predictions(functions, np.asarray(noise), COUPLING[sweep])
    expected = np.column_stack([np.log(noise), np.log(precision), predicted])
    z = oracle.chain_z(found, expected.mean(0), expected.std(0) / np.sqrt(DRAWS))
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, z.size, LANES - 1)


@pytest.mark.parametrize("sweep", ["drawn", "hinge", pytest.param("sum", marks=pytest.mark.long)])
def test_a_left_out_label_changes_nothing(sweep):
    blocks, _ = SWEEPS[sweep]
    schedule = Schedule(pilot=20 if sweep == "hinge" else 0, warmup=10, draws=8, thinning=2)
    labels = TINY.labels.copy()
    labels[LEFT_OUT] = 2
    # Every group has fits that leave the row out, and fits that leave out another.
    left_out = np.where(np.arange(LANES) // 4 % 2, 0, LEFT_OUT)
    assert {frozenset(rows) for rows in blocks_of_rows(left_out)} == {frozenset({0, LEFT_OUT})}
    without = left_out == LEFT_OUT
    found, other = (
        run_stack(0, leave_one_out_stack(each, left_out, settings_of(sweep)), blocks, schedule)
        for each in (TINY, TINY._replace(labels=labels))
    )
    for one, two in (
        (found.exclusion, other.exclusion),
        (found.probabilities, other.probabilities),
    ):
        np.testing.assert_array_equal(one[without], two[without])
        # The other fits learn from that row.
        assert np.all(np.any(one[~without] != two[~without], axis=(1, 2)))
    for name, values in found.traces.items():
        np.testing.assert_array_equal(values[:, :, without], other.traces[name][:, :, without])


def test_the_filled_in_own_scores_are_minus_the_sum_of_the_others():
    problem = _prepared(TINY.rows, TINY.labels, settings_of("sum"))
    rng = np.random.default_rng(2)
    position = Position(
        columns=jnp.asarray(rng.normal(size=(4, 3))),
        intercept=jnp.zeros(3),
        weights=jnp.asarray(rng.normal(size=(4, 3))),
        noise_variance=jnp.asarray(1.0),
        precision=jnp.asarray(1.0),
    )
    noise = _noise(jax.random.key(0), (3, 4), jnp.float64)
    filled = np.asarray(_scores(position, problem, noise, "sum"))
    np.testing.assert_allclose(filled.sum(0), 0.0, atol=1e-12)
    drawn = np.asarray(_scores(position, problem, noise, "drawn"))
    own = TINY.labels == np.arange(3)[:, None]
    np.testing.assert_array_equal(drawn[~own], filled[~own])
    assert np.all(drawn[own] != filled[own])


def test_splits_with_sampled_theta_predict_all_their_rows():
    rng, labels = np.random.default_rng(0), np.arange(40) % 3
    rows = rng.normal(size=(40, 2)) + 1.5 * np.eye(3)[labels][:, :2]
    data = protocol.Data(rows, labels, 3)
    parts = [protocol.Part(np.arange(20) + at, np.arange(20, 27) - at) for at in (0, 0)]
    settings = settings_of("sum", lengthscale="sample", lengthscale_grid=np.geomspace(0.5, 5, 8))
    stack = split_stack(data, parts, settings, chains=3)
    blocks = completed_blocks("sum", theta_every=2)
    drawn = run_stack(0, stack, blocks, Schedule(0, 30, 40, 2))
    assert drawn.exclusion.shape == drawn.probabilities.shape == (2, 7, 3)
    np.testing.assert_allclose(drawn.probabilities.sum(-1), 1.0, rtol=1e-6)
    theta = drawn.traces["log_lengthscale"]
    assert theta.shape == (3, 40, 2)
    assert len(np.unique(theta)) > 1
    assert summary_of_traces(drawn)["r_hat_largest"] >= 1


def test_r_hat_sees_halves_of_a_chain_and_chains_that_differ():
    draws = np.random.default_rng(0).normal(size=(4, 400, 3))
    assert np.all(r_hats({"x": draws}) < 1.02)
    drifting = draws + np.linspace(0, 5, 400)[:, None] * [0, 1, 0]
    found = r_hats({"x": draws, "y": drifting[:1, :, :, None]})
    assert found[1] > 1.5
    assert np.all(found[[0, 2]] < 1.05)
    apart = draws + 5 * np.arange(4)[:, None, None]  # each chain is steady
    assert np.all(r_hats({"x": apart}) > 1.5)


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
    every = {"msvm-wine-cv", "bmsvm-wine-fixed", "bmsvm-wine-sampled"}
    assert set(ran) < every
    again = []
    monkeypatch.setattr(table1, "run_cell", lambda *a: again.append(a[0].name) or fake(*a))
    with joblib.parallel_config(backend="threading"):
        found = table1.run_table(options_at(tmp_path, jobs=2))
    assert again == list(every - set(ran))
    assert [each["row"] for each in found] == ["bmsvm", "bmsvm", "msvm"]
    assert not list(tmp_path.rglob("*.tmp"))
    with pytest.raises(ValueError, match="give another --output"):
        table1.run_table(options_at(tmp_path, quick=True))
    (tmp_path / "cells" / "msvm-wine-cv.json").write_text('{"error": ')
    with pytest.raises(ValueError, match=r"msvm-wine-cv\.json is no finished cell: remove it"):
        table1.run_table(options_at(tmp_path))


def test_cells_run_in_processes_of_one_thread(tmp_path):
    """Two at a time, none of which a later run repeats; progress reaches the end."""
    shares = []
    cells = [Cell(row, "wine", "cv") for row in ("ovr", "altmsvm")]
    work = table1._Work(options_at(tmp_path, quick=True, jobs=2))
    found = dict(run_pieces(work, cells, 2, lambda done, running: shares.append(done)))
    assert set(found) == set(cells)
    assert shares[-1] == 2
    assert shares == sorted(shares)
    alone = table1.run_cell(cells[0], table1.Options(tmp_path, quick=True))
    for name in ("errors", "chosen"):
        assert found[cells[0]][name] == alone[name]
    assert alone["n_tested"] == alone["n_fits"] == 12
    assert 0 <= alone["error"] < 0.5
    assert alone["log_loss"] is None
    json.dumps(alone)


@pytest.mark.long
def test_the_quick_table_is_whole(tmp_path):
    """Every row of every data set is run, cut down, and has numbers."""
    options = table1.Options(tmp_path, quick=True, jobs=2, progress=False)
    found = table1.run_table(options)
    assert len(found) == len(options.cells) > 40
    for numbers in found:
        assert 0 <= numbers["error"] < 1
        assert numbers["log_loss"] is None or 0 < numbers["log_loss"] < 10
        assert "r_hat_largest" not in numbers or numbers["r_hat_largest"] >= 0.9


def test_a_failing_cell_says_why_and_the_others_are_kept(tmp_path, monkeypatch):
    def fails(cell, options, report):
        if cell.row == "bmsvm":
            raise ValueError("bmsvm cannot do this")
        return fake(cell, options)

    monkeypatch.setattr(table1, "run_cell", fails)
    with pytest.raises(ValueError, match="bmsvm cannot do this"):
        table1.run_table(options_at(tmp_path))
    assert [path.stem for path in (tmp_path / "cells").iterdir()] == ["msvm-wine-cv"]


def test_theta_of_the_classifier_is_found_without_the_rows_left_out(monkeypatch):
    searched = []

    class Search:
        def __init__(self, **settings):
            assert settings["standardize"] is False
            assert settings["lengthscale_options"]["per_feature"]

        def fit(self, rows, labels):
            searched.append(rows)
            self.lengthscale_ = np.array([1.0 + len(searched), 2.5])
            self.problem_ = SimpleNamespace(hyper=UNIT_NOISE)
            return self

    rng, labels = np.random.default_rng(0), np.arange(24) % 3
    rows = rng.normal(size=(24, 2)) + 3 * np.eye(3)[labels][:, :2]
    data = protocol.Data(rows, labels, 3)
    parts = [protocol.Part(np.delete(np.arange(24), i), np.array([i])) for i in range(24)]
    monkeypatch.setattr(defaults, "BMSVMClassifier", Search)
    schedule = Schedule(pilot=40, warmup=20, draws=20, thinning=1)
    cell = Cell("per_feature", "wine", "evidence")
    found = defaults.run_default(cell, data, parts, schedule, 0)
    blocks = blocks_of_rows(range(24))
    assert len(searched) == len(blocks) == 2
    for own, given in zip(blocks, searched, strict=True):
        np.testing.assert_array_equal(given, np.delete(protocol.standardized(rows), own, axis=0))
    assert found["chosen"] == [
        {"lengthscale": [first, 2.5], "prior_precision": 40.0} for first in (2.0, 3.0)
    ]
    assert found["n_tested"] == 24
    assert found["error"] < 0.5
    assert found["log_loss"] < np.log(3)


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


SLEEPERS = """
import os, sys, time
from pathlib import Path
from bmsvm.experiments.cells import Cell
from bmsvm.experiments.workers import run_pieces

def sleep(piece, report):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(300)

cells = [Cell(row, "wine", "cv") for row in ("ovr", "altmsvm")]
list(run_pieces(sleep, cells, 2, lambda done, running: None))
"""


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
    ],
)
def test_processes_end_with_the_one_that_waits(how, tmp_path):
    command = [sys.executable, "-c", SLEEPERS, str(tmp_path)]
    waiting = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    workers = [int(path.name) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    waiting.send_signal(how)
    assert waiting.wait(timeout=60) != 0
    while (left := [each for each in workers if _runs(each)]) and time.monotonic() < until:
        time.sleep(0.1)
    assert not left


def _runs(process: int) -> bool:
    """Whether there is such a process, one that ended and was not asked for its status aside."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
