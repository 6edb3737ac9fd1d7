"""Shared set-up: tests run in float64 unless they ask otherwise, and compile in a hurry."""

import os

# Most of the time of a test is compilation. Set XLA_FLAGS, be it to nothing, to compile what users
# compile, or where XLA does not know one of these.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
# The matrices are small and the cores busy: threads that wait for each other are what would cost.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Without it one of scikit-learn's checks of an estimator skips itself.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import jax
import numpyro
import pytest

numpyro.enable_x64()
numpyro.set_host_device_count(4)


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Free what a file compiled: another seldom needs it."""
    yield
    jax.clear_caches()
