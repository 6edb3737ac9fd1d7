"""Groups of ArviZ's container: arrays with named dimensions, and the container of both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray

from bmsvm._arviz import arviz
from bmsvm._version import __version__

DIMS = {
    "intercept": ("class",),
    "scores": ("row", "class"),
    "latent": ("row", "class"),
    "functions": ("row", "class"),
    "p": ("row", "class"),
    "y": ("row",),
    "X": ("row", "feature"),
    "row_weight": ("row",),
}
"""Dims of the variables, after chain and draw; those of others are numbered."""

Coords = dict[str, np.ndarray]
Groups = dict[str, xarray.Dataset]


def labels_of_dims(labels: Mapping[str, Any], classes: Any, rows: Any, features: Any) -> Coords:
    """Return the labels of each dimension: those given, or these defaults.

    A dimension whose default is None does not exist.
    """
    coords = {}
    defaults = {"class": classes, "row": rows, "feature": features}
    for (argument, given), (name, default) in zip(labels.items(), defaults.items(), strict=True):
        if default is None:
            if given is not None:
                raise ValueError(f"{argument} cannot be labelled: the run has no names for them")
            continue
        values = np.asarray(default if given is None else given)
        if values.shape != (len(default),):
            raise ValueError(
                f"{argument} must have one label for each {name}, {len(default)} of them; "
                f"got shape {values.shape}"
            )
        coords[name] = values
    return coords


def dataset(
    values: Mapping[str, Any], coords: Coords, shape: tuple[int, ...] = ()
) -> xarray.Dataset:
    """Make a group; ``shape`` is the number of chains and draws if the values are draws.

    Weights, whose basis is the model's own, are left out.
    """
    outer = ("chain", "draw")[: len(shape)]
    n_features = len(coords.get("feature", ()))
    variables = {}
    for name, value in values.items():
        if name in ("weights", "coefficients"):
            continue
        array = np.asarray(value)
        inner = array.shape[len(shape) :]
        dims = DIMS.get(name, tuple(f"{name}_dim_{i}" for i in range(len(inner))))
        if name == "lengthscale" and inner == (n_features,):
            dims = ("feature",)
        variables[name] = ((*outer, *dims), array)
    used = {dim for dims, _ in variables.values() for dim in dims}
    every = {**dict(zip(outer, map(np.arange, shape), strict=True)), **coords}
    return xarray.Dataset(
        variables,
        coords={name: label for name, label in every.items() if name in used},
        attrs={"inference_library": "bmsvm", "inference_library_version": __version__},
    )


def container(groups: Groups) -> Any:
    """Return ``InferenceData`` of ArviZ 0.x, ``DataTree`` of ArviZ 1.x, without empty groups."""
    kept: Any = {name: group for name, group in groups.items() if group.data_vars}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return xarray.DataTree.from_dict(kept)
    return arviz.InferenceData(**kept)
