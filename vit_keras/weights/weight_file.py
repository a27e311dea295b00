"""A file of weights: its tensors, its format and the configuration beside it."""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator

from vit_keras.weights.containers import READERS, DamagedFile, Reader
from vit_keras.weights.containers.keras_h5 import KERAS_CONFIG, model_config
from vit_keras.weights.containers.safetensors import NOTE_KEY
from vit_keras.weights.formats import registry
from vit_keras.weights.formats.base import Format, Numerics

# The names that weights have in a folder; the first that exists is read.
FOLDER_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.weights.h5",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
# Where none of them exists, the only file of one of these kinds is read.
OTHER_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
CONFIG_FILES = (
    "config.json",
    "task.json",
    "preprocessor_config.json",
    "open_clip_config.json",
)
LARGEST_CONFIG_BYTES = 2**24
# The types of fields that decide how others are read.
FIELD_TYPES = {
    "architecture": str,
    "architectures": list,
    "id2label": dict,
    "label_names": list,
    "model_args": dict,
    "model_cfg": dict,
    "model_type": str,
    "preprocess_cfg": dict,
    "pretrained_cfg": dict,
    "vision_config": dict,
}


@dataclasses.dataclass
class WeightFile:
    """An open file of weights.

    Attributes:
        path: The path of the file.
        tensors: The reader of its container, see `vit_keras.weights.containers`.
        format: Its row in the table of formats.
        names: `{canonical name: name in the file}`.
        config: The content of the JSON files beside it, or in a `.keras` file.
    """

    path: str
    tensors: Reader
    format: Format
    names: dict[str, str]
    config: dict

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """`{canonical name: shape}`."""
        return {name: self.tensors.shapes[actual] for name, actual in self.names.items()}

    def read(self, name: str):
        """Reads the tensor with a canonical name."""
        return self.tensors.read(self.names[name])

    @property
    def note(self) -> dict:
        """What this package wrote about the model when it made the file; empty otherwise."""
        try:
            note = json.loads(self.tensors.metadata.get(NOTE_KEY, "{}"))
        except ValueError:
            return {}
        keys = ("architecture", "numerics")
        complete = isinstance(note, dict) and all(isinstance(note.get(k), dict) for k in keys)
        return note if complete else {}

    @property
    def called(self) -> str:
        """What the file's project calls the model, in the configuration or the file's name."""
        keys = ("architecture", "model_type", "_name_or_path", "name")
        said = [self.config[key] for key in keys if isinstance(self.config.get(key), str)]
        folder, name = os.path.split(os.path.abspath(self.path))
        return " ".join([*said, *([os.path.basename(folder)] if said else []), name])

    def infer(self) -> dict:
        """The arguments of the model that the file and its configuration say.

        Raises:
            ValueError: If tensors are missing that every model of the format has.
        """
        try:
            with self._reading_config():
                arguments = self.format.infer(self.shapes, self.config)
        except (KeyError, IndexError) as error:
            raise ValueError(
                f"{self.path!r} is not a complete {self.format.name} checkpoint: its architecture "
                f"cannot be read without {error}"
            ) from error
        return {**arguments, **self.note.get("architecture", {})}

    @contextlib.contextmanager
    def _reading_config(self):
        """Fields of another type than their projects write fail in many ways; here by name."""
        try:
            yield
        except (AttributeError, TypeError, OverflowError, ZeroDivisionError) as error:
            raise DamagedFile(
                f"The configuration beside {self.path!r} has a field of another type than "
                f"{self.format.name} writes ({error})"
            ) from error

    def numerics(self) -> Numerics | None:
        """How the source computes, from the note, the configuration, the tensors or the format.

        A note's rules of resizing count where a model had others than the published ones; without
        them the code of the format would resize by its own.

        Returns:
            None if nothing says it, as in this package's own `.weights.h5`.
        """
        with self._reading_config():
            numerics = self.format.numerics(self.config)
            if numerics is not None:
                numerics = self.format.refine(numerics, self.shapes, self.config)
        fields = self.note.get("numerics")
        if fields is None:
            return numerics
        try:
            noted = Numerics.from_json(fields)
        except (KeyError, TypeError):
            return numerics
        except ValueError as error:
            raise DamagedFile(f"The note in {self.path!r} is damaged: {error}") from error
        if numerics is None or noted.resizing != Numerics().resizing:
            return noted
        return dataclasses.replace(noted, resizing=numerics.resizing)


@contextlib.contextmanager
def open_weight_file(path: str | os.PathLike, source: str | None = None) -> Iterator[WeightFile]:
    """Opens a file or a folder of weights.

    Args:
        path: The file or folder.
        source: The name of its format; None detects the format from the names of the tensors.

    Yields:
        The `WeightFile`, which is closed at the end of the `with` statement.

    Raises:
        FileNotFoundError: If there is no such file, or no weights in the folder.
        ValueError: If the file is damaged or of no known format.
        ImportError: If the file needs a package that is not installed.
    """
    path, folder = locate(os.fspath(path))
    reader = next((READERS[end] for end in READERS if path.endswith(end)), None)
    if reader is None:
        raise ValueError(f"Weights are read from {', '.join(READERS)} files. Received: {path!r}")
    with contextlib.closing(reader(path)) as tensors:
        format_row, names = registry.choose(tensors.shapes, source, path)
        config = {**read_config(folder), KERAS_CONFIG: model_config(tensors.metadata)}
        if held := [name for name in format_row.values if name in names]:
            config["values"] = {name: tensors.read(names[name]) for name in held}
        yield WeightFile(path, tensors, format_row, names, config)


def locate(path: str) -> tuple[str, str]:
    """Returns the file of weights at `path` and the folder that its configuration lies in."""
    if os.path.isfile(path):
        return path, os.path.dirname(path)
    if os.path.isdir(path):
        for name in FOLDER_FILES:
            if os.path.isfile(os.path.join(path, name)):
                return os.path.join(path, name), path
        others = [name for name in sorted(os.listdir(path)) if name.endswith(OTHER_SUFFIXES)]
        if len(others) == 1:
            return os.path.join(path, others[0]), path
        raise FileNotFoundError(
            f"A folder of weights must hold {' or '.join(FOLDER_FILES)}. Received: {path!r}, "
            "which has no weights"
        )
    raise FileNotFoundError(f"There is no file of weights at {path!r}.")


def read_config(folder: str) -> dict:
    """Reads a folder's `config.json`, with the other JSON files under their names.

    Returns:
        An empty dictionary if there are no such files.
    """
    contents = {}
    for name in CONFIG_FILES:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.path.getsize(path) <= LARGEST_CONFIG_BYTES:
            with open(path, encoding="utf-8") as file:
                try:
                    contents[name] = json.load(file)
                except (ValueError, RecursionError) as error:
                    raise DamagedFile(f"{path!r} is not JSON ({error})") from error
            _check_types(contents[name], path)
    return merge_configs(contents)


def _check_types(content, path):
    """Raises DamagedFile where a field has another type than projects write."""
    if not isinstance(content, dict):
        raise DamagedFile(f"{path!r} must hold a JSON object. Received: {type(content).__name__}")
    for field, kind in FIELD_TYPES.items():
        if not isinstance(value := content.get(field), (kind, type(None))):
            raise DamagedFile(
                f"`{field}` in {path!r} must be of type {kind.__name__}. Received: {value!r}"
            )


def merge_configs(contents: dict[str, dict]) -> dict:
    """Merges `{file name: content}` into the content of `config.json`; others keep their names."""
    config = contents.get("config.json", {})
    extra = {name: content for name, content in contents.items() if name != "config.json"}
    return {**(config if isinstance(config, dict) else {}), **extra}
