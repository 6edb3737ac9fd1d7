"""Shared set-up: tests run in float64 unless they ask otherwise."""

import numpyro

numpyro.enable_x64()
numpyro.set_host_device_count(4)
