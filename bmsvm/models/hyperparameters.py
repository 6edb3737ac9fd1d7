"""Hyperparameters of the hierarchy, as frozen data."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import jax


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Hyperparameters:
    """Constants of the priors, eqs. (15)-(17).

    The defaults are the paper's (:data:`PAPER`) except for the noise variance, which is near 1.
    Labels say little about the overall scale of the scores. Under the paper's prior it grows large
    where classes are far apart, and chains mix badly (docs/classifier.md).

    ``1/sigma2 ~ Gamma(noise_shape/2, rate noise_rate/2)``,
    ``tau ~ Gamma(precision_shape/2, rate precision_rate/2)``,
    ``b0_j ~ N(0, sigma2/intercept_precision)``.
    """

    noise_shape: float = 20.0
    """a_sigma."""
    noise_rate: float = 20.0
    """b_sigma."""
    precision_shape: float = 4.0
    """a_tau."""
    precision_rate: float = 0.1
    """b_tau."""
    intercept_precision: float = 1000.0
    """eta."""

    def validate(self) -> Hyperparameters:
        """Return self if every value is a positive finite number, else raise ``ValueError``."""
        for field in fields(self):
            value = getattr(self, field.name)
            try:
                good = math.isfinite(value) and value > 0
            except (TypeError, OverflowError):
                good = False
            if not good:
                raise ValueError(
                    f"hyperparameters.{field.name} must be a positive finite number; got {value!r}"
                )
        return self


DEFAULT = Hyperparameters()
"""Default values: a_sigma=20, b_sigma=20, a_tau=4, b_tau=0.1, eta=1000."""

PAPER = Hyperparameters(noise_shape=3.0, noise_rate=10.0)
"""The values of section 5: a_sigma=3, b_sigma=10, a_tau=4, b_tau=0.1, eta=1000."""
