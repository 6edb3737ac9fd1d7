"""Parameters of scikit-learn's ``SVC`` as those of this package, and back.

``SVC`` has ``gamma``, the inverse width of its Gaussian kernel, and ``C``, the weight of its loss.
Here they are theta, the lengthscale of the kernel, and tau/sigma2, the precision of the prior of
the class functions. docs/coming_from_svc.md has both in an example.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bmsvm._validation import check_count, positive_numbers

__all__ = [
    "C_from_regularization",
    "gamma_from_lengthscale",
    "lengthscale_from_gamma",
    "regularization_from_C",
]


def _positive(name: str, value: ArrayLike) -> np.ndarray:
    """Return an array of positive finite numbers, or raise ``ValueError``."""
    numbers = positive_numbers(value)
    if numbers is None:
        raise ValueError(f"{name} must be positive and finite; got {value!r}")
    return numbers


def lengthscale_from_gamma(gamma: ArrayLike) -> Any:
    r"""Lengthscale theta of the Gaussian kernel whose ``gamma`` in ``SVC`` is given.

    ``SVC`` writes the kernel as :math:`\exp(-\gamma \|x - x'\|^2)`, this package as
    :math:`\exp(-\|x - x'\|^2 / (2\theta^2))`, so that

    .. math:: \theta = \frac{1}{\sqrt{2\gamma}} .

    Both are in units of the features that the kernel sees: the classifier standardises them,
    ``SVC`` does not.

    Parameters
    ----------
    gamma : float or array-like
        ``gamma`` of ``SVC``, positive. ``gamma="scale"`` is ``1 / (p * X.var())``.

    Returns
    -------
    float or ndarray
        theta, of the same shape.

    Examples
    --------
    >>> from bmsvm.conversion import lengthscale_from_gamma
    >>> round(float(lengthscale_from_gamma(1 / 13)), 3)  # "scale" of 13 standardised features
    2.55
    """
    if isinstance(gamma, str) and gamma == "scale":
        raise ValueError(
            "gamma must be positive and finite; got 'scale', which is 1 / (p * X.var()) in SVC "
            "for p features: 1 / p if these are standardised, so that theta is sqrt(p / 2)"
        )
    return 1.0 / np.sqrt(2.0 * _positive("gamma", gamma))


def gamma_from_lengthscale(lengthscale: ArrayLike) -> Any:
    r"""``gamma`` of ``SVC`` for the Gaussian kernel of a given lengthscale theta.

    .. math:: \gamma = \frac{1}{2\theta^2}

    Parameters
    ----------
    lengthscale : float or array-like
        theta, positive, such as ``lengthscale_`` of a classifier with ``standardize="standard"``.

    Returns
    -------
    float or ndarray
        gamma, of the same shape.

    Examples
    --------
    >>> from bmsvm.conversion import gamma_from_lengthscale
    >>> float(gamma_from_lengthscale(2.0))
    0.125
    """
    return 1.0 / (2.0 * _positive("lengthscale", lengthscale) ** 2)


def regularization_from_C(C: ArrayLike, n_classes: int = 2) -> Any:
    r"""Regularisation tau/sigma2, the gamma of the paper's (2), for ``C`` of ``SVC``.

    ``SVC`` minimises, over a function h and an intercept,
    :math:`\frac{1}{2}\|h\|_K^2 + C \sum_i (1 - y_i f(x_i))_+`. Divided by C this is minus the log
    density of a Gaussian process h with covariance :math:`C\,k` under the hinge likelihood. Here a
    class function, one of c that sum to zero, has covariance
    :math:`\left(1 - \frac{1}{c}\right) \frac{\sigma^2}{\tau}\,k`. The two are equal if

    .. math:: \frac{\tau}{\sigma^2} = \frac{c - 1}{c\,C} .

    With two classes this is exact: :class:`bmsvm.MSVMClassifier` with ``gamma`` of 1/(2C) is
    ``SVC``. With more classes ``SVC`` fits one function to each pair of classes, and equal
    variances of the functions are a place to start, not an identity.

    Parameters
    ----------
    C : float or array-like
        ``C`` of ``SVC``, positive.
    n_classes : int
        Number of classes c.

    Returns
    -------
    float or ndarray
        tau/sigma2, of the shape of C: ``gamma`` of :class:`bmsvm.MSVMClassifier`.

    Examples
    --------
    >>> from bmsvm.conversion import regularization_from_C
    >>> float(regularization_from_C(10.0))
    0.05
    """
    check_count("n_classes", n_classes, smallest=2)
    return (n_classes - 1) / (n_classes * _positive("C", C))


def C_from_regularization(regularization: ArrayLike, n_classes: int = 2) -> Any:
    r"""``C`` of ``SVC`` for a regularisation tau/sigma2, such as its posterior draws.

    .. math:: C = \frac{c - 1}{c} \, \frac{\sigma^2}{\tau}

    This is the prior variance of a class function at a row with k(x, x) = 1
    (:func:`regularization_from_C`).

    Parameters
    ----------
    regularization : float or array-like
        tau/sigma2, positive.
    n_classes : int
        Number of classes c.

    Returns
    -------
    float or ndarray
        C, of the same shape.

    Examples
    --------
    >>> from bmsvm.conversion import C_from_regularization
    >>> float(C_from_regularization(0.05))
    10.0
    """
    check_count("n_classes", n_classes, smallest=2)
    return (n_classes - 1) / (n_classes * _positive("regularization", regularization))
