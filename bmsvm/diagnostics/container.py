"""ArviZ's container, of either version, as datasets by the names of their groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import arviz
import numpy as np
import xarray

from bmsvm._version import __version__

__all__ = ["STATISTICS", "Labels", "container", "dataset", "groups_of"]

STATISTICS = {
    "accept_prob": "acceptance_rate",
    "step_size": "step_size",
    "num_steps": "n_steps",
    "lengthscale_accept_prob": "lengthscale_acceptance_rate",
}
"""What the sampler says of a sweep, and what ArviZ calls it."""

DIMS = ("chain", "draw")


class Labels(NamedTuple):
    """Labels of the classes (c,), rows (n,) and features (p,) as given; None where they are not."""

    classes: Any = None
    rows: Any = None
    features: Any = None

    def coords(
        self, *, classes: Any = None, rows: Any = None, features: Any = None
    ) -> dict[str, np.ndarray]:
        """Return the labels of each dimension: what was given, or these where nothing was.

        The defaults say how many there have to be; a dimension that has none is left out.
        """
        coords = {}
        defaults = {"classes": classes, "rows": rows, "features": features}
        singular = {"classes": "class", "rows": "row", "features": "feature"}
        for argument, default in defaults.items():
            given, name = getattr(self, argument), singular[argument]
            if default is None:
                if given is not None:
                    raise ValueError(f"{argument} cannot be labelled: the run says nothing of them")
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
    values: Mapping[str, tuple[tuple[str, ...], Any]],
    coords: Mapping[str, np.ndarray],
    *,
    drawn: bool = True,
) -> xarray.Dataset:
    """Make a group of variables, each with its dims; coordinates of no use to it are left out.

    Parameters
    ----------
    values
        Dims and values by name; those of draws come behind chain and draw.
    coords
        Labels of the dimensions.
    drawn
        Whether the values begin with the dims chain and draw.
    """
    variables = {
        name: ((*(DIMS if drawn else ()), *dims), np.asarray(value))
        for name, (dims, value) in values.items()
    }
    named = {dim for dims, _ in variables.values() for dim in dims}
    sizes = {
        dim: size
        for dims, value in variables.values()
        for dim, size in zip(dims, value.shape, strict=True)
    }
    own = {dim: np.arange(sizes[dim]) for dim in DIMS if dim in sizes}
    return xarray.Dataset(
        variables,
        coords={**own, **{name: label for name, label in coords.items() if name in named}},
        attrs={"inference_library": "bmsvm", "inference_library_version": __version__},
    )


def container(groups: Mapping[str, xarray.Dataset]) -> Any:
    """Return ``InferenceData`` of ArviZ 0.x, ``DataTree`` of ArviZ 1.x; empty groups left out."""
    kept = {name: group for name, group in groups.items() if group.data_vars}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return xarray.DataTree.from_dict(kept)
    return arviz.InferenceData(**kept)  # type: ignore[arg-type]


def groups_of(data: Any) -> dict[str, xarray.Dataset]:
    """Return the datasets of a container."""
    if isinstance(data, xarray.DataTree):
        return {name: child.to_dataset() for name, child in data.children.items()}
    return {name: data[name] for name in data.groups()}
