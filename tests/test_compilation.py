"""The cache of compiled programs is the user's to switch, and a later process reads it."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np

from bmsvm._arrays import key_of

SCRIPT = """
import sys
import jax
import bmsvm
bmsvm.run_chains
assert jax.config.jax_compilation_cache_dir in (None, ""), "importing changes a setting"
print(bmsvm.enable_compilation_cache(*sys.argv[1:]))
compiled = []
jax.monitoring.register_event_listener(lambda event, **_: compiled.append(event))
jax.jit(lambda x: (x @ x.T).sum())(jax.numpy.ones((30, 30)))
print(sum("cache_hits" in event for event in compiled))
"""


def in_a_process(*arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    directory, hits = done.stdout.split()
    return directory, int(hits)


def test_a_second_process_reads_what_the_first_compiled(tmp_path):
    directory, hits = in_a_process(str(tmp_path / "programs"))
    assert (directory, hits) == (str(tmp_path / "programs"), 0)
    assert any((tmp_path / "programs").iterdir())
    assert in_a_process(str(tmp_path / "programs"))[1] > 0


def test_the_default_is_the_user_s_directory_of_caches(tmp_path):
    assert in_a_process(XDG_CACHE_HOME=str(tmp_path))[0] == str(tmp_path / "bmsvm")


WITHOUT = """
import sys
import jax
import bmsvm
from bmsvm.datasets import load_wine
compiled = []
jax.monitoring.register_event_duration_secs_listener(lambda event, *_, **__: compiled.append(event))
X, y = load_wine(return_X_y=True)
model = bmsvm.BMSVMClassifier(likelihood="squared", random_state=0).fit(X, y)
assert model.predict_proba(X).shape == (178, 3)
print(sum("backend_compile" in event for event in compiled))
print(*({"tinygp", "equinox", "sklearn.cluster"} & set(sys.modules)))
jax.jit(lambda x: x + 1)(1.0)
assert any("backend_compile" in event for event in compiled), "programs are not counted"
"""


def test_squared_compiles_nothing_and_imports_no_more_than_it_needs():
    command = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["0", ""]


def test_a_key_made_without_a_program_is_that_of_jax():
    for seed in (0, 5, 2**31 - 2):
        ours, theirs = key_of(seed), jax.random.key(seed)
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))
