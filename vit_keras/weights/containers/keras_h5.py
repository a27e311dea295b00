"""Keras' `.weights.h5` and `.keras` files, with tensors under the names of Keras' layers.

Keras numbers the variables of a layer and names groups by class. The names of the layers are
attributes of the groups, so `layers/encoder_block_1/mlp/dense_0/vars/0` is read as
`encoderblock_1/MlpBlock_3/Dense_0/0`.
"""

import contextlib
import json
import math
import os
import zipfile
from typing import Any

from vit_keras import extras
from vit_keras.files import replacing
from vit_keras.weights.containers.checks import (
    DamagedFile,
    as_float,
    check_archive_claim,
    check_claim,
)

KERAS_CONFIG = "keras"  # the key of the model's config in the config of a `WeightFile`


def _h5py(purpose):
    return extras.require("h5py", extra="weights", purpose=purpose)


class KerasTensors:
    """Reads the variables of a model's layers; leaves out those of optimizers and metrics."""

    def __init__(self, path: str):
        self.h5py = _h5py("Reading Keras files")
        self.path, self.stack = path, contextlib.ExitStack()
        try:
            source, self.metadata = self._source(path)
            self.data: dict[str, Any] = {}
            for h5_source in (source, *head_beside(path)):
                file = self.stack.enter_context(self.h5py.File(h5_source, "r"))
                if "layers" in file:
                    self._collect(file["layers"], ())
            check_claim(path, sum(math.prod(d.shape) * 8 for d in self.data.values()))
        except (OSError, zipfile.BadZipFile, KeyError, UnicodeDecodeError, RuntimeError) as error:
            self.stack.close()
            raise DamagedFile(f"{path!r} is no Keras file, or is damaged ({error})") from error
        except BaseException:
            self.stack.close()
            raise
        self.shapes = {name: dataset.shape for name, dataset in self.data.items()}

    def _source(self, path):
        """Returns what h5py opens, and the text of a `.keras` file's `config.json`."""
        if not path.endswith(".keras"):
            return path, {}
        archive = self.stack.enter_context(zipfile.ZipFile(path))
        check_archive_claim(path, archive)
        config = archive.read("config.json").decode()
        return self.stack.enter_context(archive.open("model.weights.h5")), {"config": config}

    def _collect(self, group, prefix):
        for key, item in self._members(group):
            if key in ("vars", "seed_generator") or not hasattr(item, "keys"):
                continue
            inside = dict(self._members(item))
            variables = inside.get("vars")
            name = None if variables is None else variables.attrs.get("name")
            here = prefix if name is None else (*prefix, str(name))
            for index, dataset in self._members(variables or {}):
                self.data["/".join((*here, index))] = self._checked(dataset)
            self._collect(item, here)

    def _members(self, group):
        """Yields (key, group or dataset) pairs; raises if one of them is a link elsewhere."""
        for key in group:
            if not isinstance(group.get(key, getlink=True), self.h5py.HardLink):
                raise DamagedFile(f"{self.path!r} holds a link {group.name}/{key} elsewhere")
            yield key, group[key]

    def _checked(self, dataset):
        elsewhere = dataset.external or dataset.is_virtual
        if elsewhere or not (dataset.dtype.kind == "f" or dataset.dtype == "V2"):
            raise DamagedFile(
                f"Weights must be floating-point and in their file. Received: {dataset.name} of "
                f"{dataset.dtype} in {self.path!r}"
            )
        return dataset

    def read(self, name):
        return as_float(self.data[name][()], name)

    def verify(self):
        for name, dataset in self.data.items():
            try:
                dataset[()]
            except (OSError, zipfile.BadZipFile) as error:
                raise DamagedFile(f"{name!r} in {self.path!r} is damaged ({error})") from error

    def close(self):
        self.stack.close()


def head_beside(path: str) -> list[str]:
    """The file beside `path` that holds the head of a KerasHub preset; empty without one."""
    folder, name = os.path.split(path)
    head = os.path.join(folder, "task.weights.h5")
    return [head] if name == "model.weights.h5" and os.path.isfile(head) else []


def model_config(metadata: dict) -> dict:
    """The model's config in a `.keras` file's metadata; empty for a `.weights.h5`."""
    try:
        return json.loads(metadata.get("config", "{}")).get("config", {})
    except (ValueError, AttributeError):
        return {}


def write_h5(path: str, groups: dict[str, list], tensors: dict) -> None:
    """Writes tensors in the groups where Keras looks for them, with its layers' names.

    Args:
        path: The `.weights.h5` file.
        groups: `{name of a tensor: [(group, name of its layer or None), …]}`.
        tensors: `{name: array}`; the last part of a name is the number of the variable.
    """
    h5py = _h5py("Writing Keras files")
    with replacing(path) as temporary, h5py.File(temporary, "w") as file:
        for name, nested in groups.items():
            group = file
            for key, layer in nested:
                group = group.require_group(key)
                if layer is not None:
                    group.require_group("vars").attrs["name"] = layer
            group["vars"][name.rpartition("/")[2]] = tensors[name]
        file.require_group("vars")
