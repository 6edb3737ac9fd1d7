"""One seed, one set of draws: in this process, in others, in one piece or in several."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from small_models import NEW, fit

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import conftest  # the settings of JAX under which these tests run
import test_reproducibility
print(test_reproducibility.fingerprint())
"""


def fingerprint():
    """All draws and probabilities of a small model, in one word."""
    model = fit()
    arrays = [*model.run_.samples.values(), model.predict_proba(NEW)]
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def test_other_processes_make_the_same_draws_bit_for_bit():
    """Whatever the order in which Python hashes names."""
    tests = Path(__file__).parent
    here = fingerprint()
    assert fingerprint() == here
    environment = {**os.environ, "PYTHONHASHSEED": "123", "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tests)],
        env=environment,
        cwd=tests.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == here


def test_other_seeds_make_other_draws():
    assert not np.array_equal(
        fit().run_.samples["precision"], fit(random_state=1).run_.samples["precision"]
    )
