"""What a cell of the table holds: error, log-loss, R-hat and time, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpyro.diagnostics import split_gelman_rubin

from bmsvm.experiments.stack import Drawn

__all__ = ["SMALLEST_PROBABILITY", "r_hats", "scored", "summary_of_traces"]

SMALLEST_PROBABILITY = 1e-12
"""Floor of a probability whose logarithm is taken."""


def scored(
    predicted: Sequence[np.ndarray],
    truth: Sequence[np.ndarray],
    probabilities: Sequence[np.ndarray] | None,
) -> dict[str, Any]:
    """Error and log-loss with their standard errors.

    Parameters
    ----------
    predicted, truth
        Classes of the tested rows of each part.
    probabilities
        Class probabilities (m, c) of each part; None where a method has none.

    Returns
    -------
    dict
        Standard errors are over rows where each part tests one, and over parts otherwise.
    """
    errors = [float(np.mean(guess != true)) for guess, true in zip(predicted, truth, strict=True)]
    found: dict[str, Any] = {
        "n_tested": int(sum(map(len, truth))),
        "errors": errors,
        **_mean("error", errors),
        "log_loss": None,
        "log_loss_standard_error": None,
    }
    if probabilities is not None:
        losses = [
            float(np.mean(-np.log(np.maximum(p[np.arange(len(t)), t], SMALLEST_PROBABILITY))))
            for p, t in zip(probabilities, truth, strict=True)
        ]
        found |= _mean("log_loss", losses)
    return found


def _mean(name: str, values: Sequence[float]) -> dict[str, float | None]:
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return {name: float(np.mean(values)), f"{name}_standard_error": spread}


def r_hats(traces: dict[str, np.ndarray]) -> np.ndarray:
    """Largest split R-hat of each fit, shape (lanes,), of traces (chains, draws, lanes, ...)."""
    each = []
    for values in traces.values():
        values = values.reshape(*values.shape[:3], -1).astype(np.float64)
        with np.errstate(all="ignore"):
            r_hat = np.asarray(split_gelman_rubin(values))
        still = np.ptp(values, axis=(0, 1)) == 0  # a lengthscale that the grid has no neighbour for
        each.append(np.where(still, 1.0, np.where(np.isfinite(r_hat), r_hat, np.inf)).max(-1))
    return np.max(each, axis=0)


def summary_of_traces(drawn: Drawn) -> dict[str, Any]:
    """R-hat over the fits, where sigma2 stood first and last, and theta."""
    found = r_hats(drawn.traces)
    log_noise = drawn.traces["log_noise_variance"]
    tenth = max(log_noise.shape[1] // 10, 1)
    summary: dict[str, Any] = {
        "r_hat_median": float(np.median(found)),
        "r_hat_largest": float(np.max(found)),
        "noise_variance_first_tenth": float(np.exp(np.median(log_noise[:, :tenth]))),
        "noise_variance_last_tenth": float(np.exp(np.median(log_noise[:, -tenth:]))),
    }
    if "log_lengthscale" in drawn.traces:
        quantiles = np.quantile(np.exp(drawn.traces["log_lengthscale"]), (0.05, 0.5, 0.95))
        summary["lengthscale_quantiles"] = quantiles.tolist()
    return summary
