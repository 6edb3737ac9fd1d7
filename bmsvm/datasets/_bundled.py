"""Data sets that come as files: wine (scikit-learn's copy), glass and vehicle (ours)."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Any

import numpy as np
from sklearn import datasets as sklearn_datasets

from bmsvm._validation import check_flag
from bmsvm.datasets._bunch import pack

GLASS_TYPES = {
    "1": "building_windows_float_processed",
    "2": "building_windows_non_float_processed",
    "3": "vehicle_windows_float_processed",
    "5": "containers",
    "6": "tableware",
    "7": "headlamps",
}
"""UCI's type codes; type 4 (vehicle windows, not float processed) has no sample."""

GLASS_DESCR = """\
Glass Identification
--------------------
214 samples, 6 classes, 9 features: the refractive index (RI) and the content of eight oxides
by the name of the element (Na, Mg, Al, Si, K, Ca, Ba, Fe; percent by weight). The class is what
the glass was made for. Class sizes: 70, 76, 17, 13, 9, 29.

Source: German, B. (1987). Glass Identification [Dataset]. UCI Machine Learning Repository.
https://doi.org/10.24432/C5WW2P
Licence: CC BY 4.0, https://creativecommons.org/licenses/by/4.0/
Changes: the identifier column is left out, a header line is added.
"""

VEHICLE_DESCR = """\
Statlog (Vehicle Silhouettes)
-----------------------------
846 silhouettes of model vehicles seen from many angles, 18 shape features. Four classes: bus
(218), opel (212), saab (217), van (199). With classes=3, opel and saab are one class, car (429).

Source: Mowforth, P. and Shepherd, B. Statlog (Vehicle Silhouettes) [Dataset]. UCI Machine
Learning Repository. https://doi.org/10.24432/C5HG6N
The data were gathered at the Turing Institute, Glasgow, by J. P. Siebert (1986-87).
Licence: CC BY 4.0, https://creativecommons.org/licenses/by/4.0/
Changes: the parts are joined into one file, a header line with short names is added.
"""


def _read(filename: str) -> tuple[list[str], np.ndarray, list[str]]:
    """Return the feature names, the features (n, p) and the labels, which are the last column."""
    text = (files("bmsvm.datasets") / "data" / filename).read_text(encoding="utf-8")
    header, *rows = csv.reader(text.splitlines())
    data = np.array([row[:-1] for row in rows], dtype=np.float64)
    return header[:-1], data, [row[-1] for row in rows]


def load_wine(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load wine: 178 samples, 13 features, 3 classes (scikit-learn's copy).

    Parameters
    ----------
    as_frame : bool
        Return pandas objects in place of arrays.
    return_X_y : bool
        Return ``(data, target)`` in place of the Bunch.

    Returns
    -------
    Bunch
        ``data`` (178, 13), ``target`` (178,) in 0..2, ``target_names``, ``feature_names``,
        ``frame`` (``None`` unless ``as_frame``) and ``DESCR``.
    """
    check_flag("as_frame", as_frame)
    check_flag("return_X_y", return_X_y)
    return sklearn_datasets.load_wine(as_frame=bool(as_frame), return_X_y=bool(return_X_y))


def load_glass(*, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load glass identification (UCI): 214 samples, 9 features, 6 classes.

    Parameters
    ----------
    as_frame : bool
        Return pandas objects in place of arrays.
    return_X_y : bool
        Return ``(data, target)`` in place of the Bunch.

    Returns
    -------
    Bunch
        ``data`` (214, 9), ``target`` (214,) in 0..5, ``target_names``, ``feature_names``,
        ``frame`` (``None`` unless ``as_frame``), ``DESCR`` and ``filename``.
    """
    feature_names, data, labels = _read("glass.csv")
    codes = list(GLASS_TYPES)
    return pack(
        data,
        np.array([codes.index(label) for label in labels]),
        feature_names=feature_names,
        target_names=list(GLASS_TYPES.values()),
        description=GLASS_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
        filename="glass.csv",
    )


def load_vehicle(*, classes: int = 4, as_frame: bool = False, return_X_y: bool = False) -> Any:
    """Load vehicle silhouettes (UCI, Statlog): 846 samples, 18 features, 4 or 3 classes.

    Parameters
    ----------
    classes : {4, 3}
        4 for bus, opel, saab and van; 3 makes one class, car, of opel and saab.
    as_frame : bool
        Return pandas objects in place of arrays.
    return_X_y : bool
        Return ``(data, target)`` in place of the Bunch.

    Returns
    -------
    Bunch
        ``data`` (846, 18), ``target`` (846,) in 0..classes-1, ``target_names``,
        ``feature_names``, ``frame`` (``None`` unless ``as_frame``), ``DESCR`` and ``filename``.
    """
    if isinstance(classes, bool) or classes not in (3, 4):
        raise ValueError(f"classes must be 4, or 3 to merge opel and saab; got {classes!r}")
    feature_names, data, labels = _read("vehicle.csv")
    if classes == 3:
        labels = ["car" if label in ("opel", "saab") else label for label in labels]
    target_names, target = np.unique(labels, return_inverse=True)
    return pack(
        data,
        target,
        feature_names=feature_names,
        target_names=target_names.tolist(),
        description=VEHICLE_DESCR,
        as_frame=as_frame,
        return_X_y=return_X_y,
        filename="vehicle.csv",
    )
