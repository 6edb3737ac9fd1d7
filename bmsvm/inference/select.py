"""The lengthscale set from the data, by the name of the way."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.typing import ArrayLike

from bmsvm import kernels
from bmsvm._validation import check_count
from bmsvm.inference.cross_validation import CrossValidation, cross_validate
from bmsvm.inference.evidence import EvidenceMaximum, maximize_evidence
from bmsvm.inference.modes import ModeCrossValidation, cross_validate_modes

__all__ = ["SELECTIONS", "Selection", "select_lengthscale"]

Selection = EvidenceMaximum | CrossValidation | ModeCrossValidation

SELECTIONS: dict[str, Callable[..., Selection]] = {
    "marginal-likelihood": maximize_evidence,
    "cv": cross_validate,
    "mode-cv": cross_validate_modes,
}

OF_THE_MODEL = {
    *("X", "y", "rng_key", "kernel", "coupling", "likelihood", "hyperparameters", "row_weights"),
    "spare_rows",
}


def select_lengthscale(
    method: str,
    X: ArrayLike,
    y: ArrayLike,
    *,
    kernel: Any,
    options: Mapping[str, Any] | None = None,
    spare_rows: int = 0,
    **model: Any,
) -> Selection:
    """Choose the lengthscale of a named kernel; what is returned has it as ``lengthscale``.

    Parameters
    ----------
    method
        ``"marginal-likelihood"``, ``"cv"`` or ``"mode-cv"``.
    X, y
        Rows (n, p) and labels (n,).
    kernel, **model
        The model; see :func:`bmsvm.prepare`.
    spare_rows
        See :func:`bmsvm.prepare`; for ways that leave chains to go on from.
    options
        ``seed`` (default 0), and any argument of :func:`maximize_evidence`,
        :func:`cross_validate` or :func:`cross_validate_modes` that is not of the model.
    """
    if not isinstance(kernel, str) or kernel not in kernels.STATIONARY:
        raise ValueError(
            f"lengthscale={method!r} needs a kernel that has one: kernel must be one of "
            f"{', '.join(map(repr, kernels.STATIONARY))}; got {kernel!r}"
        )
    chosen = SELECTIONS[method]
    if options is not None and not isinstance(options, Mapping):
        raise ValueError(f"lengthscale_options must be a dict; got {options!r}")
    given = dict(options or {})
    allowed = {*inspect.signature(chosen).parameters, "seed"} - OF_THE_MODEL
    unknown = sorted(set(map(str, given)) - allowed)
    if unknown:
        raise ValueError(
            f"lengthscale_options may hold, for lengthscale={method!r}, {sorted(allowed)}; "
            f"got {unknown} too"
        )
    seed = given.pop("seed", 0)
    check_count('lengthscale_options["seed"]', seed, smallest=0)
    if "spare_rows" in inspect.signature(chosen).parameters:
        model["spare_rows"] = spare_rows
    return chosen(X, y, rng_key=jax.random.key(seed), kernel=kernel, **model, **given)
