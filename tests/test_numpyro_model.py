"""The NumPyro program against the covariance of eq. (19), written out in NumPy.

Given (sigma2, tau, theta) the program maps standard normals to columns linearly; the Jacobian
times its transpose is their covariance, whatever the program integrates out.
"""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from numpyro import handlers

from bmsvm import Sampled, prepare
from bmsvm.models import hierarchical_model
from bmsvm.models.couplings import to_columns

X = np.random.default_rng(1).normal(size=(7, 2))
Y = np.array([0, 1, 2, 1, 0, 2, 2])
VALUES = {"noise_variance": 0.7, "precision": 0.3}
THETA = 1.3
OFF_GRID = {"lengthscale": Sampled(grid="off")}
FORMS = {
    "integrated": ({"lengthscale": THETA}, {"integrate_weights": True}, {}),
    "whole": ({"lengthscale": THETA}, {"integrate_weights": False}, {}),
    "linear": ({"kernel": "linear"}, {"integrate_weights": True}, {}),
    "theta": (OFF_GRID, {"integrate_weights": True}, {"lengthscale": THETA}),
}


def covariance_of(problem, values, form):
    """Covariance (nk, nk) of the columns that the program makes of its standard normals."""
    program = handlers.seed(lambda: hierarchical_model(problem, **form), jax.random.key(0))

    def trace(sites):
        return handlers.trace(handlers.substitute(program, data=sites)).get_trace()

    def columns(white):
        scores = trace({**values, **white})["scores"]["value"]
        return to_columns(scores, problem.labels, problem.coupling).ravel()

    white = {
        name: jnp.zeros_like(site["value"])
        for name, site in trace(values).items()
        if name.startswith("white")
    }
    parts = jax.tree.leaves(jax.jacobian(columns)(white))
    slopes = np.concatenate(
        [np.asarray(p).reshape(len(Y) * problem.n_columns, -1) for p in parts], 1
    )
    return slopes @ slopes.T


def expected_covariance(problem, linear):
    gram = X @ X.T
    if not linear:
        squares = ((X[:, None] - X) ** 2).sum(-1)
        gram = np.exp(-squares / (2 * THETA**2))
    eta = float(problem.hyper.intercept_precision)
    one = VALUES["noise_variance"] * (np.eye(len(Y)) + 1 / eta + gram / VALUES["precision"])
    n, k = len(Y), problem.n_columns
    whole = np.zeros((n, k, n, k))
    for j in range(k):
        seen = np.ones(n) if problem.coupling == "sum_to_zero" else (j != Y).astype(float)
        whole[:, j, :, j] = np.outer(seen, seen) * one
    return whole.reshape(n * k, n * k)


@pytest.mark.parametrize("coupling", ["sum_to_zero", "independent"])
@pytest.mark.parametrize("form", FORMS)
def test_columns_have_the_covariance_of_the_model(form, coupling):
    settings, how, theta = FORMS[form]
    problem = prepare(X, Y, coupling=coupling, hyperparameters=oracle.LIVELY, **settings)
    found = covariance_of(problem, {**VALUES, **theta}, how)
    np.testing.assert_allclose(found, expected_covariance(problem, form == "linear"), atol=1e-10)


def test_what_is_no_problem_is_named():
    seeded = handlers.seed(hierarchical_model, jax.random.key(0))
    with pytest.raises(ValueError, match=r"^problem must be that of bmsvm.prepare\(.*got ndarray"):
        seeded(np.ones((3, 2)))
    with jax.enable_x64(False):
        single = prepare([[0.0], [1.0], [2.0]], [0, 1, 1], lengthscale=1.0)
    with pytest.raises(ValueError, match=r"prepared in float32, and JAX is now in float64"):
        seeded(single)
