"""Checks of arguments. Each message names the argument, the value and what would be right."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise ``ValueError`` unless ``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}; got {value!r}")


def check_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Raise ``ValueError`` unless ``value`` is a positive finite number."""
    good = isinstance(value, int | float | np.number) and bool(np.isfinite(value)) and value > 0
    if not good:
        raise ValueError(f"{name} must be a positive finite number; got {value!r}")


def check_bounds(name: str, bounds: Any) -> None:
    """Raise ``ValueError`` unless ``bounds`` are two positive finite numbers, the smaller first."""
    try:
        low, high = (float(bound) for bound in bounds)
        good = 0 < low < high < np.inf
    except (TypeError, ValueError):
        good = False
    if not good:
        raise ValueError(
            f"{name} must be two positive numbers, the smaller first, such as (0.1, 200); "
            f"got {bounds!r}"
        )


def positive_numbers(values: Any) -> np.ndarray | None:
    """Return an array of float64, or None unless it has numbers, all positive and finite."""
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.size > 0 and bool(np.all(np.isfinite(array) & (array > 0))) else None


def check_count(name: str, value: object, smallest: int = 1, largest: int | None = None) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer from ``smallest`` to ``largest``."""
    good = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= smallest
    if not good:
        raise ValueError(f"{name} must be an integer of at least {smallest}; got {value!r}")
    if largest is not None and cast(int, value) > largest:
        raise ValueError(f"{name} must be an integer of at most {largest}; got {value!r}")


MOST_SWEEPS = 2**31 - 1
"""Sweeps are counted in 32 bits."""


def check_sweeps(name: str, value: object, smallest: int = 1) -> None:
    """Raise ``ValueError`` unless ``value`` is a number of sweeps, draws or chains."""
    check_count(name, value, smallest, MOST_SWEEPS)


def check_probability(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is a number between 0 and 1, both excluded."""
    good = isinstance(value, int | float | np.number) and 0 < value < 1
    if not good:
        raise ValueError(f"{name} must be a probability between 0 and 1; got {value!r}")


def check_row_weights(weights: ArrayLike, n_rows: int, name: str = "row_weights") -> np.ndarray:
    """Return one weight for each row, shape (n,), float64, or raise ``ValueError``."""
    try:
        values = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers; got {weights!r}") from None
    if values.shape != (n_rows,):
        raise ValueError(
            f"{name} must have one weight for each of {n_rows} rows; got shape {values.shape}"
        )
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise ValueError(
            f"{name} must be finite and not negative; got {name}[{bad[0]}] = {values[bad[0]]}"
        )
    if not np.any(values):
        raise ValueError(f"{name} must not all be zero: every weight of {n_rows} rows is")
    return values


def said(value: Any) -> str:
    """Write a value, also a scalar of NumPy, without its type: not ``np.str_('red')``."""
    return repr(value.item() if isinstance(value, np.generic) else value)


def _number(value: Any) -> bool:
    """Whether a cell of an object array is a real number."""
    if isinstance(value, str | bytes):
        return False
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def check_matrix(X: Any, n_features: int | None = None) -> np.ndarray:
    """Return rows (n, p) as an array of finite floats, or raise ``ValueError``."""
    if scipy.sparse.issparse(X):
        raise ValueError(
            f"X must be a dense matrix; got a sparse {type(X).__name__} "
            f"of shape {X.shape}: pass X.toarray()"
        )
    try:
        matrix = np.asarray(X)
    except ValueError as error:
        raise ValueError(f"X must be a matrix of numbers; {error}") from None
    if matrix.ndim != 2:
        raise ValueError(f"X must have two dimensions (rows, features); got shape {matrix.shape}")
    if matrix.shape[1] < 1:
        raise ValueError(f"X must have at least one feature; got shape {matrix.shape}")
    if n_features not in (None, matrix.shape[1]):
        raise ValueError(
            f"X must have {n_features} columns, as the training rows have; got {matrix.shape[1]}"
        )
    if matrix.dtype.kind == "O":
        for (row, column), cell in np.ndenumerate(matrix):
            if not _number(cell):
                raise ValueError(
                    f"X must be a matrix of numbers; got X[{row}, {column}] = {cell!r}"
                )
    elif matrix.dtype.kind not in "fiub":
        first = f", X[0, 0] = {said(matrix[0, 0])}" if matrix.size else ""
        raise ValueError(f"X must be a matrix of real numbers; got dtype {matrix.dtype}{first}")
    if matrix.dtype.kind != "f":
        matrix = matrix.astype(np.float64)
    bad = np.argwhere(~np.isfinite(matrix))
    if len(bad):
        row, column = bad[0]
        raise ValueError(
            f"X must be finite; {len(bad)} entries are not, the first is "
            f"X[{row}, {column}] = {matrix[row, column]}"
        )
    return matrix


def as_labels(y: ArrayLike) -> np.ndarray:
    """Labels as an array of one dimension, without missing values and of one type."""
    try:
        labels = np.asarray(y)
    except ValueError as error:
        raise ValueError(f"y must be a sequence of labels; {error}") from None
    if labels.ndim != 1:
        raise ValueError(f"y must have one dimension, one label a row; got shape {labels.shape}")
    given = labels
    if labels.dtype.kind in "USO":
        # NumPy turns the numbers of a mixed list into strings: look at the labels as given.
        given = np.asarray(y, dtype=object)
        check_no_missing_labels(given)
        kinds: dict[Any, int] = {}
        for row, label in enumerate(given):
            kind = str if isinstance(label, str) else bytes if isinstance(label, bytes) else float
            if not isinstance(label, str | bytes | int | float | np.number | np.bool_):
                kind = type(label)
            kinds.setdefault(kind, row)
        if len(kinds) > 1:
            one, other = list(kinds.values())[:2]
            raise ValueError(
                "y must have labels of one type; "
                f"got y[{one}] = {said(given[one])} and y[{other}] = {said(given[other])}"
            )
    check_no_missing_labels(given)
    return labels


def check_no_missing_labels(labels: np.ndarray) -> None:
    """Raise ``ValueError`` if one of the labels (n,) is None, NaN, NA, NaT or infinite."""
    if labels.dtype.kind in "biuUS":
        return
    for row, label in enumerate(labels):
        missing = label is None or type(label).__name__ == "NAType"  # that of pandas
        missing |= isinstance(label, float | np.inexact) and not bool(np.isfinite(label))
        if missing or (isinstance(label, np.datetime64 | np.timedelta64) and np.isnat(label)):
            raise ValueError(
                f"y must not have missing or infinite labels; got y[{row}] = {label}. Leave such "
                "rows out of X and y"
            )


def check_discrete_labels(labels: np.ndarray) -> None:
    """Raise ``ValueError`` if one of the labels (n,) is a number that is not whole."""
    if labels.dtype.kind not in ("f", "O"):
        return
    for row, label in enumerate(labels):
        if isinstance(label, float | np.floating) and not float(label).is_integer():
            raise ValueError(
                "y must have classes, as words or whole numbers, and not a continuous target; got "
                f"y[{row}] = {said(label)}"
            )


def check_defined(values: np.ndarray, first: int = 0) -> None:
    """Raise ``ValueError`` unless values (m, ...) of rows of X from ``first`` on are finite."""
    if np.all(np.isfinite(values)):
        return
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    raise ValueError(
        f"X must have rows at which the kernel is finite; X[{first + bad[0]}] overflows: it must "
        "be in the units of the rows that the model was fitted to"
    )


def check_rows_and_labels(
    X: ArrayLike, y: ArrayLike, *, precomputed: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check rows and labels.

    Returns
    -------
    tuple
        Rows (n, p) as floats; the sorted classes (c,), and the class index of each row (n,).
    """
    rows = check_matrix(X)
    labels = as_labels(y)
    check_discrete_labels(labels)
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
    try:
        classes, indices = np.unique(labels, return_inverse=True)
    except TypeError:
        raise ValueError(
            f"y must have labels that can be sorted; got y[0] = {said(labels[0])}"
        ) from None
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes; got one, {said(classes[0])}")
    return rows, classes, indices


def labels_of_rows(rows: Any, count: int) -> np.ndarray:
    """Return the index of rows, if they have one, else 0, 1, ...: shape (count,)."""
    index = getattr(rows, "index", None)
    known = index is not None and not callable(index)  # lists have a method of that name
    return np.asarray(index) if known else np.arange(count)
