"""Shared set-up: tests run in float64 unless they ask otherwise, and compile without optimising."""

import gc
import os
import pathlib
import resource
import subprocess
import sys

# The matrices are small and the cores busy: threads that wait for each other are what would cost.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without it one of scikit-learn's checks of an estimator skips itself.
os.environ.setdefault("SCIPY_ARRAY_API", "1")
# Programs need not say which lines they come from, which is a part of the time of lowering.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import few_draws
import jax
import numpyro
import pytest

IN_A_HURRY = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"
)
OLDER_EMITTERS = "--xla_cpu_use_fusion_emitters=false"  # compile twice as fast, where XLA has them


def _starts_with(flags: str) -> bool:
    """Whether XLA starts with these flags: it ends the process if it does not know one."""
    program = [sys.executable, "-c", "import jax; jax.devices()"]
    environment = {**os.environ, "XLA_FLAGS": flags}
    return subprocess.run(program, env=environment, capture_output=True).returncode == 0


# Most of the time of a test is compilation. Set XLA_FLAGS, be it to nothing, to compile what users
# compile. Workers inherit what is found here.
if "XLA_FLAGS" not in os.environ:
    both = f"{IN_A_HURRY} {OLDER_EMITTERS}"
    os.environ["XLA_FLAGS"] = both if _starts_with(both) else IN_A_HURRY

numpyro.enable_x64()
numpyro.set_host_device_count(4)

# Traced programs are many objects that live long. Looking through them for cycles at the usual rate
# would take up to a tenth of the time, late in a run.
gc.freeze()
gc.set_threshold(50_000, 20, 20)


# Files that take longest, which begin first: the cores are then busy to the end of the run.
LONGEST = (
    "fuzz_classifier",
    "classifier",
    "lengthscale",
    "blocks_invariance",
    "classifier_prediction",
    "checkpoint",
    "sbc",
    "theta_posterior",
    "checkpoint_crash",
    "modes",
    "row_weights",
    "table1",
    "posterior",
    "samplers",
    "low_rank_theta",
    "persistence_roundtrip",
    "numpyro_citizen",
    "larger_model",
)
FIRST = {f"test_{name}": place for place, name in enumerate(LONGEST)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; let the mark ``few_draws`` allow warnings of convergence."""
    for item in items:
        if item.get_closest_marker("few_draws"):
            item.add_marker(pytest.mark.filterwarnings(few_draws.FILTER))
    items.sort(key=lambda item: FIRST.get(item.path.stem, len(FIRST)))


WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // (2 * max(WORKERS, 2))
"""Bytes of a process from which on it forgets programs: half of the memory is for all workers."""


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Free what files compiled, if it is much: small programs serve many files."""
    yield
    pages = pathlib.Path("/proc/self/statm")
    if not pages.exists() or int(pages.read_text().split()[1]) * resource.getpagesize() > MEMORY:
        jax.clear_caches()
