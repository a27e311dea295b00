"""Tensors in `.weights.h5` and `.keras` files, under the names that Keras' layers have.

Keras numbers the variables of a layer and names groups by class; the layers' names are attributes.
`layers/encoder_block_1/mlp/dense_0/vars/0` reads as `encoderblock_1/MlpBlock_3/Dense_0/0`.
"""

import contextlib
import json
import math
import os
import zipfile

from vit_keras.weights.containers.tensors import DamagedFile, as_float, check_claim


class KerasTensors:
    """The variables of a model's layers; those of an optimizer or a metric are left out."""

    def __init__(self, path: str):
        import h5py

        self.path, self.stack = path, contextlib.ExitStack()
        try:
            source, self.metadata = self._source(path)
            self.data = {}
            for part in (source, *self._head_beside(path)):
                file = self.stack.enter_context(h5py.File(part, "r"))
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
        """What h5py opens, and the `config.json` of a `.keras` file, as text."""
        if not path.endswith(".keras"):
            return path, {}
        archive = self.stack.enter_context(zipfile.ZipFile(path))
        check_claim(path, sum(entry.file_size for entry in archive.infolist()))
        config = archive.read("config.json").decode()
        return self.stack.enter_context(archive.open("model.weights.h5")), {"config": config}

    @staticmethod
    def _head_beside(path):
        """The file that a preset of KerasHub keeps its head in."""
        folder, name = os.path.split(path)
        head = os.path.join(folder, "task.weights.h5")
        return [head] if name == "model.weights.h5" and os.path.isfile(head) else []

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
        """(key, group or dataset) pairs, none of which is a link elsewhere."""
        import h5py

        for key in group:
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
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


KERAS_CONFIG = "keras"  # under which a checkpoint's config has the model's


def model_config(metadata: dict) -> dict:
    """The model's config in a `.keras` file, empty for a `.weights.h5`."""
    try:
        return json.loads(metadata.get("config", "{}")).get("config", {})
    except (ValueError, AttributeError):
        return {}
