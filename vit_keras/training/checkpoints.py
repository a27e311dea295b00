"""Checkpoints of a run: whole, atomic, verified; the newest few and the best are kept.

A checkpoint is a folder `step_NNNNNNNNN` with `state.npz`, all variables of the model (dropout's
seeds too, which `.keras` files leave out), of the optimiser and of the metrics, and `meta.json`:
step, backend, paths and shapes of the variables, checksum, and which step had the best
`val_accuracy` so far. It is written beside under another name, flushed to the disk and renamed, so
that it is there whole or not at all.
"""

import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import tempfile
import warnings

import keras
import numpy as np

from vit_keras.training.distribution import ALONE, Topology, read_variable
from vit_keras.training.rollbacks import NonFinite
from vit_keras.training.torch_generator import generator_state, set_generator_state

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
GENERATOR = "generator"


def save(
    model: keras.Model,
    folder: pathlib.Path,
    step: int,
    keep: int,
    best: dict | None = None,
    topology: Topology = ALONE,
) -> pathlib.Path:
    """Writes the state of a compiled `model` after `step` updates.

    Every process of `topology` must call it, with its part of a state; the chief writes.
    Keeps the newest `keep` and that of step `best["step"]`. Raises NonFinite, and writes nothing,
    for a state with NaN or infinity; OSError where the disk is full, and leaves all as it was.
    """
    variables = _variables(model)
    arrays = _read_all(variables, topology)
    _check_finite(variables, arrays, step)
    final = folder / f"step_{step:09d}"
    if not topology.is_chief:
        return final
    meta = {
        "step": step,
        "backend": keras.backend.backend(),
        "best": best,
        "variables": {n: [v.path, list(v.shape), str(v.dtype)] for n, v in variables.items()},
    }
    if generator_state() is not None:
        arrays[GENERATOR] = generator_state()
    with _beside(folder, final, sum(array.nbytes for array in arrays.values())) as partial:
        _write(partial, arrays, meta)
    older = [path for path in _newest_first(folder) if path.name <= final.name]
    for path in older[keep:]:
        if best is None or path.name != f"step_{best['step']:09d}":
            _discard(path)
    return final


def _write(folder, arrays, meta):
    """The two files of a checkpoint, on the disk when it returns."""
    with open(folder / "state.npz", "wb") as file:
        np.savez(file, **{name: _storable(array) for name, array in arrays.items()})
        _flush(file)
    with open(folder / "meta.json", "w") as file:
        json.dump({**meta, "sha256": _digest(folder / "state.npz")}, file)
        _flush(file)


def restore(model: keras.Model, folder: pathlib.Path, topology: Topology = ALONE) -> int:
    """Brings a compiled `model` to the newest whole checkpoint in `folder`; returns its step, or 0.

    A damaged checkpoint is passed over with a warning. Raises ValueError where a whole one does
    not fit the model, or where processes find different ones.
    """
    with topology.chief_first():
        path = newest(folder)
    step = 0 if path is None else int(path.name.removeprefix("step_"))
    if len(steps := set(topology.gather(step).tolist())) > 1:
        raise ValueError(
            "All processes must see the same `workdir`, on a disk that the machines share. "
            f"Received: {str(folder)!r} with newest checkpoints of steps {sorted(steps)}"
        )
    return 0 if path is None else load(model, path)


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """The newest whole checkpoint in `folder`; tidies up after a process that was killed."""
    for partial in folder.glob(".partial-*"):
        shutil.rmtree(partial)
    for path in folder.glob("step_*-new"):
        _take_place(path, path.with_name(path.name.removesuffix("-new")))
    for path in _newest_first(folder):
        try:
            _read_meta(path)
            return path
        except (OSError, ValueError, KeyError) as error:
            warnings.warn(f"Checkpoint {path} is damaged ({error}): passed over", stacklevel=3)
    return None


def load(model: keras.Model, path: pathlib.Path) -> int:
    """Brings a compiled `model` to the checkpoint at `path`; returns its step.

    Raises OSError, ValueError or KeyError where it is missing or damaged.
    """
    meta, variables = _read_meta(path), _variables(model)
    if {n: list(v.shape) for n, v in variables.items()} != {
        name: shape for name, (_, shape, _) in meta["variables"].items()
    }:
        raise ValueError(
            f"Checkpoint {str(path)!r} does not fit this run: it holds {len(meta['variables'])} "
            f"variables of other shapes than the model's and optimiser's {len(variables)}"
        )
    with np.load(path / "state.npz", allow_pickle=False) as state:
        for name, variable in variables.items():
            array = state[name]
            if meta["variables"][name][2] == "bfloat16":
                array = (array.astype("uint32") << 16).view("float32")
            variable.assign(array)
        if GENERATOR in state:
            set_generator_state(state[GENERATOR])
    return meta["step"]


def _variables(model) -> dict[str, keras.Variable]:
    """By group and place: paths depend on what else a process has built."""
    groups = {
        "model": model.variables,
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    return {f"{group}/{i:05d}": v for group, found in groups.items() for i, v in enumerate(found)}


def _read_all(variables, topology):
    total = topology.read_total
    return {
        n: total(v) if n.startswith("metrics/") else read_variable(v) for n, v in variables.items()
    }


def _check_finite(variables, arrays, step):
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.integer) and not np.isfinite(array).all():
            raise NonFinite(f"after update {step}, {variables[name].path} is not finite")


@contextlib.contextmanager
def _beside(folder, final, size):
    """A folder that takes the place of `final` at the end; after an error it is gone."""
    partial = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial = pathlib.Path(tempfile.mkdtemp(prefix=".partial-", dir=folder))
        yield partial
        _flush_folder(partial)
    except BaseException as error:
        if partial is not None:
            shutil.rmtree(partial)
        if isinstance(error, OSError) and error.errno in FULL:
            raise OSError(
                error.errno,
                f"{os.strerror(error.errno)}: checkpoint {final.name} takes {size / 1e6:.1f} MB, "
                f"and {shutil.disk_usage(folder).free / 1e6:.1f} MB are free. The checkpoints "
                "before it are whole: make room, and the same command goes on",
                str(folder),
            ) from error
        raise
    if final.exists():  # the new one is there before the old one goes
        new = final.with_name(f"{final.name}-new")
        os.replace(partial, new)
        _take_place(new, final)
    else:
        os.replace(partial, final)
    _flush_folder(folder)


def _take_place(new, final):
    if final.exists():
        _discard(final)
    os.replace(new, final)


def _discard(path):
    """Deletes a checkpoint; its name is gone first, so that none is left in part."""
    gone = path.with_name(f".partial-{path.name}")
    os.replace(path, gone)
    shutil.rmtree(gone)


def _newest_first(folder):
    return sorted(folder.glob("step_*"), reverse=True)


def _read_meta(path):
    meta = json.loads((path / "meta.json").read_text())
    if _digest(path / "state.npz") != meta["sha256"]:
        raise ValueError("its checksum differs")
    return meta


def _storable(array):
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
