"""safetensors files."""

import os
from typing import Any

from vit_keras.support import extras
from vit_keras.weights.containers.checks import (
    KEY,
    LARGEST_JSON_BYTES,
    DamagedFile,
    Reader,
    digest,
    parse_json,
    readable,
)

NO_FILE = "{!r} is not a safetensors file"
NOTE_KEY = "vit_keras"  # the metadata entry with this package's note
MAPPED_BYTES = 2**22  # a map is renewed after reading so much, since read pages stay in memory


def _require(module, purpose):
    return extras.require(module, extra="weights", purpose=purpose)


class SafetensorsTensors(Reader):
    """Reads safetensors files from memory maps; the library checks the header against the file.

    Pages that a map has read stay in memory until it is closed, so maps are renewed.
    """

    def __init__(self, path: str):
        self.library = _require("safetensors", "Reading safetensors")
        _require("ml_dtypes", "Reading safetensors")  # teaches NumPy bfloat16
        super().__init__(path)
        self.file: Any = None
        self.left = 0
        _check_header(path)
        with self._opened() as file:
            self.metadata = file.metadata() or {}
            names = file.keys()
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
        if KEY in self.metadata:
            self.digests[path] = self.metadata[KEY], self.metadata.get(NOTE_KEY, "")

    def _opened(self):
        with readable(NO_FILE.format(self.path)):
            return self.library.safe_open(self.path, framework="np")

    def raw(self, name):
        if self.left <= 0:
            self.close()  # before opening another map
            self.file, self.left = self._opened(), MAPPED_BYTES
        try:
            array = self.file.get_tensor(name)
        except (AttributeError, KeyError, TypeError, self.library.SafetensorError) as error:
            kind = self.file.get_slice(name).get_dtype()
            raise DamagedFile(
                f"Weights must be floating-point. Received: {name!r} of {kind} in {self.path!r}"
            ) from error
        self.left -= array.nbytes
        return array

    def close(self):
        self.file, self.left = None, 0


def _check_header(path):
    """Refuses a header that would take far more memory than the file, or repeats a name."""
    with readable(NO_FILE.format(path)), open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > os.path.getsize(path) - 8:
            raise DamagedFile(f"{NO_FILE.format(path)}: it is shorter than its header says")
        if not isinstance(
            parse_json(file.read(min(length, LARGEST_JSON_BYTES + 1)), f"The header of {path!r}"),
            dict,
        ):
            raise DamagedFile(f"{NO_FILE.format(path)}: its header is not an object")


def write_safetensors(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs, with `note` and the SHA-256 in the metadata."""
    library = _require("safetensors.numpy", "Writing safetensors")
    arrays = dict(tensors)
    metadata = {"format": "pt", NOTE_KEY: note, KEY: digest(sorted(arrays.items()), note)}
    library.save_file(arrays, path, metadata=metadata)
