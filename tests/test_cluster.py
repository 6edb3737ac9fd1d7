"""Work wherever joblib runs it: on a cluster, one of whose workers is killed."""

import dataclasses
import os
import pickle
import signal
import threading
import time

import jax
import joblib
import numpy as np
import pytest

from bmsvm import PAPER, GridCV, MSVMClassifier
from bmsvm.selection import cross_validation as module
from reproduction.cells import run_cells

distributed = pytest.importorskip(
    "distributed", reason="the cluster is Dask's, the extra bmsvm[cluster]"
)

CELLS = {f"cell-{seed}": {"seed": seed} for seed in range(4)}
RNG = np.random.default_rng(0)
Y = np.arange(24) % 3
X = RNG.normal(size=(24, 2)) + 2.5 * np.eye(3)[Y][:, :2]
QUICK = GridCV(
    grid=[1.0, 2.0], folds=3, sampler="gibbs", num_warmup=20, num_samples=20, num_chains=2
)


def compute(seed):
    """Compute the numbers of a cell of an experiment."""
    fitted = MSVMClassifier(gamma=0.1 * 2**seed).fit(X, Y)
    return {"error": float(np.mean(fitted.predict(X) != Y))}


def validate(how=QUICK):
    return how.select(X, Y, rng_key=jax.random.key(0), likelihood="hinge", hyperparameters=PAPER)


def assert_same(one, other):
    # Another process compiles the program anew, and may round otherwise.
    np.testing.assert_allclose(one.log_loss, other.log_loss, rtol=1e-9)
    np.testing.assert_array_equal(one.error, other.error)


def test_a_task_pickles_in_its_own_precision(monkeypatch):
    """Whatever the process that unpickles it is set to."""
    tasks = []
    monkeypatch.setattr(module, "_run_all", lambda task, *_: tasks.append(task) or [])
    validate()
    with jax.enable_x64(False):
        again = pickle.loads(pickle.dumps(tasks[0]))
    assert again.whole.factor.basis.dtype == np.float64
    np.testing.assert_array_equal(again.whole.factor.basis, tasks[0].whole.factor.basis)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_loses_nothing(tmp_path):
    expected = validate()
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed = []

        def kill_one():
            """Kill a worker once both are at work."""
            for _ in range(6000):
                busy = {w: keys for w, keys in client.processing().items() if keys}
                if len(busy) == 2:
                    pid = client.run(os.getpid, workers=[min(busy)])
                    os.kill(next(iter(pid.values())), signal.SIGKILL)
                    killed.append(pid)
                    return
                time.sleep(0.01)

        killer = threading.Thread(target=kill_one)
        killer.start()
        with joblib.parallel_config(backend="dask"):
            found = validate()
            cells = run_cells(compute, CELLS, tmp_path, progress=False)
        killer.join()
    assert killed
    assert not found.interrupted
    assert_same(found, expected)
    assert list(cells) == list(CELLS)
    assert all(
        cells[name] == {"arguments": each, **compute(**each)} for name, each in CELLS.items()
    )
    assert run_cells(compute, CELLS, tmp_path, progress=False) == cells  # from the disk


# Processes have the same scores above, on the cluster.
@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.long)])
def test_backends_of_joblib_give_the_same_scores(backend):
    with joblib.parallel_config(backend=backend):
        found = validate(dataclasses.replace(QUICK, n_jobs=2))
    assert_same(found, validate())
