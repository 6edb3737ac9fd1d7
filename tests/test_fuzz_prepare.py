"""Fuzzing of prepare, the kernels and the sampler: finite numbers, or an error that says why."""

import hypothesis.strategies as st
import jax
import numpy as np
import pytest
from fuzz_cases import (
    EXTREMES,
    REFUSED,
    assert_executed,
    cases,
    change_hyperparameters,
    change_kernel,
    change_lengthscale,
    count,
    fuzz,
    quiet,
    says_something,
)
from fuzz_data import DATA, LABELS, ROWS, anything
from hypothesis import given
from numpyro.infer import MCMC

import bmsvm
from bmsvm import kernels
from bmsvm.inference import NonFiniteError
from bmsvm.inference.blocks import Block, collapsed_parameters, exact_scores
from bmsvm.inference.samplers import Blocks

SHARES = {"prepare": 0.3, "kernels": 0.1}
MODEL = (*DATA, change_hyperparameters, change_lengthscale, change_kernel)


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


@fuzz(SHARES["prepare"])
@given(
    case=cases(MODEL),
    likelihood=st.one_of(st.sampled_from(["hinge", "normalized", "squared"]), anything),
    coupling=st.one_of(st.sampled_from(["sum_to_zero", "independent"]), anything),
    spare=st.one_of(st.integers(-1, 3), anything),
)
def test_prepare_works_or_says_what_is_wrong(case, likelihood, coupling, spare):
    count("prepare")
    chosen = {"lengthscale": 1.0, "likelihood": likelihood, "coupling": coupling}
    chosen |= case["settings"]
    try:
        problem = bmsvm.prepare(
            case["X"], case["y"], row_weights=case["weights"], spare_rows=spare, **chosen
        )
    except REFUSED as error:
        says_something(error)
        return
    for leaf in jax.tree.leaves(problem):
        assert np.isfinite(np.asarray(leaf)).all()


@fuzz(SHARES["kernels"])
@given(
    make=st.sampled_from(["Gaussian", "Matern32", "Matern52", "Polynomial", "named"]),
    values=st.lists(st.one_of(EXTREMES, anything), min_size=1, max_size=3),
)
def test_kernels_work_or_say_what_is_wrong(make, values):
    count("kernels")
    try:
        if make == "Polynomial":
            kernel = kernels.Polynomial(*values).at()
        elif make == "named":
            kernel = kernels.as_kernel(values[0]).at(*values[1:2])
        else:
            kernel = getattr(kernels, make)().at(values[0])
        factor = kernels.factorize(kernels.gram(kernel, ROWS))
    except REFUSED as error:
        says_something(error)
        return
    assert np.isfinite(factor.basis).all()
    assert np.isfinite(factor.eigenvalues).all()


def test_as_many_cases_were_run_as_are_promised():
    assert_executed(**SHARES)


@fuzz(0.01)
@given(case=cases(MODEL))
def test_the_sampler_refuses_what_prepare_refuses(case):
    """With the same words; what it accepts has finite draws, or an error that names the sweep.

    A name that means nothing is refused when the sampler is made, before there are data.
    """
    model = {"lengthscale": 1.0, "likelihood": "hinge", **case["settings"]}
    try:
        problem = bmsvm.prepare(case["X"], case["y"], **model)
    except REFUSED as error:
        refused = error
    else:
        refused = None
    if refused is not None:
        try:
            sampler = bmsvm.BMSVMGibbs(sampler="paper", **model)
        except ValueError as early:
            says_something(early, " must ")
            return
        mcmc = MCMC(sampler, num_warmup=1, num_samples=1, progress_bar=False)
        with pytest.raises(type(refused)) as caught:
            mcmc.run(jax.random.key(0), case["X"], case["y"])
        assert str(caught.value) == str(refused)
        return
    bmsvm.BMSVMGibbs(sampler="paper", **model)
    short = {"num_warmup": 1, "num_samples": 1, "num_chains": 1, "thinning": 1}
    try:
        sampler = bmsvm.BMSVMGibbs(sampler="paper")
        run = bmsvm.run_chains(sampler, jax.random.key(0), problem, **short)
    except NonFiniteError as error:
        says_something(error, "sweep", "chain")
        return
    assert all(np.isfinite(value).all() for value in run.samples.values())


def test_a_chain_that_is_not_finite_says_where():
    """Values that are not finite after some sweeps are reported with sweep and parameter."""

    def step(key, position, memory, problem, phase):
        broken = jax.numpy.where(phase.sweep == 7, jax.numpy.nan, position.precision)
        return position._replace(precision=broken), memory, {}

    sweep = (exact_scores(), collapsed_parameters(), Block("spoiler", lambda *_: (), step))
    sampler = bmsvm.BMSVMGibbs(
        lengthscale=1.0,
        likelihood="hinge",
        hyperparameters=bmsvm.PAPER,
        sampler=Blocks(sweep=sweep),
    )
    with pytest.raises(NonFiniteError, match=r"chain 0 .*sweep 7 \(sampling\) precision .*nan"):
        bmsvm.run_chains(
            *(sampler, jax.random.key(0), ROWS, LABELS), num_warmup=3, num_samples=9, num_chains=2
        )
