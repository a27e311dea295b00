"""Lists the variables in Keras' HDF5 files; also a separate program that `keras_h5` runs.

HDF5's library may crash or loop on the texts of a damaged file, so another process reads them
first. This module imports nothing else from the package, since that would import Keras.
"""

import signal
import sys
from typing import Any

LONGEST_SECONDS = 120  # on a busy machine; reading the names takes less than one
DEEPEST_GROUPS = 50  # nested; models have up to 10
DIGEST = "vit_keras_sha256"  # the attribute with the SHA-256 of the variables


def names(file: Any) -> dict[str, Any]:
    """Reads the texts of an open `h5py.File`.

    Returns:
        `variables`, the path of each dataset by the names of its layers; `model`, the name of the
        model and its groups; and `digest`, the SHA-256 in the file, or None.

    Raises:
        ValueError: A group occurs in two places, a link leads elsewhere, or a name is not text.
    """
    members = dict(_members(file))
    layers = members.get("layers", {})
    variables = dict(_variables_below(layers, (), set(), 0)) if "layers" in members else {}
    groups = [key for key in layers if not key.startswith("input_layer")]
    name = " ".join(_layer_name(members["vars"])) if "vars" in members else ""
    digest = file.attrs.get(DIGEST)
    return {
        "variables": variables,
        "model": f"{name} {str(groups)[:60]}",
        "digest": None if digest is None else str(digest),
    }


def _members(group):
    """Yields (key, group or dataset) pairs."""
    import h5py

    if not isinstance(group, h5py.Group):
        raise ValueError(f"{group.name} must be a group of variables")
    for key in group:
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"it holds a link {group.name}/{key} elsewhere")
        yield key, group[key]


def _variables_below(group, prefix, seen, depth):
    import h5py

    if (place := h5py.h5o.get_info(group.id).addr) in seen or depth > DEEPEST_GROUPS:
        raise ValueError(
            f"it holds a group at two places, or more than {DEEPEST_GROUPS} nested groups: "
            f"{group.name[:60]}"
        )
    seen.add(place)
    for key, item in _members(group):
        if key in ("vars", "seed_generator") or not isinstance(item, h5py.Group):
            continue
        variables = dict(_members(item)).get("vars")
        here = prefix if variables is None else (*prefix, *_layer_name(variables))
        for index, dataset in () if variables is None else _members(variables):
            if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
                raise ValueError(f"{dataset.name} must be an array")
            yield "/".join((*here, index)), dataset.name
        yield from _variables_below(item, here, seen, depth + 1)


def _layer_name(variables):
    """Returns the name of the layer that variables belong to, as a tuple; empty without one."""
    if "name" not in variables.attrs:
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
