"""Chains compile in a second thread while the lengthscale is chosen."""

from __future__ import annotations

import threading

import jax
import numpy as np
import pytest

import bmsvm._fitting
from bmsvm import BMSVMClassifier
from bmsvm.datasets import load_wine
from bmsvm.inference.ahead import Ahead

X, Y = load_wine(return_X_y=True)
SETTINGS = {"num_samples": 50, "num_warmup": 30, "random_state": 0}


@pytest.mark.few_draws
@pytest.mark.parametrize(
    "model", [{}, {"likelihood": "hinge", "kernel": "gaussian"}], ids=["mode-cv", "squares-cv"]
)
def test_chains_compile_nothing_after_the_choice(model, monkeypatch):
    """Nothing of the second thread is compiled again for the chosen theta."""
    jax.clear_caches()  # another file may have compiled for these shapes
    compiled: dict[str, list[str]] = {"before": [], "chains": []}
    now = ["before"]

    def listen(event: str, *args: object, **details: object) -> None:
        if "backend_compile" in event:
            compiled[now[0]].append(threading.current_thread().name)

    run_chains = bmsvm._fitting.run_chains

    def watched(*args, **kwargs):
        now[0] = "chains"
        try:
            return run_chains(*args, **kwargs)
        finally:
            now[0] = "before"

    monkeypatch.setattr(bmsvm._fitting, "run_chains", watched)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        BMSVMClassifier(**SETTINGS, **model).fit(X[::3], Y[::3])
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    in_thread = [name for name in compiled["before"] if name == "bmsvm: load and compile"]
    assert len(in_thread) >= 2  # the start of chains, and the sweep
    assert len(compiled["chains"]) <= len(in_thread)


@pytest.mark.few_draws
def test_draws_are_those_without_it(monkeypatch):
    ahead = BMSVMClassifier(**SETTINGS).fit(X[::3], Y[::3])
    monkeypatch.setattr(bmsvm._fitting, "Ahead", lambda *calls: Ahead())
    alone = BMSVMClassifier(**SETTINGS).fit(X[::3], Y[::3])
    np.testing.assert_array_equal(
        ahead.posterior_.samples["weights"], alone.posterior_.samples["weights"]
    )


def test_what_goes_wrong_in_the_thread_is_dropped():
    def fails():
        raise ValueError("no such thing")

    Ahead(fails).wait()
    Ahead().wait()


def test_the_thread_computes_in_float64():
    found = []
    Ahead(lambda: found.append(jax.numpy.ones(2).dtype)).wait()
    assert found == [np.float64]
