"""The files of a checkpoint, whose state one process or several have written.

`state.npz` is what the first process writes, `state_NNNNN.npz` what another one does, and
`meta.json` holds their checksums and its own. A variable is one array, or several parts of it that
lie beside each other: `model/00003@0:16,8:64` holds the rows 0 to 15 and the columns 8 to 63.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import re
import shutil
import typing
from collections.abc import Callable

import numpy as np

from vit_keras.files import replacing_folder, sha256
from vit_keras.json_files import read_json

PAUSES = (1, 2, 4, 8, 0)  # seconds in which a network file system shows what others renamed
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CHECKSUM, AT = "checksum", "@"
PART = re.compile(r"state_\d{5,}\.npz")


class Meta(typing.TypedDict):
    """What `meta.json` must hold, and the checksums of other processes' files."""

    step: int
    sha256: str
    variables: dict[str, list]
    files: typing.NotRequired[dict[str, str]]
    rows: typing.NotRequired[int]
    rollbacks: typing.NotRequired[int]


def is_checkpoint(path: str | os.PathLike) -> bool:
    """Whether `path` is the folder of a step among the checkpoints of a run.

    Args:
        path: A file, a folder, or an address, which need not exist.

    Returns:
        Whether the folder has the files of a checkpoint, which may be damaged.

    Example:
        >>> is_checkpoint("runs/pets/model.keras")
        False
    """
    return pathlib.Path(path, "meta.json").is_file() and pathlib.Path(path, "state.npz").is_file()


def write(
    folder: pathlib.Path,
    arrays: dict[str, np.ndarray],
    meta: dict,
    collect: Callable[[pathlib.Path], dict[str, str]] | None = None,
) -> None:
    """Writes `state.npz` and `meta.json` into `folder`.

    Args:
        folder: The folder of the checkpoint, which exists.
        arrays: The variables, or their parts, by name.
        meta: What `meta.json` holds beside the checksums.
        collect: Moves other processes' files into `folder`, and returns their checksums.
    """
    with open(folder / "state.npz", "wb") as file:
        save_arrays(file, arrays)
    meta = {**meta, "sha256": sha256(folder / "state.npz")}
    if collect is not None:
        meta["files"] = collect(folder)
    (folder / "meta.json").write_text(json.dumps({**meta, CHECKSUM: _checksum(meta)}))


@contextlib.contextmanager
def replacing_checkpoint(checkpoint: pathlib.Path, arrays: dict[str, np.ndarray]):
    """`replacing_folder(checkpoint)`, with an error for a full disk that says what to do."""
    with full_disk_explained(checkpoint, arrays), replacing_folder(checkpoint) as new:
        yield new


@contextlib.contextmanager
def full_disk_explained(checkpoint: pathlib.Path, arrays: dict[str, np.ndarray]):
    """Says for a full disk what a checkpoint with these arrays takes, and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        folder, size = checkpoint.parent, sum(array.nbytes for array in arrays.values())
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno)}: checkpoint {checkpoint.name} takes {size / 1e6:.1f} MB, "
            f"and {shutil.disk_usage(folder).free / 1e6:.1f} MB are free. The earlier checkpoints "
            "are whole. Free some space and run the same command again: it resumes from there",
            str(folder),
        ) from error


def read_meta(path: pathlib.Path) -> dict:
    """Reads `meta.json` of the checkpoint at `path`, and compares all checksums.

    Raises:
        OSError, KeyError, TypeError: The checkpoint is missing or damaged.
        ValueError: The checkpoint is damaged.
    """
    meta = read_json(path / "meta.json", Meta)
    if meta.pop(CHECKSUM, "") != _checksum(meta) or path.name != f"step_{meta['step']:09d}":
        raise ValueError("its meta.json was changed")
    if other := [name for name in meta.get("files", {}) if not PART.fullmatch(name)]:
        raise ValueError(f"its meta.json names {other[0]!r} as a part")
    for name, digest in files_of(meta).items():
        if sha256(path / name) != digest:
            raise ValueError(f"the checksum of {name} differs")
    return meta


def files_of(meta: dict) -> dict[str, str]:
    """The files that hold the state of a checkpoint, and their checksums."""
    return {"state.npz": meta["sha256"], **meta.get("files", {})}


class State(contextlib.AbstractContextManager):
    """Reads the arrays of a checkpoint, of which no file is read as a whole.

    Args:
        path: The folder of the checkpoint.
        meta: What `read_meta` returns.

    Example:
        with State(path, read_meta(path)) as state:
            kernel = state["model/00003"]
    """

    def __init__(self, path: pathlib.Path, meta: dict):
        self.path = path
        self.variables = meta["variables"]
        self._exit_stack = contextlib.ExitStack()
        self._whole: dict[str, typing.Any] = {}
        self._parts: dict[str, list] = {}
        for name in files_of(meta):
            file = self._exit_stack.enter_context(np.load(path / name, allow_pickle=False))
            for key in file.files:
                variable, at, bounds = key.partition(AT)
                if at:
                    self._parts.setdefault(variable, []).append((bounds, key, file))
                else:
                    self._whole.setdefault(variable, file)

    def __exit__(self, *exception):
        self._exit_stack.close()

    def __contains__(self, name: str) -> bool:
        return name in self._whole or name in self._parts

    def __getitem__(self, name: str) -> np.ndarray:
        """The whole array of a variable; bfloat16 as the upper halves of float32."""
        if name in self._whole:
            return self._whole[name][name]
        shape = tuple(self.variables[name][1])
        held = [(bounds, key, file[key]) for bounds, key, file in self._parts[name]]
        array, filled = np.empty(shape, held[0][2].dtype), np.zeros(shape, bool)
        for bounds, key, part in held:
            index = tuple(slice(*map(int, span.split(":"))) for span in bounds.split(","))
            if len(index) != len(shape) or array[index].shape != part.shape:
                raise ValueError(f"{self.path} is damaged: its part {key} is {part.shape}")
            array[index], filled[index] = part, True
        if not filled.all():
            numbers = f"{filled.sum()} of {filled.size} numbers"
            raise ValueError(f"{self.path} is damaged: its parts of {name} have {numbers}")
        return array


def save_arrays(file: typing.IO[bytes], arrays: dict[str, np.ndarray]) -> None:
    """Writes arrays as `.npz`, those of bfloat16 as uint16."""
    storable = lambda array: array.view("uint16") if array.dtype.name == "bfloat16" else array
    np.savez(file, **{name: storable(array) for name, array in arrays.items()})


def _checksum(meta):
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()
