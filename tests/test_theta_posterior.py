"""Theta's posterior against NUTS on the continuous density, and against evidence by brute force.

How both references are made is in ``tests/references/make.py``. NUTS factors ``I + K/tau`` by
Cholesky for each theta; the sampler walks over eigendecompositions, on a fine grid or off it.
"""

import arviz
import jax
import numpy as np
import oracle
import pytest
import scipy.special
from references import setups, summaries

from bmsvm import BMSVMGibbs, Sampled, run_chains

FALSE_ALARM = 1e-4
PAIRS = [
    ("wine", setups.ON_GRID),
    ("squares", setups.ON_GRID),
    pytest.param("iris", setups.ON_GRID, marks=pytest.mark.long),
    pytest.param("blobs", setups.ON_GRID, marks=pytest.mark.long),
    pytest.param("wine", setups.off_grid(every=2), marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "lengthscale"), PAIRS)
def test_theta_and_all_else_have_the_posterior_of_nuts(name, lengthscale):
    """First and second moments agree within Monte Carlo error. False alarm: 1e-4 over all."""
    run = run_chains(
        BMSVMGibbs(**setups.settings_of(name, lengthscale)),
        jax.random.key(43),
        *setups.data_of(name),
        num_warmup=400,
        num_samples=1600,
    )
    here = summaries.summarize(setups.sites_of(run.samples))
    z = summaries.z_scores(here, summaries.load(f"{name}_theta")["sites"])
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM, len(PAIRS) * z.size)


@pytest.mark.long
@pytest.mark.parametrize("likelihood", ["hinge", "normalized"])
def test_theta_has_the_posterior_of_the_evidence(likelihood):
    """Shares of the values of theta, 24 rows. False alarm: 1e-4, if the errors are right."""
    reference = summaries.load(f"evidence_{likelihood}")
    grid = np.array(reference["lengthscale"])
    expected = scipy.special.softmax(np.array(reference["log_evidence"]) + np.log(grid))
    # By the delta method, of shares p: dp_g = p_g (e_g - sum_h p_h e_h).
    spread = np.diag(expected) - np.outer(expected, expected)
    expected_error = np.sqrt(((spread * reference["standard_error"]) ** 2).sum(1))
    run = run_chains(
        BMSVMGibbs(
            lengthscale=Sampled(grid=grid),
            likelihood=likelihood,
            hyperparameters=oracle.LIVELY,
        ),
        jax.random.key(44),
        *setups.data_of("blobs"),
        num_warmup=300,
        num_samples=2000,
        collect=("lengthscale",),
    )
    cells = np.isclose(run.samples["lengthscale"][..., None], grid, rtol=1e-4).astype(float)
    share = cells.mean((0, 1))
    monte_carlo = arviz.mcse(arviz.convert_to_dataset({"share": cells}))["share"].values
    seen = expected > 1e-3
    z = (share - expected)[seen] / np.hypot(monte_carlo, expected_error)[seen]
    assert seen.sum() >= 3
    assert oracle.largest(z) < oracle.threshold(FALSE_ALARM / 2, z.size)
