"""Checkpoints: complete draws are never lost, and a resumed run equals an uninterrupted one."""

import errno
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray
from small_models import X as ROWS
from small_models import fit

from bmsvm import BMSVMGibbs, run_chains
from bmsvm import checkpoint as module
from bmsvm.checkpoint import RECORD, Checkpoint, ModelFileError

zarr = pytest.importorskip("zarr", reason="stores need zarr, the extra bmsvm[store]")

RNG = np.random.default_rng(0)
Y = np.arange(14) % 3
X = RNG.normal(size=(14, 2)) + Y[:, None]
SETTINGS = {"num_warmup": 60, "num_chains": 2, "progress_bar": False, "num_samples": 130}
SITES = ("precision", "scores")


def run(store=None, X=X, seed=0, sampler=None, **settings):
    sampler = sampler or BMSVMGibbs(lengthscale=2.0)
    key = jax.random.key(seed)
    settings = {**SETTINGS, "collect": SITES, **settings}
    return run_chains(sampler, key, X, Y, store=store, **settings)


@pytest.fixture(scope="module")
def whole():
    return run().samples


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


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
def test_a_stored_run_goes_on(whole, first, tmp_path):
    """Whether by more, or by the same call with more draws, and in whatever pieces."""
    store = tmp_path / "store"
    part = run(store, num_samples=first).more(20, progress_bar=False)
    assert part.num_samples == first + 20
    full = run(store)
    assert_same(full.samples, whole)
    assert_same(run(store, num_samples=9).samples, whole)  # there are more, and they are returned
    assert full.seconds > 0
    with pytest.raises(ValueError, match=rf"have {first + 20} draws, .* gone on to 130"):
        part.more(1)


def test_single_precision_is_stored_as_it_is(tmp_path):
    with jax.enable_x64(False):
        run(tmp_path / "store", num_samples=20)
        part = run(tmp_path / "store", num_samples=60)
        assert part.samples["scores"].dtype == np.float32
        assert_same(part.samples, run(num_samples=60).samples)


def test_chains_that_go_on_from_others_are_stored_too(tmp_path):
    tuned = run(num_samples=10).state
    expected = run(tuned=tuned, num_samples=60).samples
    for num_samples in (10, 60):
        found = run(tmp_path / "store", tuned=tuned, num_samples=num_samples)
    assert_same(found.samples, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"X": X + 1e-9}, "holds a run with other data: give another store"),
        ({"seed": 1}, "holds a run with another rng_key, init_params or tuned: give another"),
        ({"thinning": 2}, "holds a run with thinning=1, and this one has 2"),
        ({"num_chains": 3}, "holds a run with num_chains=2, and this one has 3"),
        ({"num_warmup": 61}, "holds a run with num_warmup=60, and this one has 61"),
        ({"collect": ["scores"]}, r"holds a run with collect=\['precision', 'scores'\]"),
        ({"sampler": BMSVMGibbs(lengthscale=2.0, preset="gibbs")}, "holds a run with blocks="),
    ],
)
def test_a_store_of_another_run_is_refused(settings, message, tmp_path):
    run(tmp_path, num_samples=5)
    before = (tmp_path / RECORD).read_bytes()
    with pytest.raises(ValueError, match=message):
        run(tmp_path, **settings)
    assert (tmp_path / RECORD).read_bytes() == before


def test_what_is_no_store_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("irreplaceable")
    with pytest.raises(ValueError, match=r"has 'thesis.tex' and no 'chains.nc'"):
        run(tmp_path)
    with pytest.raises(ValueError, match=r"store must be a directory; .*tex' is a file"):
        run(tmp_path / "thesis.tex")
    store = tmp_path / "store"
    run(store, num_samples=5)
    record = store / RECORD
    record.write_bytes(record.read_bytes()[:-9])
    with pytest.raises(ModelFileError, match="cannot load"):
        run(store)


def test_a_store_in_use_is_refused(tmp_path):
    pytest.importorskip("fcntl", reason="stores are locked where the system has flock")
    with run(tmp_path, num_samples=5).store.opened(), pytest.raises(ValueError, match="in use by"):
        run(tmp_path)


def test_without_zarr_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r"bmsvm\[store\]"):
        run(tmp_path / "store")
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("piece", [1, 3])
def test_an_interruption_leaves_a_store_that_goes_on(whole, piece, tmp_path, monkeypatch):
    """Ctrl-C just after a piece is committed, in warm-up and in the draws."""
    commits, original = iter(range(1, 1000)), Checkpoint.commit

    def interrupted(self, *args):
        original(self, *args)
        if next(commits) == piece:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "commit", interrupted)
        if piece == 1:
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path)
        else:
            with pytest.warns(UserWarning, match="50 of 130 draws were made; call more"):
                part = run(tmp_path)
            assert part.interrupted
            assert_same(part.more(80, progress_bar=False).samples, whole)
    assert_same(run(tmp_path).samples, whole)


def test_every_moment_of_a_crash_leaves_what_was_complete(whole, tmp_path, monkeypatch):
    """The directory is copied at every renaming of a file; each copy is what a crash would leave.

    Files are only ever written under other names, so that these are all the moments there are.
    """
    copies, original = [], os.replace

    def moment():
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "store", copies[-1])

    def replace(source, target):
        moment()
        original(source, target)
        moment()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)  # of our own files
        patch.setattr(Path, "replace", replace)  # of Zarr's
        run(tmp_path / "store", num_samples=70)
    assert len(copies) > 20
    expected = {name: value[:, :75] for name, value in whole.items()}
    for copy in copies:
        assert_same(run(copy, num_samples=75).samples, expected)
        assert not list(copy.rglob("*.partial"))


def test_memory_does_not_grow_with_the_chains(tmp_path):
    run(tmp_path / "first", num_samples=60)
    tracemalloc.start()
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


@pytest.mark.parametrize("target", ["draws.zarr", RECORD])
def test_a_full_disk_keeps_what_was_complete_and_says_so(whole, target, tmp_path, monkeypatch):
    run(tmp_path, num_samples=50)
    if target == RECORD:  # which is smaller than the draws
        record = (tmp_path / RECORD).read_bytes()

        def full(*_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(module, "write_document", full)
        with pytest.raises(OSError, match="50 draws are complete in the store") as caught:
            run(tmp_path)
        monkeypatch.undo()
        assert caught.value.errno == errno.ENOSPC
        assert (tmp_path / RECORD).read_bytes() == record
    else:
        resource = pytest.importorskip("resource")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
        try:
            with pytest.raises(OSError, match="50 draws are complete in the store") as caught:
                run(tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert caught.value.errno == errno.EFBIG
    assert_same(run(tmp_path).samples, whole)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_classifier_goes_on_from_its_checkpoint(tmp_path):
    settings = {"num_samples": 120, "random_state": 0}
    plain = fit(**settings)
    part = fit(**{**settings, "num_samples": 20}, checkpoint=tmp_path / "fit")
    full = fit(**settings, checkpoint=tmp_path / "fit")
    assert_same(full.run_.samples, plain.run_.samples)
    np.testing.assert_array_equal(full.predict_proba(ROWS), plain.predict_proba(ROWS))
    with pytest.raises(ValueError, match="store has gone on to 120"):
        part.fit_more(5)
    full.fit_more(7)
    assert full.run_.store.progress.draws == full.run_.num_samples == 127
    with pytest.raises(ValueError, match="random_state must be an integer with checkpoint"):
        fit(random_state=None, checkpoint=tmp_path / "other")


# Killed processes ------------------------------------------------------------------------------

CHILD = """
import sys
sys.path.insert(0, {tests!r})
import conftest, test_store
test_store.run(sys.argv[1], num_samples=int(sys.argv[2]))
"""


def resume_until_done(store, draws, kills, rng):
    """Start the run again and again, and kill it soon after it has begun to work, ``kills`` times.

    Return how many draws were complete at each kill.
    """
    script, seen = CHILD.format(tests=str(Path(__file__).parent)), []
    for kill in range(kills + 1):
        record = store / RECORD
        before = record.stat().st_mtime_ns if record.exists() else None
        child = subprocess.Popen([sys.executable, "-c", script, str(store), str(draws)])
        if kill < kills:
            while child.poll() is None and (
                not record.exists() or record.stat().st_mtime_ns == before
            ):
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.15))
            child.send_signal(signal.SIGKILL)
        child.wait()
        if record.exists():
            seen.append(run_progress(store))
    assert child.returncode == 0
    return seen


def run_progress(store):
    path = store / module.RECORD
    return module.read_document(path, module.KIND, lambda found, _: found["progress"]["draws"])


def check_kills(tmp_path, draws, kills):
    expected = run(num_samples=draws).samples
    seen = resume_until_done(tmp_path / "store", draws, kills, random.Random(kills))
    print(f"draws complete at each kill: {seen}")
    assert seen == sorted(seen)
    assert_same(run(tmp_path / "store", num_samples=draws).samples, expected)
    assert len(set(seen)) > 2  # some came in the middle of things


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_killed_run_resumed_is_bit_identical(tmp_path):
    check_kills(tmp_path, draws=1500, kills=2)


@pytest.mark.long
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_a_run_killed_fifty_times_is_bit_identical(tmp_path):
    check_kills(tmp_path, draws=8000, kills=50)
