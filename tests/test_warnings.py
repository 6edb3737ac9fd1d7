"""No FutureWarning of a dependency reaches a user, and no filter of the user's is changed."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILTERS_STAY = """
import warnings
import jax, matplotlib.pyplot, numpyro, sklearn, xarray  # these may have filters of their own
before = list(warnings.filters)
from bmsvm._arviz import arviz
ours = [each for each in warnings.filters if each not in before and "ArviZ" in str(each[1])]
assert not ours, ours
"""
FILTERS_STAY_IN_A_RACE = """
import warnings
from bmsvm._arviz import load_arviz
add = warnings.filterwarnings

def another_thread_adds_one_too(*arguments, **settings):
    add(*arguments, **settings)
    add("error", "of the user")

warnings.filterwarnings = another_thread_adds_one_too
warnings.filterwarnings("ignore", "of the user, too")
load_arviz()
said = [each[1].pattern for each in warnings.filters if hasattr(each[1], "pattern")]
assert "of the user" in said and "of the user, too" in said, said
assert not any("ArviZ is" in each for each in said), said
"""


def run(tmp_path, *arguments):
    """Run Python where ArviZ, which warns once a day, has not warned yet."""
    places = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=os.environ | places,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_importing_the_package_gives_no_future_warning(tmp_path):
    """Neither as users see it nor if they turn such warnings into errors."""
    assert "FutureWarning" not in run(tmp_path / "seen", "-c", "import bmsvm.cli")
    run(tmp_path / "raised", "-W", "error::FutureWarning", "-c", "import bmsvm.cli")


def test_the_filters_of_the_user_stay(tmp_path):
    run(tmp_path, "-c", FILTERS_STAY)


def test_the_filters_of_the_user_stay_if_another_thread_changes_them(tmp_path):
    run(tmp_path, "-c", FILTERS_STAY_IN_A_RACE)
