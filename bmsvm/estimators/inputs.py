"""What estimators with a kernel do to their inputs: check, leave out, standardise."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from bmsvm._validation import check_no_missing_labels
from bmsvm.estimators.weighting import combined_weights
from bmsvm.kernels import KernelFn
from bmsvm.rows import PiecewiseRows, in_pieces, pieces_of

__all__ = ["KernelInputs", "check_flag"]


def check_flag(name: str, value: object) -> None:
    """Raise ``ValueError`` unless ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False; got {value!r}")


class KernelInputs:
    """Mixin of estimators with parameters ``kernel``, ``standardize`` and ``class_weight``."""

    kernel: Any
    standardize: Any
    class_weight: Any

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.pairwise = self._precomputed(self.kernel)
        return tags

    @staticmethod
    def _precomputed(kernel: KernelFn | str) -> bool:
        return isinstance(kernel, str) and kernel == "precomputed"

    def _reads_in_pieces(self, X: Any) -> bool:
        """Whether X is too much to be copied, and the estimator can do without."""
        return False

    def _pieces_and_labels(self, X: Any, y: Any) -> tuple[PiecewiseRows, np.ndarray]:
        """Return rows that are read in pieces, with their labels."""
        rows = PiecewiseRows(X)
        y = column_or_1d(np.asarray(y), warn=True)
        check_consistent_length(X, y)
        validate_data(self, rows[:2], ensure_min_samples=2)
        return rows, y

    def _checked_data(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return rows of positive weight, class index and weight of each; learn the classes.

        Rows that are left out are remembered in ``_kept``, the numbers of the others, or None.
        """
        if self._reads_in_pieces(X):
            X, y = self._pieces_and_labels(X, y)
        else:
            X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        check_no_missing_labels(y)
        precomputed = self._precomputed(self.kernel)
        if precomputed and X.shape[0] != X.shape[1]:
            raise ValueError(
                f'X must be the square Gram matrix with kernel="precomputed"; got shape {X.shape}'
            )
        weights = combined_weights(sample_weight, self.class_weight, X, y)
        kept = weights > 0
        if isinstance(X, PiecewiseRows):
            X = X if kept.all() else X.taking(np.flatnonzero(kept))
        else:
            X = X[np.ix_(kept, kept)] if precomputed else X[kept]
        y, weights = y[kept], weights[kept]
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            of_weight = "" if kept.all() else " of positive weight"
            raise ValueError(
                f"y must have at least 2 classes{of_weight}; got 1 class, {self.classes_[0]!r}"
            )
        self._kept = None if kept.all() else np.flatnonzero(kept)
        return X, labels, weights

    def _learn_inputs(self, X: Any, weights: np.ndarray | None = None) -> None:
        """Learn the mean and the scale of the features, or that there is nothing to do."""
        self.input_mean_ = self.input_scale_ = None
        if self.standardize and not self._precomputed(self.kernel):
            scaler = StandardScaler()
            if isinstance(X, PiecewiseRows):
                for piece in pieces_of(X):
                    scaler.partial_fit(piece)
            else:
                scaler.fit(X, sample_weight=weights)
            self.input_mean_, self.input_scale_ = scaler.mean_, scaler.scale_

    def _in_units(self, rows: np.ndarray) -> np.ndarray:
        """Rows (n, p) in the units of the data, of what the kernel sees."""
        rows = np.asarray(rows)
        return rows if self.input_mean_ is None else rows * self.input_scale_ + self.input_mean_

    def _as_the_kernel_sees(self, X: Any) -> Any:
        if self.input_mean_ is None:
            return X
        if isinstance(X, PiecewiseRows):
            return X.standardized(self.input_mean_, cast(np.ndarray, self.input_scale_))
        return (X - self.input_mean_) / self.input_scale_

    def _checked_rows(self, X: Any, kernel: KernelFn | str) -> Any:
        """Check new rows (m, p), and make them what the kernel of the fit sees."""
        if in_pieces(X) and not self._precomputed(kernel):
            rows = PiecewiseRows(X)
            validate_data(self, rows[:1], reset=False)
            return self._as_the_kernel_sees(rows)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if self._kept is not None and self._precomputed(kernel):
            X = X[:, self._kept]
        return self._as_the_kernel_sees(X)
