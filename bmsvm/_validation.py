"""Checks of what users pass in. Each message names the argument, the value and the remedy."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from jax.typing import ArrayLike

__all__ = ["check_choice", "check_positive", "check_rows_and_labels"]


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")


def check_positive(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a positive finite number."""
    good = isinstance(value, int | float | np.number) and bool(np.isfinite(value)) and value > 0
    if not good:
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")


def _as_matrix(name: str, value: ArrayLike) -> np.ndarray:
    try:
        matrix = np.asarray(value)
        if not np.issubdtype(matrix.dtype, np.floating):
            matrix = matrix.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of numbers; {error}") from None
    if matrix.ndim != 2:
        raise ValueError(f"{name} must have two dimensions (rows, features); got {matrix.ndim}")
    if matrix.shape[1] < 1:
        raise ValueError(f"{name} must have at least one feature; got shape {matrix.shape}")
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"{name} must be finite; {len(bad)} entries are not, the first is "
            f"{name}[{row}, {column}] = {matrix[row, column]}"
        )
    return matrix


def check_rows_and_labels(
    X: ArrayLike, y: ArrayLike, *, precomputed: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check rows and labels.

    Returns
    -------
    tuple
        Rows (n, p) as floats, the sorted classes (c,), and the class index of each row (n,).
    """
    rows = _as_matrix("X", X)
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, one label a row; got shape {labels.shape}")
    n = rows.shape[0]
    if labels.shape[0] != n:
        raise ValueError(
            f"X and y must have the same number of rows; X has {n}, y has {labels.shape[0]}"
        )
    if n < 2:
        raise ValueError(f"X must have at least 2 rows; got {n}")
    if precomputed and rows.shape[1] != n:
        raise ValueError(
            f'X must be the square Gram matrix with kernel="precomputed"; got shape {rows.shape}'
        )
    if np.issubdtype(labels.dtype, np.floating) and not np.all(np.isfinite(labels)):
        raise ValueError("y must not have NaN or infinite labels")
    try:
        classes, indices = np.unique(labels, return_inverse=True)
    except TypeError:
        raise ValueError("y must have labels of one type that can be sorted") from None
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; got one, {classes[0]!r}")
    return rows, classes, indices
