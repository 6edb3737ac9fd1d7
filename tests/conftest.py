"""Shared set-up: tests run in float64 unless they ask otherwise."""

import jax
import numpyro
import pytest

from bmsvm.inference import run as runner

numpyro.enable_x64()
numpyro.set_host_device_count(4)


@pytest.fixture(scope="module")
def quick_chains():
    """Compile the chains in a hurry: for files whose many shapes of data run for a moment each."""
    original = runner._advance
    runner._advance = jax.jit(
        original.__wrapped__,
        static_argnames=("blocks", "collect"),
        compiler_options={
            "xla_backend_optimization_level": 0,
            "xla_llvm_disable_expensive_passes": True,
        },
    )
    yield
    runner._advance = original
