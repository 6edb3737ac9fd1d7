"""Fits of so few draws that a ``ConvergenceWarning`` is right: in any other test it is an error.

A test, or a file of tests, says so by the mark ``few_draws``; a fit shared by tests, by ``with
few_draws():`` around it.
"""

import contextlib
import warnings

from sklearn.exceptions import ConvergenceWarning

FILTER = "ignore::sklearn.exceptions.ConvergenceWarning"
"""The same as a filter of pytest."""


@contextlib.contextmanager
def few_draws():
    """Ignore ``ConvergenceWarning``, and no other warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield
