"""Small matrices have one thread of BLAS, and what was set before comes back."""

from __future__ import annotations

import pytest
from threadpoolctl import threadpool_info

from bmsvm._threads import SMALL, few_blas_threads


def threads():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]


@pytest.mark.parametrize(("n_rows", "limited"), [(10, True), (SMALL, True), (SMALL + 1, False)])
def test_small_matrices_have_one_thread(n_rows, limited):
    before = threads()
    with few_blas_threads(n_rows):
        assert threads() == ([1] * len(before) if limited else before)
    assert threads() == before
