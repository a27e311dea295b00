"""The base class and the checks of all readers, and the reader of safetensors files."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import numpy as np

from vit_keras.support import extras
from vit_keras.support.checks import LARGEST_JSON_BYTES, DamagedFile, listed, parse_json
from vit_keras.support.files import check_arrived
from vit_keras.weights.containers.h5_names import DIGEST as KEY

# A file may claim this many times its size, since zeros compress well.
LARGEST_EXPANSION = 4
# Claims up to this many bytes are allowed for any file size.
ALWAYS_ALLOWED_BYTES = 2**26


def check_claim(path: str, claimed_bytes: int) -> None:
    """Checks that a file's tensors do not claim far more bytes than the file has.

    Raises:
        DamagedFile: If they claim far more.
    """
    size = os.path.getsize(path)
    if claimed_bytes > max(LARGEST_EXPANSION * size, ALWAYS_ALLOWED_BYTES):
        raise DamagedFile(
            f"Weights may take at most {LARGEST_EXPANSION} times the bytes of their file. "
            f"Received: {path!r}, {size} bytes that claim {claimed_bytes} bytes of tensors; the "
            "file is not opened"
        )


@contextlib.contextmanager
def readable(fault: str) -> Iterator[None]:
    """Turns any error that a library raises for a damaged file into DamagedFile.

    Args:
        fault: The message, such as "'a.npz' is damaged".

    Raises:
        DamagedFile: On any error except another DamagedFile, a missing package, and a missing or
            protected file.
    """
    try:
        yield
    except (DamagedFile, ImportError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:
        raise DamagedFile(f"{fault} ({reason_of(error)})") from error


def reason_of(error: Exception) -> str:
    """Returns the first line of an error's message, or the name of its class."""
    return str(error).strip().partition("\n")[0][:200] or type(error).__name__


def as_float(array: np.ndarray, name: str, path: str) -> np.ndarray:
    """Converts half-precision arrays to float32; returns float32 and float64 unchanged.

    NumPy stores bfloat16 as the type `|V2`.

    Raises:
        DamagedFile: If the array has another type.
    """
    if array.dtype == np.dtype("V2"):
        array = array.view("bfloat16")  # a NumPy type of ml_dtypes, which Keras needs
    if array.dtype.name in ("float16", "bfloat16"):
        return array.astype(np.float32)
    if array.dtype not in (np.float32, np.float64):
        raise DamagedFile(f"Weights must be floats. Received: {array.dtype} {name!r} in {path!r}")
    return array


def fits(array: np.ndarray, dtype: str) -> bool:
    """Whether all numbers are finite in the type of a variable, such as "float16"."""
    if np.asarray(array).dtype.kind in "iub":
        return True
    with np.errstate(over="ignore"):  # Keras imports ml_dtypes, which gives NumPy "bfloat16"
        return bool(np.isfinite(np.asarray(array).astype(dtype)).all())


# Errors that parsers and constructors raise for content of an unknown form.
FORM = (TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def named_errors(path: str | os.PathLike) -> Iterator[None]:
    """Names the file in errors of the `with` statement; turns those in `FORM` into DamagedFile."""
    name = os.fspath(path)
    try:
        yield
    except DamagedFile:
        raise
    except ValueError as error:
        if name in str(error) and not isinstance(error, UnicodeError):
            raise
        raise ValueError(f"{name!r}: {error}") from error
    except FORM as error:
        raise DamagedFile(
            f"{name!r} or a file beside it is incomplete, or has a field of a type that no project "
            f"writes ({type(error).__name__}: {error})"
        ) from error


REMEDY = (
    "Restore it from a copy. If another program changed it on purpose, that program must remove "
    f"the entry {KEY!r} from the file"
)


def digest(arrays: Iterable[tuple[str, np.ndarray]], note: str = "") -> str:
    """Returns the SHA-256 of a note and of (name, array) pairs, sorted by name.

    This package's safetensors and HDF5 files record it. For each tensor, the digest covers the line
    `NAME DTYPE SHAPE`, such as `head/kernel float32 768,1000`, and the elements in C order,
    little-endian. Archives have checksums of their members instead.
    """
    result = hashlib.sha256(note.encode())
    for name, array in arrays:
        _add(result, name, array)
    return result.hexdigest()


def _add(result, name, array):
    line = f"\n{name} {array.dtype.name} {','.join(map(str, array.shape))}\n"
    result.update(line.encode(errors="surrogatepass"))
    result.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


class Reader:
    """An open file of tensors; subclasses open it in `_open`, and push what to close onto `stack`.

    Attributes:
        shapes: The shape of each tensor, by name.
        config: The configuration of the model in the file; empty without one.
        note: This package's note about the model; "" without one.
        digest: This package's SHA-256 of the note and the tensors, or None.
        parts: The files that hold the tensors, if there are several.
    """

    def __init__(self, path: str):
        self.path = path
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.config: dict[str, Any] = {}
        self.note = ""
        self.digest: str | None = None
        self.parts: list[Reader] = []
        self.stack = contextlib.ExitStack()
        check_arrived(path)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        raise NotImplementedError

    def raw(self, name: str) -> np.ndarray:
        """Returns a tensor in the file's type; checks the container's checksum."""
        raise NotImplementedError

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as a floating-point array."""
        return as_float(self.raw(name), name, self.path)

    def read_all(self, names: Iterable[str]) -> dict[str, np.ndarray]:
        """Returns tensors as floating-point arrays, by name."""
        return {name: self.read(name) for name in names}

    def close(self) -> None:
        """Closes the file."""
        self.stack.close()


class Together(Reader):
    """Reads several files as one, which must have the tensors `expected`, each of them once.

    In messages, `path` stands for all files.
    """

    def __init__(
        self,
        path: str,
        paths: Iterable[str],
        reader: Callable[[str], Reader],
        expected: Iterable[str] = (),
    ):
        self.paths, self.reader, self.expected = paths, reader, expected
        self.holders: dict[str, Reader] = {}
        super().__init__(path)

    def _open(self):
        for path in self.paths:
            part = self.stack.enter_context(contextlib.closing(self.reader(path)))
            self.parts.append(part)
            if twice := sorted(self.shapes.keys() & part.shapes):
                raise DamagedFile(
                    f"The files of {self.path!r} must have each tensor once. Received: "
                    f"{listed(twice)} twice. Download them again"
                )
            self.shapes |= part.shapes
            self.holders |= dict.fromkeys(part.shapes, part)
        if absent := sorted({*self.expected} - self.shapes.keys()):
            raise DamagedFile(
                f"{self.path!r} lists tensors that its files do not have: {listed(absent)}. "
                "Download them again"
            )

    def raw(self, name):
        return self.holders[name].raw(name)


def check_tensors(tensors: Reader, used: Collection[str] | None = None) -> float:
    """Reads each tensor once, and checks the checksums, the SHA-256, types and numbers.

    Args:
        tensors: The open file.
        used: The names of the tensors that must hold finite floating-point numbers; None for all,
            which may then also be integers.

    Returns:
        The largest magnitude in `used`.

    Raises:
        DamagedFile: If a tensor or a file is damaged, or if a tensor has another type.
        ValueError: If a number is not finite.
    """
    checked, infinite, largest = set(tensors.shapes if used is None else used), [], 0.0
    for part in tensors.parts or [tensors]:
        hashed = hashlib.sha256(part.note.encode())
        for name in sorted(
            part.shapes if part.digest is not None else checked & part.shapes.keys()
        ):
            array = part.raw(name)
            if part.digest is not None:
                _add(hashed, name, array)
            if name in checked and (used is not None or array.dtype.kind not in "iub"):
                array = as_float(array, name, part.path)
                bound = float(np.maximum(array.max(initial=0), -array.min(initial=0)))  # NaN of NaN
                if not np.isfinite(bound):
                    infinite.append(f"{name} in {part.path!r}" if tensors.parts else name)
                largest = max(largest, bound)
            del array  # otherwise it keeps the last memory map open
        if part.digest not in (None, hashed.hexdigest()):
            raise DamagedFile(
                f"{part.path!r} is damaged: its SHA-256 is not the recorded one. {REMEDY}"
            )
    if infinite:
        raise ValueError(
            f"Weights must be finite numbers. Received: {tensors.path!r}, where these hold NaN or "
            f"infinity: {listed(infinite)}. The training that wrote them may have diverged"
        )
    return largest


def check_fit(arrays: Iterable[tuple[str, np.ndarray, str]], source: str) -> None:
    """Checks numbers before they are assigned.

    Args:
        arrays: The name of each array, its numbers, and the type of its variable.
        source: The origin of the arrays, for messages.

    Raises:
        ValueError: If numbers are not finite in the types of their variables.
    """
    if large := [f"{name} as {dtype}" for name, array, dtype in arrays if not fits(array, dtype)]:
        raise ValueError(
            "Weights must be finite in the types of the model's variables. Received: "
            f"{source}, where these are too large: {listed(large)}"
        )


NO_FILE = "{!r} is not a safetensors file"
NOTE_KEY = "vit_keras"  # the metadata entry with this package's note
# A map is renewed after this many bytes, since pages once read stay in memory. Opening a map of a
# PyTorch file unpickles the names of all tensors, which takes 13 ms for S/16; twice the bytes would
# halve the time but use more memory.
MAPPED_BYTES = 2**22


class SafetensorsTensors(Reader):
    """Reads safetensors files from memory maps; the library checks the header against the file.

    Pages that a map has read stay in memory until it is closed, so maps are renewed.
    """

    file: Any = None
    left = 0  # bytes to read before the map is renewed

    def _open(self):
        self.library = extras.require("safetensors")
        # The library checks the header, but not whether it is too long or repeats a name.
        with readable(NO_FILE.format(self.path)), open(self.path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            text = file.read(min(length, LARGEST_JSON_BYTES + 1))
            header = parse_json(text, f"The header of {self.path!r}")
        self._mapped()  # checks the header against the file
        metadata = header.pop("__metadata__", None) or {}
        self.note, self.digest = metadata.get(NOTE_KEY, ""), metadata.get(KEY)
        self.shapes = {name: tuple(tensor["shape"]) for name, tensor in header.items()}

    def _mapped(self):
        with readable(NO_FILE.format(self.path)):
            return self.library.safe_open(self.path, framework="np")

    def raw(self, name):
        if self.left <= 0:
            self.close()  # before opening another map
            self.file, self.left = self._mapped(), MAPPED_BYTES
        with readable(f"Weights must be floats. Received: {name!r} in {self.path!r}"):
            array = self.file.get_tensor(name)
        self.left -= array.nbytes
        return array

    def close(self):
        self.file, self.left = None, 0


def write_safetensors(path: str, tensors, note: str) -> None:
    """Writes (name, array) pairs, with `note` and the SHA-256 in the metadata."""
    library = extras.require("safetensors.numpy")
    arrays = dict(tensors)
    metadata = {"format": "pt", NOTE_KEY: note, KEY: digest(sorted(arrays.items()), note)}
    library.save_file(arrays, path, metadata=metadata)
