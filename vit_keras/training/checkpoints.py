"""Checkpoints of a run: whole, atomic, verified, the newest few kept.

A checkpoint is a folder `step_NNNNNNNNN` with `state.npz`, all variables of the model (dropout's
seeds too, which `.keras` files leave out) and the optimiser, and `meta.json`. It is written beside
under another name, flushed to the disk and renamed, so that it is there whole or not at all.
"""

import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import warnings

import keras
import numpy as np


def _variables(model: keras.Model) -> list[keras.Variable]:
    return [*model.variables, *model.optimizer.variables]


def save(model: keras.Model, folder: pathlib.Path, step: int, keep: int) -> pathlib.Path:
    """Writes the state of a compiled `model` after `step` updates; keeps the newest `keep`."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
    variables = _variables(model)
    with open(partial / "state.npz", "wb") as file:
        np.savez(file, **{f"{i:05d}": _to_array(v) for i, v in enumerate(variables)})
        _flush(file)
    meta = {
        "step": step,
        "backend": keras.backend.backend(),
        "variables": [[v.path, list(v.shape), str(v.dtype)] for v in variables],
        "sha256": _digest(partial / "state.npz"),
    }
    with open(partial / "meta.json", "w") as file:
        json.dump(meta, file)
        _flush(file)
    final = folder / f"step_{step:09d}"
    if final.exists():
        shutil.rmtree(final)
    os.replace(partial, final)
    _flush_folder(folder)
    for old in sorted(folder.glob("step_*"))[:-keep]:
        shutil.rmtree(old)
    return final


def restore(model: keras.Model, folder: pathlib.Path) -> int:
    """Brings a compiled `model` to the newest whole checkpoint in `folder`; returns its step, or 0.

    A damaged checkpoint is passed over with a warning. Raises ValueError where a whole one does
    not fit the model.
    """
    for partial in folder.glob(".partial-*"):
        shutil.rmtree(partial)
    for path in sorted(folder.glob("step_*"), reverse=True):
        try:
            meta = json.loads((path / "meta.json").read_text())
            if _digest(path / "state.npz") != meta["sha256"]:
                raise ValueError("its checksum differs")
        except (OSError, ValueError, KeyError) as error:
            warnings.warn(f"Checkpoint {path} is damaged ({error}): passed over", stacklevel=2)
            continue
        _assign(model, path, meta)
        return meta["step"]
    return 0


def _assign(model, path, meta):
    variables = _variables(model)
    shapes = [list(v.shape) for v in variables]
    if shapes != [shape for _, shape, _ in meta["variables"]]:
        raise ValueError(
            f"Checkpoint {str(path)!r} does not fit this run: it holds {len(meta['variables'])} "
            f"variables of other shapes than the model's and optimiser's {len(variables)}"
        )
    with np.load(path / "state.npz", allow_pickle=False) as state:
        for i, variable in enumerate(variables):
            array = state[f"{i:05d}"]
            if meta["variables"][i][2] == "bfloat16":
                array = (array.astype("uint32") << 16).view("float32")
            variable.assign(array)


def _to_array(variable):
    array = np.asarray(keras.ops.convert_to_numpy(variable.value))
    return array.view("uint16") if array.dtype.name == "bfloat16" else array  # .npz has none


def _digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(file):
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder):
    handle = os.open(folder, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
