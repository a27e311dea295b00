"""Keras' `.weights.h5` and `.keras` files, with tensors under the names of Keras' layers.

Keras numbers the variables of a layer and names groups by class. Layer names are attributes of the
groups, so `layers/encoder_block_1/mlp/dense_0/vars/0` is read as
`encoderblock_1/MlpBlock_3/Dense_0/0`.
"""

import io
import math
import pathlib
import subprocess
import sys
from typing import Any, TypedDict

from vit_keras.support import extras
from vit_keras.support.checks import DamagedFile, parse_json
from vit_keras.weights.containers import archives, checks, h5_names

KERAS_CONFIG = "keras"  # the key of the model's config in the config of a `WeightFile`
NO_FILE = "{!r} is not a Keras file, or is damaged"


class Described(TypedDict, total=False):
    """The only field that is read from the `config.json` in a `.keras` file."""

    config: dict


class KerasTensors(checks.Reader):
    """Reads the variables of a model's layers; leaves out those of optimizers and metrics."""

    def _open(self):
        h5py = extras.require("h5py")
        source: Any = self.path
        if self.path.endswith(".keras"):
            with archives.opened(self.path, "Keras file") as archive:  # compares the checksums
                text = archive.read("config.json")
                source = io.BytesIO(archive.read("model.weights.h5"))
            label = f"The configuration in {self.path!r}"
            self.config = parse_json(text, label, Described)
        else:
            check_names(self.path, NO_FILE.format(self.path))
        with checks.readable(NO_FILE.format(self.path)):
            file = self.stack.enter_context(h5py.File(source, "r"))
            variables, self.digest = h5_names.names(file)
            self.data = {name: file[place] for name, place in variables.items()}
        checks.check_claim(self.path, sum(map(_claimed_bytes, self.data.values())))
        self.shapes = {name: dataset.shape for name, dataset in self.data.items()}

    def raw(self, name):
        with checks.readable(f"{name!r} in {self.path!r} is damaged"):
            return self.data[name][()]


def check_names(path: str, fault: str) -> None:
    """Reads the texts of an HDF5 file in a separate process, since HDF5's library may crash.

    Args:
        path: The file.
        fault: The message for a damaged file.

    Raises:
        DamagedFile: If the file is damaged, or holds anything but a model's variables.
    """
    command = [sys.executable, "-P", h5_names.__file__, path]
    with checks.readable(fault):
        seconds = h5_names.LONGEST_SECONDS
        done = subprocess.run(command, capture_output=True, timeout=seconds, text=True)
        if done.returncode or done.stdout:
            reason = done.stdout.strip() or f"HDF5's library ended with {done.returncode}"
            raise DamagedFile(f"{fault} ({reason})")


def _claimed_bytes(dataset):
    """Returns the bytes that an array takes once read, plus those of one chunk."""
    chunk = math.prod(dataset.chunks or (0,))
    size = dataset.dtype.itemsize
    return math.prod(dataset.shape) * max(size, 4) + chunk * size


def write_with_digest(path: str, memory: io.BytesIO) -> None:
    """Writes a `.weights.h5` that is in memory, with the SHA-256 of its variables as attribute."""
    with extras.require("h5py").File(memory, "r+") as file:
        places = sorted(h5_names.names(file)[0].items())
        file.attrs[h5_names.DIGEST] = checks.digest((k, file[place][()]) for k, place in places)
    pathlib.Path(path).write_bytes(memory.getbuffer())


def write_h5(path: str, groups: dict[str, list], tensors: dict) -> None:
    """Writes tensors into the groups where Keras expects them, with layer names.

    Args:
        path: The `.weights.h5` file.
        groups: `{name of a tensor: [(group, name of its layer or None), …]}`.
        tensors: `{name: array}`; the last part of a name is the number of the variable.
    """
    h5py = extras.require("h5py")
    memory = io.BytesIO()  # a full disk crashes HDF5: see `keras_internals.weights_in_memory`
    with h5py.File(memory, "w") as file:
        for name, nested in groups.items():
            group = file
            for key, layer in nested:
                group = group.require_group(key)
                if layer is not None:
                    group.require_group("vars").attrs["name"] = layer
            group["vars"][name.rpartition("/")[2]] = tensors[name]
        file.require_group("vars")
    write_with_digest(path, memory)
