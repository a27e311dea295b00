"""The SHA-256 of each tensor, which files of this package carry and loading compares.

The hash of a tensor is the SHA-256 of the line `DTYPE SHAPE`, such as `float32 768,1000`, with the
newline at its end, and then of the elements in C order, little-endian. A file carries the hashes
in one of three places:

- a `Record` in JSON: in the metadata of safetensors, and as a member of PyTorch's archives;
- beside each tensor, with a total of the file: as comments in the directory of an `.npz`, and as
  attributes in HDF5;
- for the members of a `.keras` archive, see `archives.py`.
"""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from vit_keras.weights.containers.checks import DamagedFile, as_float, fits

KEY = "vit_keras_sha256"  # of the metadata entry, the member and the attributes
MOST_NAMES = 5  # that a message lists
REMEDY = (
    "Restore it from a copy. If another program changed it on purpose, it must leave out what is "
    f"called {KEY!r} in the file"
)


def tensor_hash(array: np.ndarray) -> str:
    """The SHA-256 of an array's type, shape and elements, as 64 hexadecimal digits."""
    shape = ",".join(map(str, array.shape))
    digest = hashlib.sha256(f"{array.dtype.name} {shape}\n".encode())
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def text_hash(text: str | None) -> str | None:
    """The SHA-256 of a text in UTF-8; None without a text."""
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()


def hashing(tensors: Iterable, hashes: dict[str, str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (name, array) pairs, and adds their hashes to `hashes`."""
    for name, array in tensors:
        hashes[name] = tensor_hash(array)
        yield name, array


@dataclasses.dataclass(frozen=True)
class Record:
    """The hashes of a file.

    Attributes:
        tensors: `{name: hash}`.
        note: The hash of this package's note about the model, or None without a note.
    """

    tensors: dict[str, str]
    note: str | None = None

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes, path: str) -> "Record":
        """Raises DamagedFile unless `text` is what `to_json` writes."""
        try:
            fields = json.loads(text)
            if isinstance(fields["tensors"], dict):
                return cls(fields["tensors"], fields["note"])
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise DamagedFile(f"The hashes in {path!r} are damaged. {REMEDY}")

    def check(self, names: Iterable[str], note: str | None, path: str) -> None:
        """Raises DamagedFile unless the file has these tensors and this note."""
        check_members(self.tensors, names, path, "tensors")
        if text_hash(note) != self.note:
            raise DamagedFile(
                f"{path!r} is damaged: the note about its model has another SHA-256 than when it "
                f"was written. {REMEDY}"
            )


def check_members(hashes: Collection[str], names: Iterable[str], path: str, kind: str) -> None:
    """Raises DamagedFile unless `names` are those that have hashes."""
    present = set(names)
    faults = {
        "missing": [name for name in hashes if name not in present],
        "added": sorted(present - set(hashes)),
    }
    if any(faults.values()):
        listed = "; ".join(f"{what}: {some(names)}" for what, names in faults.items() if names)
        raise DamagedFile(
            f"{path!r} is damaged: it has other {kind} than when it was written ({listed}). "
            f"{REMEDY}"
        )


def total(hashes: dict[str, str]) -> str:
    """The SHA-256 of the lines `HASH  NAME`, in the order of the names."""
    lines = "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes))
    return hashlib.sha256(lines.encode(errors="surrogatepass")).hexdigest()


def marked(digest: str) -> str:
    """The text that holds a hash beside its tensor, or the total of a file."""
    return f"{KEY} {digest}"


def gathered(beside: dict[str, str], of_file: str, path: str) -> dict[str, str]:
    """Compares hashes that lie beside their tensors with the total of the file.

    Args:
        beside: `{name of a tensor: the text beside it}`.
        of_file: The text of the file.
        path: The path of the file.

    Returns:
        `{name: hash}`, which is empty for a file without hashes.

    Raises:
        DamagedFile: If tensors were added, removed or renamed, or if a hash was changed.
    """
    mark = marked("")
    hashes = {
        name: text.removeprefix(mark) for name, text in beside.items() if text.startswith(mark)
    }
    if not hashes and not of_file.startswith(mark):
        return {}
    if hashes:
        check_members(hashes, beside, path, "tensors")
    if of_file != marked(total(hashes)):
        raise DamagedFile(
            f"{path!r} is damaged: its tensors were renamed, added or removed since it was "
            f"written, or their hashes were changed. {REMEDY}"
        )
    return hashes


def check_tensors(path: str, tensors, used: Collection[str], integers: bool = False) -> float:
    """Reads each tensor once, and compares it with its hash.

    Without hashes, only the tensors in `used` are read. Checksums of the container are compared
    while it reads.

    Args:
        path: The path of the file.
        tensors: Its reader.
        used: The names of the tensors that must be finite floating-point numbers.
        integers: Whether those in `used` may be integers as well.

    Returns:
        The largest magnitude in `used`.

    Raises:
        DamagedFile: If a tensor differs from its hash, or has another type.
        ValueError: If a number is not finite.
    """
    damaged, infinite, used, files = [], [], dict.fromkeys(used), tensors.elsewhere
    largest = 0.0
    for name in tensors.shapes if tensors.hashes else used:
        array = tensors.raw(name)
        if tensors.hashes.get(name, "") not in ("", tensor_hash(array)):
            damaged.append(name)
        elif name in used and not (integers and array.dtype.kind in "iub"):
            bound = _largest(as_float(array, name, path))
            infinite += [] if np.isfinite(bound) else [name]
            largest = max(largest, bound)
        del array  # which would keep the last memory map while the next one is opened
    damaged, infinite = (
        [f"{name} in {files[name]!r}" if name in files else name for name in names]
        for names in (damaged, infinite)
    )
    if damaged:
        raise DamagedFile(
            f"{path!r} is damaged: these tensors have another SHA-256 than when they were written: "
            f"{some(damaged)}. {REMEDY}"
        )
    if infinite:
        raise ValueError(
            f"Weights must be finite numbers. Received: {path!r}, where these hold NaN or "
            f"infinity: {some(infinite)}. The training that wrote them may have diverged"
        )
    return largest


def _largest(array):
    """The largest magnitude in an array; NaN if one is in it."""
    return float(np.maximum(array.max(initial=0), -array.min(initial=0)))


def check_fit(arrays: Iterable[tuple[str, np.ndarray, str]], source: str) -> None:
    """Checks numbers before they are assigned.

    Args:
        arrays: The name of each array, its numbers, and the type of its variable.
        source: Where the arrays come from.

    Raises:
        ValueError: If numbers are not finite in the types of their variables.
    """
    if large := [f"{name} as {dtype}" for name, array, dtype in arrays if not fits(array, dtype)]:
        raise ValueError(
            "Weights must be finite in the types of the model's variables. Received: "
            f"{source}, where these are too large: {some(large)}"
        )


def some(names: Collection[str]) -> str:
    """The first names, and how many others there are."""
    first = ", ".join(list(names)[:MOST_NAMES])
    return first if len(names) <= MOST_NAMES else f"{first} and {len(names) - MOST_NAMES} others"
