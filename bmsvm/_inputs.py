"""Inputs of estimators with a kernel: checked, weighted and standardised."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, validate_data

from bmsvm._validation import as_labels, check_no_missing_labels, check_row_weights, said
from bmsvm.kernels.functions import Precomputed
from bmsvm.scaling import Scaling, as_standardize, learn


def is_precomputed(kernel: Any) -> bool:
    """Whether a kernel, given by name or as an object, is a Gram matrix."""
    named = isinstance(kernel, str) and kernel == "precomputed"
    return named or isinstance(kernel, Precomputed)


def _column_name(X: Any, column: int) -> str:
    """Return the name of a column of X if it has one, else its number."""
    return said(X.columns[column]) if hasattr(X, "columns") else str(column)


def _missing_values(X: Any, estimator: str) -> str:
    """Say where X (n, p) has NaN, and what to put in front of an estimator."""
    missing = np.asarray(X.isna() if hasattr(X, "isna") else np.isnan(np.asarray(X, np.float64)))
    row, column = np.argwhere(missing)[0]
    return (
        f"X contains NaN in {int(missing.any(axis=1).sum())} of {len(missing)} rows, first in row "
        f"{row}, column {_column_name(X, column)}; {estimator} needs every value. Put an imputer "
        f"in front, make_pipeline(SimpleImputer(), {estimator}()) with sklearn.impute and "
        "sklearn.pipeline, or leave these rows out"
    )


def _infinite_values(X: Any) -> str:
    """Say where X (n, p) is infinite."""
    infinite = np.isinf(np.asarray(X, np.float64))
    row, column = np.argwhere(infinite)[0]
    return (
        "X contains infinity, or a value too large for float64, in "
        f"{int(infinite.any(axis=1).sum())} of {len(infinite)} rows, first in row {row}, column "
        f"{_column_name(X, column)}; give finite values, or leave these rows out"
    )


def _check_no_dates(X: Any) -> None:
    """Raise ``ValueError`` if a cell of X (n, p) is a date or a time."""
    for (row, column), cell in np.ndenumerate(np.asarray(X, dtype=object)):
        if hasattr(cell, "isoformat"):
            name = _column_name(X, column)
            raise ValueError(
                f"X must have numbers; got {cell!r} in row {row}, column {name}. Convert dates and "
                "times first: (date - date.min()).dt.days, say, has the days since the first"
            )


def _is_word(cell: Any) -> bool:
    """Whether a cell is a string that is not read as a number."""
    if not isinstance(cell, str | bytes):
        return False
    try:
        float(cell)
    except ValueError:
        return True
    return False


def _words(X: Any, estimator: str) -> str:
    """Say where X (n, p) has strings, and what to put in front of an estimator."""
    cells = np.asarray(X, dtype=object)
    if cells.ndim != 2:
        return f"X must be a table of numbers, of shape (rows, features); got {said(X)}"
    words = np.asarray(np.frompyfunc(_is_word, 1, 1)(cells), bool)
    columns = np.flatnonzero(words.any(axis=0))
    row = int(np.argmax(words[:, columns[0]]))
    names = [_column_name(X, each) for each in columns.tolist()]
    return (
        "X must have numbers; could not convert string to float: "
        f"{said(cells[row, columns[0]])} in row {row}, column {names[0]}. Encode columns of "
        "categories first, make_pipeline(make_column_transformer((OneHotEncoder("
        f'handle_unknown="ignore", sparse_output=False), [{", ".join(names)}]), '
        f'remainder="passthrough"), {estimator}()) with sklearn.compose, sklearn.pipeline and '
        "sklearn.preprocessing"
    )


def combined_weights(
    sample_weight: Any, class_weight: dict[Any, float] | str | None, X: Any, y: np.ndarray
) -> np.ndarray:
    """Product of the weights of the rows and of their classes, shape (n,)."""
    if not (class_weight is None or isinstance(class_weight, dict) or class_weight == "balanced"):
        raise ValueError(f'class_weight must be a dict, "balanced" or None; got {class_weight!r}')
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64)
    weights = check_row_weights(weights, len(y), name="sample_weight")
    if class_weight is not None:
        weights = weights * compute_sample_weight(class_weight, y)
        weights = check_row_weights(weights, len(y), name="sample_weight times class_weight")
    return weights


class KernelInputs:
    """Mixin of estimators with parameters ``kernel``, ``standardize`` and ``class_weight``."""

    kernel: Any
    standardize: Any
    class_weight: Any
    scaling_: Scaling | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.pairwise = is_precomputed(self.kernel)
        return tags

    def _validated(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """Return rows as scikit-learn checks them, in float64.

        Its errors for NaN and strings in rows are replaced by ones that name the transformer that
        is missing, and those for infinity and dates by ones that say where they are.
        """
        try:
            return validate_data(self, X, *args, dtype=np.float64, **kwargs)
        except TypeError as error:
            if scipy.sparse.issparse(X):
                raise TypeError(
                    f"{error} A OneHotEncoder in front returns one with sparse_output=False."
                ) from None
            if hasattr(X, "columns"):
                _check_no_dates(X)
            raise
        except ValueError as error:
            if is_precomputed(self.kernel):
                raise
            name = type(self).__name__
            if str(error).startswith("Input X contains NaN"):
                raise ValueError(_missing_values(X, name)) from None
            if str(error).startswith("Input X contains infinity"):
                raise ValueError(_infinite_values(X)) from None
            if str(error).startswith("could not convert string to float"):
                raise ValueError(_words(X, name)) from None
            raise

    def _checked_data(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows of positive weight, class index and weight of each; learn the classes.

        ``kept_rows_`` has the indices of these rows, or None if they are all rows.
        """
        try:
            X, labels = self._validated(X, y, ensure_min_samples=2)
            check_classification_targets(labels)
        except (TypeError, ValueError) as error:
            if not str(error).startswith("X ") and y is not None:
                as_labels(y)  # says which label is missing or of another type
            raise
        y = labels
        check_no_missing_labels(y)
        precomputed = is_precomputed(self.kernel)
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(
                f'X must be the square Gram matrix with kernel="precomputed"; got shape {X.shape}'
            )
        weights = combined_weights(sample_weight, self.class_weight, X, y)
        kept = weights > 0
        X = X[np.ix_(kept, kept)] if precomputed else X[kept]
        lost = np.setdiff1d(y, y[kept])
        y, weights = y[kept], weights[kept]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            of_weight = "" if kept.all() else " of positive weight"
            raise ValueError(
                f"y must have at least 2 classes{of_weight}; got 1 class, {said(self.classes_[0])}"
            )
        if len(lost):
            names = ", ".join(map(said, lost))
            warnings.warn(
                f"sample_weight or class_weight is 0 for all rows of {names}: the model leaves out "
                "and never predicts these classes",
                stacklevel=3,
            )
        self.kept_rows_ = None if kept.all() else np.flatnonzero(kept)
        return X, labels, weights

    def _learn_inputs(self, X: np.ndarray, weights: np.ndarray | None = None) -> None:
        """Learn the scaling of the features, by ``standardize``."""
        how = None if is_precomputed(self.kernel) else as_standardize(self.standardize)
        self.scaling_ = None if how is None else learn(X, how, weights)

    def in_original_units(self, rows: np.ndarray) -> np.ndarray:
        """Return standardised rows (n, p) in the units of the data."""
        rows = np.asarray(rows)
        return rows if self.scaling_ is None else self.scaling_.invert(rows)

    def _standardized(self, X: np.ndarray) -> np.ndarray:
        """Return checked rows as the kernel sees them."""
        return X if self.scaling_ is None else self.scaling_.apply(X)

    def checked_rows(self, X: Any) -> np.ndarray:
        """Check new rows (m, p), and return them in the units of the data, in float64."""
        X = self._validated(X, reset=False)
        if self.kept_rows_ is not None and is_precomputed(self.kernel):
            X = X[:, self.kept_rows_]
        return X

    def standardized_rows(self, X: Any) -> np.ndarray:
        """Check new rows (m, p), and return them as the kernel of the fitted model sees them."""
        return self._standardized(self.checked_rows(X))
