"""Groups of ArviZ's container, which is another in each of its versions."""

from typing import Any

import xarray


def groups_of(data: Any) -> dict[str, Any]:
    """Return the datasets of ``InferenceData`` or ``DataTree`` by the names of the groups."""
    if isinstance(data, xarray.DataTree):
        return {name: child.to_dataset() for name, child in data.children.items()}
    return {name: data[name] for name in data.groups()}
