"""Joint posterior predictive draws: functions, scores, probabilities and labels at new rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bmsvm.inference.posterior import ROWS, Posterior, fill
from bmsvm.models.couplings import class_map
from bmsvm.models.likelihoods import class_probabilities

__all__ = ["PredictiveDraws", "predictive_draws"]


class PredictiveDraws(NamedTuple):
    """One draw of everything for each posterior draw.

    functions
        f, shape (s, m, c).
    scores
        z ~ N(f, sigma2), shape (s, m, c).
    probabilities
        p(y | z), shape (s, m, c).
    labels
        Class indices y, shape (s, m).
    """

    functions: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray
    labels: np.ndarray


def predictive_draws(
    posterior: Posterior, rows: np.ndarray, seed: int, *, progress: str | None = None
) -> PredictiveDraws:
    """Draw functions, scores and labels at rows (m, p).

    A posterior draw is one function of all rows, up to the remainder, which the training rows do
    not determine: that is drawn for each row on its own, and so are the noise of the scores and
    the labels. The random numbers of a row depend on the seed and on its place among the rows.
    """
    n_draws, n_classes, m = posterior.n_draws, posterior.n_classes, len(rows)
    k = posterior.points[0].shape[1]
    to_classes = class_map(posterior.coupling, n_classes)
    noise_scale = np.sqrt(posterior.samples["noise_variance"])
    ratio = noise_scale / np.sqrt(posterior.samples["precision"])
    functions = np.empty((n_draws, m, n_classes))
    scores, uniform = np.empty_like(functions), np.empty((n_draws, m))
    known = replace(posterior, remainder=False)
    for part in known.evaluate(rows, probabilities=False, progress=progress):
        block, _ = fill(rows[part.rows])
        spread = np.empty((ROWS, n_draws))
        for stage in posterior.stages:
            _, root = posterior.features(stage, block)
            spread[:, stage.draws] = root[:, None] * ratio[stage.draws]
        for i in range(len(part.functions)):
            row = part.rows.start + i
            random = np.random.default_rng((seed, row))
            remainder, noise = random.standard_normal((2, n_draws, k)) @ to_classes
            functions[:, row] = part.functions[i].T + spread[i, :, None] * remainder
            scores[:, row] = functions[:, row] + noise_scale[:, None] * noise
            uniform[:, row] = random.uniform(size=n_draws)
    with jax.enable_x64(True):
        chances = np.asarray(class_probabilities(jnp.asarray(scores), posterior.likelihood))
    below = np.cumsum(chances, axis=-1)[..., :-1] <= uniform[..., None]
    return PredictiveDraws(functions, scores, chances, below.sum(axis=-1))
