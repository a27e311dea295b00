"""What other processes than the first add to a checkpoint, beside its folder until it is whole."""

import os
import pathlib
import threading
import time

import numpy as np

from vit_keras.files import naming, replacing, sha256, write_text
from vit_keras.training.checkpoint_files import PAUSES, full_disk_explained, save_arrays

PENDING = ".part-"
POLL = 0.05  # seconds between two looks for what another process is writing


def write_part(checkpoint: pathlib.Path, arrays: dict[str, np.ndarray], process: int) -> None:
    """Writes what another process than the first adds to a checkpoint, beside its folder.

    Args:
        checkpoint: The folder of the checkpoint, which need not exist yet.
        arrays: Parts of variables, by their names with the bounds.
        process: The number of the process.
    """
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    path = _pending(checkpoint, process)
    with full_disk_explained(checkpoint, arrays), replacing(path) as temporary:
        with open(temporary, "wb") as file:
            save_arrays(file, arrays)
        digest = sha256(temporary)
    write_text(path.with_suffix(".sha256"), digest)


def remove_part(checkpoint: pathlib.Path, process: int) -> None:
    """Removes what a killed process has left of its part, so that it is not taken for a new one."""
    path = _pending(checkpoint, process)
    for name in (path, path.with_suffix(".sha256")):
        with naming(checkpoint, name):
            name.unlink(missing_ok=True)


def collect_parts(
    checkpoint: pathlib.Path, folder: pathlib.Path, processes: list[int], written: threading.Event
) -> dict[str, str]:
    """Moves what `write_part` wrote into `folder`; returns the checksums by the files' names.

    Args:
        checkpoint: The folder that the checkpoint will have.
        folder: The folder in which it is put together.
        processes: The numbers of the processes that write a part.
        written: Set when they have said that they are done.

    Raises:
        ValueError: A part does not appear within 15 seconds after `written` is set.
    """
    checksums = {}
    for process in processes:
        path, name = _pending(checkpoint, process), f"state_{process:05d}.npz"
        noted = path.with_suffix(".sha256")
        if not _appear(path, noted, written):
            raise ValueError(
                "All processes must see the same `workdir`, on a disk that the machines share. "
                f"Received: {str(path.parent)!r}, without {path.name!r} of process {process}"
            )
        checksums[name] = noted.read_text()
        os.rename(path, folder / name)
        noted.unlink()
    return checksums


def remove_pending(checkpoint: pathlib.Path) -> None:
    """Removes what killed processes have left of the parts of this checkpoint and earlier ones."""
    for path in checkpoint.parent.glob(f"{PENDING}*"):
        if path.name.removeprefix(PENDING)[: len(checkpoint.name)] <= checkpoint.name:
            path.unlink(missing_ok=True)


def _appear(path, noted, written):
    """Waits for a part and its checksum; returns whether they are there."""
    seen = lambda: path.exists() and noted.exists()
    while not written.wait(POLL):
        if seen():
            return True
    for pause in PAUSES:
        if seen():
            return True
        time.sleep(pause)
    return False


def _pending(checkpoint, process):
    return checkpoint.with_name(f"{PENDING}{checkpoint.name}-{process:05d}.npz")
