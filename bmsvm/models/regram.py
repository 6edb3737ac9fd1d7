"""A problem with another Gram matrix or with some of its rows, for the same compiled program."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from bmsvm.kernels.factor import factorize
from bmsvm.models.problem import Problem, with_spare_rows
from bmsvm.models.theta import masked_design

__all__ = ["with_gram"]


def with_gram(problem: Problem, gram: ArrayLike, rows: ArrayLike | None = None) -> Problem:
    """Return the problem with another Gram matrix, of all its rows or of some.

    The basis is kept complete whatever the rank, so that problems of one size have one shape.
    The number of classes stays: a class that none of the labels has is known to the model all the
    same.

    Parameters
    ----------
    problem
        Where everything else comes from; theta is fixed in it.
    gram
        Gram matrix, shape (m, m). Rows of the problem beyond these, where ``rows`` is not given,
        are spare ones.
    rows
        Numbers of the rows, shape (m,), whose labels and weights are kept. Default: all.
    """
    factor = factorize(gram, complete=True)
    if rows is None:
        factor = with_spare_rows(factor, problem.n_rows - len(factor.basis))
    kept = slice(None) if rows is None else np.asarray(rows)
    labels = np.asarray(problem.labels)[kept]
    masked = None
    if problem.coupling == "independent":
        masked = masked_design(factor, labels, problem.n_classes)
    return replace(
        problem,
        labels=jnp.asarray(labels, jnp.int32),
        factor=jax.tree.map(jnp.asarray, factor),
        masked=jax.tree.map(jnp.asarray, masked),
        grid=None,
        family=None,
        row_weights=None if problem.row_weights is None else problem.row_weights[kept],
    )
