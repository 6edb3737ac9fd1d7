"""JAX's setting of the precision: left alone, and the same posterior in both."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC

import bmsvm
from bmsvm import PAPER, BMSVMGibbs, kernels, prepare, run_chains
from bmsvm.inference import Blocks
from bmsvm.inference.blocks import collapsed_parameters, exact_scores, scale

N, C = 18, 3
LABELS = np.arange(N) % C
X = np.random.default_rng(0).normal(size=(N, 2)) + 2.0 * np.eye(C)[LABELS, :2]
MODEL = {"lengthscale": 2.0, "likelihood": "hinge", "hyperparameters": PAPER}


def test_importing_leaves_the_precision_alone():
    code = (
        "import jax; before = jax.config.jax_enable_x64\n"
        "import bmsvm, bmsvm.arviz, bmsvm.datasets, bmsvm.inference, bmsvm.models\n"
        "problem = bmsvm.prepare([[0.0], [1.0], [2.0]], [0, 1, 1], lengthscale=1.0)\n"
        "assert jax.config.jax_enable_x64 is before is False\n"
        "assert problem.factor.basis.dtype == 'float32'\n"
    )
    root = str(Path(bmsvm.__file__).parents[1])
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    environment["PYTHONPATH"] = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_the_factorisation_is_double_in_single_precision():
    double = prepare(X, LABELS, **MODEL).factor
    with jax.enable_x64(False):
        gram = kernels.gram(kernels.Gaussian().at(2.0), X)
        single = prepare(X, LABELS, **MODEL).factor
    assert gram.dtype == np.float64
    for narrow, wide in zip(single, double, strict=True):
        assert narrow.dtype == np.float32
        np.testing.assert_array_equal(narrow, np.asarray(wide).astype(np.float32))


def test_a_problem_of_another_precision_is_refused():
    with jax.enable_x64(False):
        single = prepare(X, LABELS, **MODEL)
    with pytest.raises(ValueError, match=r"precision of JAX; it was prepared in float32"):
        run_chains(BMSVMGibbs(), jax.random.key(0), single)


@pytest.mark.slow
def test_single_and_double_precision_agree():
    blocks = Blocks(sweep=(exact_scores(), collapsed_parameters(), scale()))

    def run(seed):
        mcmc = MCMC(
            BMSVMGibbs(**MODEL, sampler=blocks),
            num_warmup=200,
            num_samples=1000,
            num_chains=4,
            chain_method="vectorized",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(seed), X, LABELS, extra_fields=("~z.scores",))
        return mcmc.get_samples(group_by_chain=True)

    double = run(0)
    with jax.enable_x64(False):
        single = {name: np.asarray(value) for name, value in run(1).items()}
    for name in ("noise_variance", "precision"):
        assert single[name].dtype == np.float32
        assert np.isfinite(single[name]).all()
        logs = [np.log(np.asarray(each[name], float)) for each in (single, double)]
        errors = [log.std() / np.sqrt(effective_sample_size(log)) for log in logs]
        difference = logs[0].mean() - logs[1].mean()
        print(name, "mean log, single", logs[0].mean(), "double", logs[1].mean(), "mcse", errors)
        assert np.hypot(*errors) < 0.15
        assert abs(difference) < 4 * np.hypot(*errors), (name, difference, errors)
