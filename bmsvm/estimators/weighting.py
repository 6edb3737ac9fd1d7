"""Weights of rows from sample_weight and class_weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.validation import _check_sample_weight

from bmsvm._validation import check_row_weights

__all__ = ["combined_weights"]


def combined_weights(
    sample_weight: Any, class_weight: dict | str | None, X: np.ndarray, y: np.ndarray
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
