"""Keras' `.weights.h5` and `.keras` files, with tensors under the names of Keras' layers.

Keras numbers the variables of a layer and names groups by class. The names of the layers are
attributes of the groups, so `layers/encoder_block_1/mlp/dense_0/vars/0` is read as
`encoderblock_1/MlpBlock_3/Dense_0/0`.
"""

import contextlib
import io
import math
import os
import zipfile
from typing import Any

from vit_keras import extras
from vit_keras.annotated import is_text, short
from vit_keras.files import replacing
from vit_keras.weights.containers import archives
from vit_keras.weights.containers.checks import (
    DamagedFile,
    as_float,
    check_claim,
    readable,
)
from vit_keras.weights.containers.h5_heaps import check_heaps
from vit_keras.weights.containers.h5_texts import Texts
from vit_keras.weights.containers.tensor_hashes import KEY, check_digest, digest
from vit_keras.weights.json_text import parse_json

KERAS_CONFIG = "keras"  # the key of the model's config in the config of a `WeightFile`
NO_FILE = "{!r} is no Keras file, or is damaged"
DEEPEST_GROUPS = 50  # inside one another; models have up to 10
QUANTIZED = ("int8", "uint8")  # the types of the kernels that Keras quantizes


def _h5py(purpose):
    return extras.require("h5py", extra="weights", purpose=purpose)


class KerasTensors:
    """Reads the variables of a model's layers; leaves out those of optimizers and metrics.

    Args:
        path: A `.weights.h5` or `.keras` file.
        quantized: Whether kernels that Keras quantized are read as well.
    """

    def __init__(self, path: str, quantized: bool = False):
        self.h5py = _h5py("Reading Keras files")
        self.path, self.stack = path, contextlib.ExitStack()
        self.types = QUANTIZED if quantized else ()
        self.archive: zipfile.ZipFile | None = None
        self.data: dict[str, Any] = {}
        self.digests: dict[str, str] = {}  # by the path of the file
        self.elsewhere: dict[str, str] = {}
        try:
            source, self.metadata = self._source(path)
            self._open(source, path)
            for head in head_beside(path):
                self.elsewhere |= dict.fromkeys(self._open(head, head), head)
            check_claim(path, sum(map(_claimed_bytes, self.data.values())))
        except BaseException:
            self.stack.close()
            raise
        self.shapes = {name: dataset.shape for name, dataset in self.data.items()}
        self.recorded = bool(self.digests)

    def _source(self, path):
        """Returns what h5py opens, and the text of a `.keras` file's `config.json`."""
        if not path.endswith(".keras"):
            return path, {}
        with readable(NO_FILE.format(path)):
            return self._in_archive(path)

    def _in_archive(self, path):
        self.archive = self.stack.enter_context(archives.opened(path, "Keras file"))
        archives.verify_members(path, self.archive)  # HDF5's library may crash on damaged ones
        config = self.archive.read("config.json").decode()
        entry = self.archive.getinfo("model.weights.h5")
        stored = entry.compress_type == zipfile.ZIP_STORED
        member: Any = archives.StoredMember(path, entry) if stored else self.archive.open(entry)
        return self.stack.enter_context(member), {"config": config}

    def _open(self, source, path):
        """Opens an HDF5 file; returns the names of its variables."""
        with readable(NO_FILE.format(path)), contextlib.ExitStack() as stack:
            stream = source
            if isinstance(source, str):
                stream = stack.enter_context(open(source, "rb"))
            heaps = check_heaps(stream, repr(path))
            file = self.stack.enter_context(self.h5py.File(source, "r"))
            texts = Texts(file, stream, heaps, repr(path))
            datasets = dict(_variables(file, self.h5py, path, texts))
            self.metadata.setdefault("model", _model(file, _Tree(self.h5py, path, texts)))
            for dataset in datasets.values():
                self._check(dataset, path)
            texts.check(file)
            if KEY in file.attrs:
                self.digests[path] = str(file.attrs[KEY])
        self.data |= datasets
        return list(datasets)

    def _check(self, dataset, path):
        elsewhere, kind = dataset.external or dataset.is_virtual, dataset.dtype
        is_number = kind.kind in "fiub" and kind.name not in QUANTIZED  # `read` refuses integers
        if elsewhere or not (is_number or kind == "V2" or kind.name in self.types):
            raise DamagedFile(
                f"Weights must be floating-point and in their file. Received: {dataset.name} of "
                f"{kind} in {path!r}"
            )

    def raw(self, name):
        with readable(f"{name!r} in {self.elsewhere.get(name, self.path)!r} is damaged"):
            return self.data[name][()]

    def read(self, name):
        return as_float(self.raw(name), name, self.path)

    def verify(self):
        for path, expected in self.digests.items():
            names = [name for name in self.data if self.elsewhere.get(name, self.path) == path]
            check_digest(self, names, expected, path)

    def close(self):
        self.stack.close()


def _variables(file, h5py, path, texts=None):
    """Yields (name, dataset) pairs of the variables of a model's layers; `texts` checks names."""
    if "layers" in file:
        yield from _variables_below(file["layers"], (), _Tree(h5py, path, texts))


class _Tree:
    """The groups of a file, each of which is seen once, so that no path through them is endless."""

    def __init__(self, h5py, path, texts):
        self.h5py, self.path, self.texts, self.seen = h5py, path, texts, set()

    def members(self, group):
        """Yields (key, group or dataset) pairs; raises if one of them is a link elsewhere."""
        if not isinstance(group, self.h5py.Group):
            raise DamagedFile(f"{group.name} in {self.path!r} must be a group of variables")
        for key in group:
            if not isinstance(group.get(key, getlink=True), self.h5py.HardLink):
                raise DamagedFile(f"{self.path!r} holds a link {group.name}/{key} elsewhere")
            yield key, group[key]

    def enter(self, group, depth):
        place = self.h5py.h5o.get_info(group.id).addr
        if place in self.seen or depth > DEEPEST_GROUPS:
            raise DamagedFile(
                f"{self.path!r} holds a group at two places, or more than {DEEPEST_GROUPS} groups "
                f"inside one another: {short(group.name)}"
            )
        self.seen.add(place)


def _variables_below(group, prefix, tree, depth=0):
    tree.enter(group, depth)
    for key, item in tree.members(group):
        if key in ("vars", "seed_generator") or not isinstance(item, tree.h5py.Group):
            continue
        variables = dict(tree.members(item)).get("vars")
        here = prefix if variables is None else (*prefix, *_layer_name(variables, tree))
        for index, dataset in [] if variables is None else tree.members(variables):
            if not isinstance(dataset, tree.h5py.Dataset) or dataset.shape is None:
                raise DamagedFile(f"{dataset.name} in {tree.path!r} must be an array")
            yield "/".join((*here, index)), dataset
        yield from _variables_below(item, here, tree, depth + 1)


def _layer_name(variables, tree):
    """The name of the layer that variables belong to, as a tuple; empty without one."""
    if tree.texts is not None:
        tree.texts.check(variables)
    if "name" not in variables.attrs:
        return ()
    if not is_text(name := variables.attrs["name"]):
        raise DamagedFile(f"The name of {variables.name} in {tree.path!r} must be a text")
    return (name,)


def _model(file, tree):
    """The name of the model in a file and of its groups, which are called after their classes."""
    members = dict(tree.members(file))
    name = _layer_name(members["vars"], tree) if "vars" in members else ()
    groups = [key for key in members.get("layers", ()) if not key.startswith("input_layer")]
    return f"{' '.join(name)} {short(groups)}"


def _claimed_bytes(dataset):
    """The bytes of an array as it is read, and of one of its chunks."""
    chunk = math.prod(dataset.chunks or (0,))
    size = dataset.dtype.itemsize
    return math.prod(dataset.shape) * max(size, 4) + chunk * size


def record_digest(memory: io.BytesIO) -> None:
    """Writes the SHA-256 of the variables into a `.weights.h5` in memory, as an attribute."""
    h5py = _h5py("Writing Keras files")
    with h5py.File(memory, "r+") as file:
        datasets = sorted(dict(_variables(file, h5py, "memory")).items())
        file.attrs[KEY] = digest((name, dataset[()]) for name, dataset in datasets)


def head_beside(path: str) -> list[str]:
    """The file beside `path` that holds the head of a KerasHub preset; empty without one."""
    folder, name = os.path.split(path)
    head = os.path.join(folder, "task.weights.h5")
    return [head] if name == "model.weights.h5" and os.path.isfile(head) else []


def model_config(metadata: dict, path: str) -> dict:
    """The model's config in a `.keras` file's metadata; empty for a `.weights.h5`.

    Raises:
        DamagedFile: If it is none.
    """
    content = parse_json(metadata.get("config", "{}"), f"The configuration in {path!r}")
    config = content.get("config", {}) if isinstance(content, dict) else None
    if not isinstance(config, dict):
        raise DamagedFile(f"The configuration in {path!r} must be a model's")
    return config


def write_h5(path: str, groups: dict[str, list], tensors: dict) -> None:
    """Writes tensors in the groups where Keras looks for them, with its layers' names.

    Args:
        path: The `.weights.h5` file.
        groups: `{name of a tensor: [(group, name of its layer or None), …]}`.
        tensors: `{name: array}`; the last part of a name is the number of the variable.
    """
    h5py = _h5py("Writing Keras files")
    memory = io.BytesIO()  # a full disk ends HDF5, see `keras_internals.weights_in_memory`
    with h5py.File(memory, "w") as file:
        for name, nested in groups.items():
            group = file
            for key, layer in nested:
                group = group.require_group(key)
                if layer is not None:
                    group.require_group("vars").attrs["name"] = layer
            group["vars"][name.rpartition("/")[2]] = tensors[name]
        file.require_group("vars")
    record_digest(memory)
    with replacing(path) as temporary, open(temporary, "wb") as written:
        written.write(memory.getbuffer())
