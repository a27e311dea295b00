"""Lists the variables in Keras' HDF5 files; `keras_h5` runs this module as a program.

HDF5's library may crash or hang on the strings in a damaged file, so another process reads them
first. This module imports nothing else from the package, since that would import Keras.
"""

import signal
import sys
from collections.abc import Iterator
from typing import Any

LONGEST_SECONDS = 120  # for a busy machine; usually, reading the names takes less than one
DIGEST = "vit_keras_sha256"  # the attribute with the SHA-256 of the variables


def names(file: Any) -> tuple[dict[str, str], str | None]:
    """Reads the names of the variables in an open `h5py.File`.

    Returns:
        The path of each dataset by its layers and key, and the SHA-256 in the file, or None.

    Raises:
        ValueError: As in `datasets`, or the name of a layer is not text.
    """
    members, digest = dict(_members(file)), file.attrs.get(DIGEST)
    arrays = datasets(members["layers"]) if "layers" in members else ()
    variables = {k: array.name for k, array in arrays if "/seed_generator/" not in array.name}
    return variables, None if digest is None else str(digest)


def datasets(group: Any) -> Iterator[tuple[str, Any]]:
    """Yields each dataset below a group once for each of its names.

    Yields:
        The names of its layers and its key, joined by "/", and the `h5py.Dataset`.

    Raises:
        ValueError: A group occurs in two places, or an item is neither a group nor an array of
            numbers in this file.
    """
    import h5py

    groups: list[tuple[Any, tuple[str, ...]]] = [(group, ())]
    seen = set()
    while groups:
        group, layers = groups.pop()
        if (place := h5py.h5o.get_info(group.id).addr) in seen:
            raise ValueError(f"it holds the group {group.name[:60]} in two places")
        seen.add(place)
        members = dict(_members(group))
        layers += _layer_name(members.get("vars"))
        for key, item in members.items():
            if isinstance(item, h5py.Group):
                groups.append((item, layers))
                continue
            is_array = getattr(item, "shape", None) is not None
            has_numbers = is_array and (item.dtype.kind in "fiub" or item.dtype == "V2")  # bfloat16
            if not has_numbers or item.external or item.is_virtual:
                raise ValueError(f"{item.name} must be an array of numbers in this file")
            yield "/".join((*layers, key)), item


def _members(group):
    """Yields (key, group or dataset) pairs."""
    import h5py

    if not isinstance(group, h5py.Group):
        raise ValueError(f"{group.name} must be a group of variables")
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"it holds the link {group.name}/{key}, which leads elsewhere")
        yield key, group[key]


def _layer_name(variables):
    """Returns the name of the layer that variables (or None) belong to, as a tuple."""
    if variables is None or "name" not in variables.attrs:
        return ()
    name = variables.attrs["name"]
    if not isinstance(name, str) or name.encode("utf-8", "replace").decode() != name:
        raise ValueError(f"The name of {variables.name} must be text")
    return (name,)


def main(path: str) -> None:
    """Reads all attributes of a file and its `names`, and prints what is wrong with them."""
    import h5py

    if hasattr(signal, "alarm"):
        signal.alarm(LONGEST_SECONDS)  # in case the waiting process was killed
    try:
        with h5py.File(path, "r") as file:
            file.visititems(lambda name, item: dict(item.attrs) and None)
            names(file)
    except Exception as error:
        print(str(error).strip().partition("\n")[0][:200] or type(error).__name__)


if __name__ == "__main__":
    main(*sys.argv[1:])
