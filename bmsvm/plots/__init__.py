"""Pictures of fitted models, by Matplotlib (``pip install 'bmsvm[plots]'``).

Every function draws on the axes that it is given, or on new ones, and returns them. Classes differ
in marker and line style as well as in colour, and the colours are those of Okabe and Ito, which the
colour-blind tell apart.
"""

from bmsvm.plots.chains import trace
from bmsvm.plots.confusion import confusion
from bmsvm.plots.lengthscale import lengthscale
from bmsvm.plots.margins import margins
from bmsvm.plots.regions import decision_regions
from bmsvm.plots.regularization import regularization
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
