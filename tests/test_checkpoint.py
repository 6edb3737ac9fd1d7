"""Checkpoints: stored draws equal those in memory, a resumed run equals an uninterrupted one."""

import gc
import pickle
import random
import sys
import tracemalloc
from typing import NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from small_models import X as ROWS
from small_models import fit
from stored_runs import ALGORITHMS, X, Y, assert_same, interrupted_after, kernel, run

from bmsvm import Paper, Sampled
from bmsvm.checkpoint import FORMAT_VERSION, RECORD, Checkpoint, ModelFileError
from bmsvm.inference.run import start_chains

pytest.importorskip("zarr", reason="stores need zarr, the extra bmsvm[store]")


@pytest.fixture(scope="module")
def whole():
    return run().samples


def test_stored_draws_are_those_in_memory(whole, tmp_path):
    found = run(tmp_path / "store")
    assert found.num_samples == 130
    assert_same(found.samples, whole)
    with pytest.raises(KeyError):
        found.samples["weights"]
    opened = xarray.open_zarr(tmp_path / "store" / "draws.zarr", consolidated=False)
    assert opened.scores.dims == ("chain", "draw", "row", "class")
    np.testing.assert_array_equal(opened.precision, whole["precision"])
    again = pickle.loads(pickle.dumps(found))  # a pickle stands alone
    assert_same(again.samples, whole)
    assert again.store is None


@pytest.mark.parametrize("first", [7, 50])
def test_a_stored_run_resumes(whole, first, tmp_path):
    """Whether by more, or by the same call with more draws, and in whatever pieces."""
    store = tmp_path / "store"
    part = run(store, num_samples=first).more(20)
    assert part.num_samples == first + 20
    full = run(store)
    assert_same(full.samples, whole)
    assert_same(run(store, num_samples=9).samples, whole)  # there are more, and they are returned
    assert full.seconds > 0
    with pytest.raises(ValueError, match=rf"{first + 20} .*130"):
        part.more(1)


def test_single_precision_is_stored_as_it_is(tmp_path):
    with jax.enable_x64(False):
        run(tmp_path / "store", num_samples=20)
        part = run(tmp_path / "store", num_samples=60)
        assert part.samples["scores"].dtype == np.float32
        assert_same(part.samples, run(num_samples=60).samples)


OFTEN = ("hmc, theta off a grid", "hmc, low rank")  # their states hold all that others do


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in ALGORITHMS],
)
def test_every_algorithm_resumes_bit_identically(name, tmp_path):
    """Its whole state is in the record: in warm-up, in the draws, and by more."""
    changes = ALGORITHMS[name]
    settings = {"kernel": kernel(**changes), "thinning": 1, "collect": None}
    expected = run(**settings, num_samples=17).samples
    with interrupted_after(1), pytest.raises(KeyboardInterrupt):
        run(tmp_path, **settings)
    run(tmp_path, **settings, num_samples=3)
    part = run(tmp_path, **settings, num_samples=9)
    assert_same(part.more(8).samples, expected)
    assert_same(run(tmp_path, **settings, num_samples=17).samples, expected)


@pytest.mark.parametrize(
    "name",
    [
        "hmc, theta on a grid",
        pytest.param("hmc, low rank, theta on a grid", marks=pytest.mark.long),
    ],
)
def test_one_program_serves_the_first_piece_and_later_ones(name):
    """A sweep leaves the types of the state as they were at the start."""
    sampler = kernel(**ALGORITHMS[name])
    key, problem = jax.random.key(0), sampler.prepare(X, Y)
    state = start_chains(sampler, key, problem, num_chains=2, num_warmup=5)
    after = jax.eval_shape(lambda state: sampler.sample(state, (), {}), state)
    for before, like in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (before.dtype, before.aval.weak_type) == (like.dtype, like.weak_type)


def test_chains_with_given_starting_points_are_stored_too(tmp_path):
    init_params = {"precision": np.array([0.5, 2.0])}
    expected = run(init_params=init_params, num_samples=60).samples
    for num_samples in (10, 60):
        found = run(tmp_path / "store", init_params=init_params, num_samples=num_samples)
    assert_same(found.samples, expected)
    with pytest.raises(ValueError, match="init_params"):
        run(tmp_path / "store")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"X": X + 1e-9}, "other rows, labels, kernel or lengthscale"),
        ({"seed": 1}, "rng_key"),
        ({"thinning": 2}, "thinning=1.*2"),
        ({"num_chains": 3}, "num_chains=2.*3"),
        ({"num_warmup": 61}, "num_warmup=60.*61"),
        ({"collect": ["scores"]}, r"collect=\['precision', 'scores'\]"),
        ({"kernel": kernel(sampler="hmc")}, "algorithm="),
    ],
)
def test_a_store_of_another_run_is_refused(settings, named, tmp_path):
    run(tmp_path, num_samples=5)
    before = (tmp_path / RECORD).read_bytes()
    with pytest.raises(ValueError, match=named):
        run(tmp_path, **settings)
    assert (tmp_path / RECORD).read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "other", "named"),
    [
        ({"sampler": Paper()}, {"sampler": Paper(step_size=0.5)}, r"sampler=.*1\.0.*0\.5"),
        ({"sampler": Paper()}, {"sampler": Paper(printed_ratio=True)}, "sampler=.*False.*True"),
        (
            {"lengthscale": Sampled(grid="off", every=2)},
            {"lengthscale": Sampled(grid="off", every=3)},
            "every=2.*3",
        ),
    ],
    ids=["step_size", "printed_ratio", "every"],
)
def test_a_store_of_the_same_sampler_with_other_options_is_refused(changes, other, named, tmp_path):
    settings = {"thinning": 1, "collect": ["precision"]}
    with (
        mock.patch("bmsvm.inference.run.advance_chains", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        run(tmp_path, kernel=kernel(**changes), **settings)
    with pytest.raises(ValueError, match=named):
        run(tmp_path, kernel=kernel(**other), **settings)


def test_a_directory_that_is_not_a_store_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(ValueError, match=f"thesis.tex.*{RECORD}"):
        run(tmp_path)
    with pytest.raises(ValueError, match=r"store .*thesis\.tex"):
        run(tmp_path / "thesis.tex")
    store = tmp_path / "store"
    run(store, num_samples=5)
    record = store / RECORD
    record.write_bytes(record.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match=RECORD):
        run(store)


def test_a_store_in_use_is_refused(tmp_path):
    pytest.importorskip("fcntl", reason="stores are locked where the system has flock")
    with run(tmp_path, num_samples=5).store.opened(), pytest.raises(ValueError, match="store"):
        run(tmp_path)


def test_without_zarr_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r"bmsvm\[store\]"):
        run(tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_memory_does_not_grow_with_the_chains(tmp_path, monkeypatch):
    run(tmp_path / "first", num_samples=60)
    commit = Checkpoint.commit

    def tidy(self, *args):
        commit(self, *args)
        gc.collect()  # Garbage that waits is not memory that is kept.

    tracemalloc.start()
    monkeypatch.setattr(Checkpoint, "commit", tidy)
    try:
        sizes = []
        for store, draws in (("short", 100), ("long", 1000)):
            tracemalloc.reset_peak()
            run(tmp_path / store, num_samples=draws)
            sizes.append(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()
    draws = 900 * 2 * (14 * 3 + 1) * 8
    assert sizes[1] - sizes[0] < draws / 4


@pytest.mark.few_draws
def test_a_classifier_resumes_from_its_checkpoint(tmp_path):
    settings = {"num_samples": 120, "random_state": 0}
    plain = fit(**settings)
    part = fit(**{**settings, "num_samples": 20}, checkpoint=tmp_path / "fit")
    full = fit(**settings, checkpoint=tmp_path / "fit")
    assert_same(full.run_.samples, plain.run_.samples)
    np.testing.assert_array_equal(full.predict_proba(ROWS), plain.predict_proba(ROWS))
    with pytest.raises(ValueError, match=r"20 .*120"):
        part.fit_more(5)
    full.fit_more(7)
    assert full.run_.store.progress.draws == full.run_.num_samples == 127
    with pytest.raises(ValueError, match="random_state"):
        fit(random_state=None, checkpoint=tmp_path / "other")


# The record ----------------------------------------------------------------------------------


class State(NamedTuple):
    key: jax.Array
    count: jax.Array
    parts: dict


STATE = State(
    jax.random.split(jax.random.key(0, impl="rbg"), 2),
    jnp.asarray(3),
    {"x": jnp.linspace(0.0, 1.0, 40).reshape(2, 20), "flag": jnp.array([True, False])},
)


def recorded(path, state=STATE):
    with Checkpoint(path, {"data": "0"}, ("x",)).opened() as checkpoint:
        return checkpoint.begin(state)


def test_a_state_is_any_pytree_of_arrays(tmp_path):
    recorded(tmp_path)
    found = recorded(tmp_path, jax.tree.map(lambda leaf: leaf[::-1] if leaf.ndim else leaf, STATE))
    assert jax.tree.map(jax.typeof, found) == jax.tree.map(jax.typeof, STATE)
    assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), found, STATE)))
    for other in ({"parts": {}}, {"count": jnp.asarray(3.0)}, {"count": jnp.arange(3)}):
        with pytest.raises(ModelFileError, match=r"count|sampler"):
            recorded(tmp_path, STATE._replace(**other))


def test_a_damaged_record_is_refused_or_holds_the_same(tmp_path):
    recorded(tmp_path)
    record, refused = (tmp_path / RECORD).read_bytes(), 0
    for number in range(400):
        chance, data = random.Random(number), bytearray(record)
        if number % 4:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            del data[chance.randrange(len(data)) :]
        (tmp_path / RECORD).write_bytes(data)
        try:
            found = recorded(tmp_path)
        except ModelFileError:
            refused += 1
            continue
        assert all(jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), found, STATE)))
    assert refused > 200


def test_a_record_of_another_version_is_refused(tmp_path):
    recorded(tmp_path)
    with np.load(tmp_path / RECORD) as file:
        arrays = dict(file)
    text = str(arrays["record"])
    version = f'"format_version": {FORMAT_VERSION}'
    assert version in text
    arrays["record"] = np.array(text.replace(version, '"format_version": 99'))
    np.savez(tmp_path / RECORD, **arrays)
    with pytest.raises(ModelFileError, match="99"):
        recorded(tmp_path)
