"""The multicategory support vector machine of Weston and Watkins, and Guermeur."""

from __future__ import annotations

from bmsvm.machines.base import CertifiedMachine
from bmsvm.machines.losses import Loss, weston_watkins

__all__ = ["AltMSVM"]


class AltMSVM(CertifiedMachine):
    """The alternative multicategory machine: Weston and Watkins (1999), Guermeur (2002).

    Class functions that sum to zero minimise ::

        sum_i s_i sum_{j != y_i} (f_j(x_i) - f_{y_i}(x_i) + 1 + d)_+ + gamma/2 tr(W'KW)

    and ``kappa/2 |w0|^2``, with d = 1/(c - 1). The margin is the distance of the codes, 2 for two
    classes; another margin is another gamma. Not Fisher consistent for three classes or more.

    Parameters, attributes and the certified duality gap are those of
    :class:`bmsvm.MSVMClassifier`.

    Examples
    --------
    >>> from bmsvm import AltMSVM
    >>> from bmsvm.datasets import load_wine
    >>> X, y = load_wine(return_X_y=True)
    >>> bool(AltMSVM(lengthscale=3.5, gamma=0.1).fit(X, y).duality_gap_ <= 1e-6)
    True
    """

    def _loss(self, n_classes: int) -> Loss:
        return weston_watkins(n_classes)
