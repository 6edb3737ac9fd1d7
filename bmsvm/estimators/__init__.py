"""Scikit-learn estimators over the sampler."""

from bmsvm.estimators.classifier import DEFAULT_LENGTHSCALE, BMSVMClassifier

__all__ = ["DEFAULT_LENGTHSCALE", "BMSVMClassifier"]
