"""safetensors files."""

from vit_keras import extras
from vit_keras.weights.containers.checks import DamagedFile, as_float

NOTE_KEY = "vit_keras"  # the metadata entry that holds this package's note


def _require(module, purpose):
    return extras.require(module, extra="weights", purpose=purpose)


class SafetensorsTensors:
    """Reads safetensors files from memory maps; the library compares header and file.

    Each tensor has its own map, because what a map has read stays in memory until the map is
    closed.
    """

    def __init__(self, path: str):
        self.library = _require("safetensors", "Reading safetensors")
        _require("ml_dtypes", "Reading safetensors")  # teaches NumPy bfloat16
        self.path = path
        with self._opened() as file:
            self.metadata = file.metadata() or {}
            names = file.keys()
            self.shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}

    def _opened(self):
        try:
            return self.library.safe_open(self.path, framework="np")
        except self.library.SafetensorError as error:
            raise DamagedFile(f"{self.path!r} is not a safetensors file ({error})") from error

    def read(self, name):
        with self._opened() as file:
            try:
                return as_float(file.get_tensor(name), name)
            except (AttributeError, KeyError, TypeError, self.library.SafetensorError) as error:
                kind = file.get_slice(name).get_dtype()
                raise DamagedFile(
                    f"Weights must be floating-point. Received: {name!r} of {kind} in {self.path!r}"
                ) from error

    def verify(self):
        """Does nothing: the format has no checksum, and the sizes were compared on opening."""

    def close(self):
        """Does nothing: no map stays open."""


def write_safetensors(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs, and `note` into the metadata."""
    library = _require("safetensors.numpy", "Writing safetensors")
    library.save_file(dict(tensors), path, metadata={"format": "pt", NOTE_KEY: note})
