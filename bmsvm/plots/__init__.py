"""Plots of fitted models, by Matplotlib (``pip install 'bmsvm[plots]'``).

Every function draws on the axes that it is given, or on new ones, and returns them. Classes differ
in marker and line style as well as in colour; the colours are those of Okabe and Ito, which
colour-blind readers can tell apart.
"""

from bmsvm.plots.confusion import confusion
from bmsvm.plots.margins import margins
from bmsvm.plots.parameters import lengthscale, regularization, trace
from bmsvm.plots.regions import decision_regions
from bmsvm.plots.rejection import rejection
from bmsvm.plots.reliability import reliability
from bmsvm.plots.ternary import ternary

__all__ = [
    "confusion",
    "decision_regions",
    "lengthscale",
    "margins",
    "regularization",
    "rejection",
    "reliability",
    "ternary",
    "trace",
]
