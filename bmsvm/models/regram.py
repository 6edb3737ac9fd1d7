"""A problem with another Gram matrix, for the same compiled program."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm.kernels.factor import factorize
from bmsvm.models.problem import Problem, with_spare_rows
from bmsvm.models.theta import masked_design


def with_gram(problem: Problem, gram: ArrayLike) -> Problem:
    """Return the problem with another Gram matrix of its rows.

    The basis is kept complete whatever the rank, so that problems of one size have one shape.

    Parameters
    ----------
    problem
        Where everything else comes from; theta is fixed in it.
    gram
        Gram matrix, shape (m, m). Rows of the problem beyond these are spare ones.
    """
    factor = factorize(gram, complete=True)
    factor = with_spare_rows(factor, problem.n_rows - len(factor.basis))
    masked = None
    if problem.coupling == "independent":
        masked = masked_design(factor, np.asarray(problem.labels), problem.n_classes)
    return replace(
        problem,
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        grid=None,
        family=None,
    )
