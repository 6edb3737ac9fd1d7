"""What every data set shares: the object it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from bmsvm._validation import check_flag


def pack(
    data: np.ndarray,
    target: np.ndarray,
    *,
    feature_names: Sequence[str],
    target_names: Sequence[str],
    description: str,
    as_frame: bool,
    return_X_y: bool,
    filename: str | None = None,
) -> Any:
    """Return the data as scikit-learn's loaders do.

    Parameters
    ----------
    data : (n, p)
    target : (n,), class indices
    feature_names : p names
    target_names : c names, in the order of the class indices
    description : the text for ``DESCR``
    as_frame : return pandas objects in place of arrays
    return_X_y : return the pair ``(data, target)`` in place of the Bunch
    filename : the file the data were read from, if any

    Returns
    -------
    Bunch or tuple
    """
    check_flag("as_frame", as_frame)
    check_flag("return_X_y", return_X_y)
    X: Any = data
    y: Any = target
    frame: Any = None
    if as_frame:
        import pandas as pd

        frame = pd.DataFrame(data, columns=list(feature_names)).assign(target=target)
        X, y = frame[list(feature_names)], frame["target"]
    if return_X_y:
        return X, y
    bunch = Bunch(
        data=X,
        target=y,
        frame=frame,
        target_names=np.array(target_names),
        feature_names=list(feature_names),
        DESCR=description,
    )
    if filename is not None:
        bunch.filename = filename
    return bunch
