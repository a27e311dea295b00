"""A checkpoint on disk: its tensors, its format and the `config.json` beside it."""

import contextlib
import dataclasses
import json
import os

from vit_keras.weights.containers.keras_h5 import KERAS_CONFIG, KerasTensors, model_config
from vit_keras.weights.containers.tensors import DamagedFile, NpzTensors, Safetensors, TorchTensors
from vit_keras.weights.formats import registry
from vit_keras.weights.formats.base import Format, Numerics

READERS = {
    ".npz": NpzTensors,
    ".safetensors": Safetensors,
    ".pth": TorchTensors,
    ".pt": TorchTensors,
    ".bin": TorchTensors,
    ".weights.h5": KerasTensors,
    ".keras": KerasTensors,
}
# What a folder's weights are called, the first that exists.
FOLDER_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.weights.h5",
)
CONFIGS = ("config.json", "task.json", "preprocessor_config.json")
NOTE = "vit_keras"  # the entry of a safetensors file's metadata that is ours
LARGEST_CONFIG = 2**24


@dataclasses.dataclass
class WeightFile:
    """An opened file of weights; `names` maps canonical names to the file's."""

    path: str
    tensors: object
    format: Format
    names: dict[str, str]
    config: dict

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by canonical name."""
        return {name: self.tensors.shapes[actual] for name, actual in self.names.items()}

    def read(self, name: str):
        """The tensor of a canonical name."""
        return self.tensors.read(self.names[name])

    @property
    def note(self) -> dict:
        """What this package wrote into the file of the model it came from; empty otherwise."""
        try:
            note = json.loads(self.tensors.metadata.get(NOTE, "{}"))
        except ValueError:
            return {}
        parts = ("architecture", "numerics")
        good = isinstance(note, dict) and all(isinstance(note.get(p), dict) for p in parts)
        return note if good else {}

    def infer(self) -> dict:
        """Arguments of the model that the file and its config give."""
        try:
            found = self.format.infer(self.shapes, self.config)
        except (KeyError, IndexError, TypeError) as error:
            raise ValueError(
                f"{self.path!r} is not a complete {self.format.name} checkpoint: no architecture "
                f"can be read from it (without {error})"
            ) from error
        return {**found, **self.note.get("architecture", {})}

    def numerics(self) -> Numerics | None:
        """How the source computes: the note's, the config's or the format's; None if unknown."""
        numerics = self.format.numerics(self.config)
        note = self.note.get("numerics")
        if note is None:
            return numerics
        try:
            noted = Numerics.from_json(note)
        except (KeyError, TypeError):
            return numerics
        return dataclasses.replace(noted, interpolation=numerics.interpolation)


@contextlib.contextmanager
def open_weight_file(path: str | os.PathLike, source: str | None = None):
    """The `WeightFile` in a file or a folder.

    Raises FileNotFoundError where there is none, ValueError where it is damaged or of no format.
    """
    path, folder = locate(os.fspath(path))
    reader = next((READERS[end] for end in READERS if path.endswith(end)), None)
    if reader is None:
        raise ValueError(f"Weights are read from {', '.join(READERS)} files. Received: {path!r}")
    with contextlib.closing(reader(path)) as tensors:
        form, names = registry.choose(tensors.shapes, source, path)
        config = {**read_config(folder), KERAS_CONFIG: model_config(tensors.metadata)}
        yield WeightFile(path, tensors, form, names, config)


def locate(path: str) -> tuple[str, str]:
    """The file of weights at `path`, and the folder that its config lies in."""
    if os.path.isfile(path):
        return path, os.path.dirname(path)
    if os.path.isdir(path):
        for name in FOLDER_FILES:
            if os.path.isfile(os.path.join(path, name)):
                return os.path.join(path, name), path
        raise FileNotFoundError(
            f"The folder {path!r} has no weights; they are called {' or '.join(FOLDER_FILES)}."
        )
    raise FileNotFoundError(f"There is no file of weights at {path!r}.")


def read_config(folder: str) -> dict:
    """`config.json` of a folder with the other JSON files under their names; empty without."""
    found = {}
    for name in CONFIGS:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.path.getsize(path) <= LARGEST_CONFIG:
            with open(path, encoding="utf-8") as file:
                try:
                    found[name] = json.load(file)
                except ValueError as error:
                    raise DamagedFile(f"{path!r} is not JSON ({error})") from error
    return merge(found)


def merge(files: dict[str, dict]) -> dict:
    """The content of `config.json` with the other files under their names."""
    config = files.get("config.json", {})
    extra = {name: value for name, value in files.items() if name != "config.json"}
    return {**(config if isinstance(config, dict) else {}), **extra}
