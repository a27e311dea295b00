"""The checkpoints of a run: written in one step, verified by checksums, resumed bit for bit.

A checkpoint is a folder `step_NNNNNNNNN` with two files. `state.npz` holds all variables of the
model (including dropout's seeds, which `.keras` files leave out), of the optimizer and of the
metrics. With several replicas, it also holds each replica's metrics, since continuing from their
sums would change the rounding. `meta.json` holds the step, the backend, the paths and shapes of the
variables, the step of the best `val_accuracy` and the number of evaluations so far, with a checksum
of each of these entries and of the other files. If variables are split across processes,
`state_NNNNN.npz` holds the slices of process NNNNN: `model/00003@0:16,8:64` holds rows 0 to 15 and
columns 8 to 63. These files lie beside the folder until all are written.
"""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import re
import typing
import warnings
from collections.abc import Callable, Sequence

import keras
import numpy as np

from vit_keras.layers import backends
from vit_keras.models import teacher_variables
from vit_keras.runs import NonFinite, best_name, best_row
from vit_keras.support.checks import read_json, with_checksums
from vit_keras.support.files import recover, remove_folder, replacing, replacing_folder, sha256
from vit_keras.training.topologies import ALONE, Topology

METRICS, REPLICAS, GENERATOR = "metrics/", "replicas/", "generator"
AT, PENDING = "@", ".part-"  # before a slice's bounds, and its file's name while it is pending
STATE = re.compile(r"state(_\d{5,})?\.npz")


class Meta(typing.TypedDict):
    """The required content of `meta.json`."""

    step: int
    backend: str
    best: dict[str, float] | None
    variables: dict[str, list]  # path, shape and dtype
    rows: int
    files: dict[str, str]  # their checksums


class CheckpointWriter(contextlib.AbstractContextManager):
    """Writes one checkpoint at a time in a thread, which only touches files.

    A `with` block waits for the last checkpoint. If an error ends the block, an error from the
    thread becomes a warning.

    Example:
        with CheckpointWriter() as writer:
            checkpoints.save(model, folder, 10, keep=2, writer=writer)
            train_further(model)
            checkpoints.save(model, folder, 20, keep=2, writer=writer)  # waits for the first
    """

    def __init__(self):
        self._pool = concurrent.futures.ThreadPoolExecutor(1, "checkpoint")
        self._future: concurrent.futures.Future | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Calls `write` in the thread. Call `wait` first."""
        self._future = self._pool.submit(write)

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self._future is not None and self._future.done():
            self.wait()

    def wait(self) -> None:
        """Waits until the checkpoint is complete.

        Raises:
            OSError: If the checkpoint could not be written. Earlier ones are not affected.
        """
        future, self._future = self._future, None
        if future is not None:
            future.result()

    def __exit__(self, kind, error, traceback):
        try:
            self.wait()
        except Exception as unwritten:
            if error is None:
                raise
            warnings.warn(f"The last checkpoint is incomplete: {unwritten}", stacklevel=2)


def save(
    model: keras.Model,
    folder: pathlib.Path,
    step: int,
    keep: int,
    rows: Sequence[dict[str, float]] = (),
    topology: Topology = ALONE,
    writer: CheckpointWriter | None = None,
) -> pathlib.Path:
    """Writes the state of a compiled model, and deletes old checkpoints.

    Every process of `topology` must call it. The chief writes; on JAX, each process that holds
    slices of variables writes these first.

    Args:
        model: The model, compiled and built.
        folder: The folder of the run's checkpoints.
        step: The number of updates so far.
        keep: The number of newest checkpoints to keep.
        rows: The evaluations so far, all of which are in `metrics.json`. The checkpoint of the best
            one is kept too.
        topology: The devices and processes of the run.
        writer: Writes a copy of the state in its thread, after the previous checkpoint. Without a
            writer, the checkpoint is complete when the function returns.

    Returns:
        The folder of the checkpoint.

    Raises:
        NonFinite: If a variable is NaN or infinite. Nothing is written.
        OSError: If the checkpoint, or the previous one in `writer`, cannot be written, for example
            because the disk is full. Earlier checkpoints are not affected.
    """
    if writer is not None:
        writer.wait()
    variables = _variables(model)
    arrays = _read_all(variables, topology)
    _check_finite(variables, arrays, step, topology)
    final = folder / f"step_{step:09d}"
    shared = {} if topology.is_chief else {n: a for n, a in arrays.items() if AT in n}
    if shared:  # beside the checkpoint's folder
        with replacing(_part(final, topology.process_index)) as temporary:
            _save_arrays(temporary, shared)
    others = np.flatnonzero(topology.gather(len(shared))).tolist()  # they have written
    if not topology.is_chief:
        return final
    best = best_row(list(rows))
    meta = {
        "step": step,
        "backend": keras.backend.backend(),
        "best": best and {name: best[name] for name in ("step", best_name(best))},
        "variables": {n: [v.path, list(v.shape), str(v.dtype)] for n, v in variables.items()},
        "rows": len(rows),
    }
    write = functools.partial(_write, final, arrays, meta, others, keep)
    if writer is None:
        write()
    else:
        writer.start(write)
    return final


def _write(final, arrays, meta, others, keep):
    """Writes a checkpoint, including the slices of `others`, and then removes older ones."""
    with replacing_folder(final) as new:
        _save_arrays(new / "state.npz", arrays)
        for process in others:
            os.rename(_part(final, process), new / f"state_{process:05d}.npz")
        meta["files"] = {file.name: sha256(file) for file in sorted(new.glob("*.npz"))}
        (new / "meta.json").write_text(json.dumps(with_checksums(meta)))
    for left in final.parent.glob(f"{PENDING}*"):  # from processes that were killed
        if left.name < f"{PENDING}{final.name}.":  # later ones belong to the next checkpoint
            left.unlink(missing_ok=True)
    older = (path for path in final.parent.glob("step_*") if path.name <= final.name)
    for path in sorted(older, reverse=True)[keep:]:
        if meta["best"] is None or path.name != f"step_{meta['best']['step']:09d}":
            remove_folder(path)


def _part(final, process):
    return final.with_name(f"{PENDING}{final.name}-{process:05d}.npz")


def _save_arrays(path, arrays):
    """Writes arrays as `.npz`; bfloat16 is stored as uint16."""
    storable = lambda array: array.view("uint16") if array.dtype.name == "bfloat16" else array
    with open(path, "wb") as file:
        np.savez(file, **{name: storable(array) for name, array in arrays.items()})


def restore(model: keras.Model, folder: pathlib.Path, topology: Topology = ALONE) -> int:
    """Restores a compiled model from the newest undamaged checkpoint in `folder`.

    The first process looks for it. A damaged checkpoint causes a warning and is skipped.

    Returns:
        The step of the checkpoint, or 0 if there is none.

    Raises:
        ValueError: If the checkpoint does not fit the model, or another process cannot see it.
    """
    path = newest(folder) if topology.is_chief else None
    step = int(topology.gather(int(path.name.removeprefix("step_")) if path else -1)[0])
    if step < 0:
        return 0
    return load(model, folder / f"step_{step:09d}", topology, verify=False)


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the newest undamaged checkpoint; also removes what killed processes left behind."""
    recover(folder)
    for path in sorted(folder.glob("step_*"), reverse=True):
        try:
            read_meta(path)
            return path
        except (OSError, ValueError) as error:
            text = f"Checkpoint {path} is damaged ({error}), and an earlier one is used instead"
            warnings.warn(text, stacklevel=3)
    return None


def load(
    model: keras.Model,
    path: pathlib.Path,
    topology: Topology = ALONE,
    remedy: str = "Give another --workdir",
    verify: bool = True,
) -> int:
    """Restores a compiled model from the checkpoint at `path`; returns its step.

    Args:
        model: The model, compiled and built.
        path: The folder of the checkpoint.
        topology: The devices and processes of the run.
        remedy: Advice for the message.
        verify: As in `read_meta`.

    Raises:
        ValueError: If the checkpoint is missing, damaged, or does not fit the model.
    """
    variables = _variables(model)
    try:
        meta = read_meta(path, verify)
        shapes = {name: shape for name, (_, shape, _) in meta["variables"].items()}
        if {name: list(v.shape) for name, v in variables.items()} != shapes:
            raise ValueError(
                f"it does not fit this run: its {len(shapes)} variables do not have the names and "
                f"shapes of the {len(variables)} in the run's model, optimizer and metrics"
            )
        with State(path, meta) as state:
            for name, variable in variables.items():
                array = state[name]
                if meta["variables"][name][2] == "bfloat16":
                    array = (array.astype("uint32") << 16).view("float32")
                if name.startswith(METRICS):
                    values = state[REPLICAS + name] if REPLICAS + name in state else array[None]
                    topology.write_replicas([variable], [values])
                else:
                    topology.write_variable(variable, array)
            if GENERATOR in state:
                set_generator_state(state[GENERATOR])
    except (OSError, KeyError, ValueError) as error:
        reason = f"The checkpoint {str(path)!r} cannot be read ({error})"
        raise ValueError(f"{reason}. {remedy}") from error
    return meta["step"]


def is_checkpoint(path: str | os.PathLike) -> bool:
    """Whether `path` is the folder of a step among a run's checkpoints.

    Args:
        path: A file, a folder, or an address. It need not exist.

    Returns:
        Whether the folder has the files of a checkpoint, even if they are damaged.

    Example:
        >>> is_checkpoint("runs/pets/model.keras")
        False
    """
    return pathlib.Path(path, "meta.json").is_file() and pathlib.Path(path, "state.npz").is_file()


def read_meta(path: pathlib.Path, verify: bool = True) -> Meta:
    """Reads `meta.json` of the checkpoint at `path`, and verifies its checksums.

    Args:
        path: The folder of the checkpoint.
        verify: Whether to verify the other files too; not needed right after `newest`.

    Raises:
        OSError: If a file is missing.
        ValueError: If the checkpoint is damaged.
    """
    meta = read_json(path / "meta.json", Meta)
    whole = path.name == f"step_{meta['step']:09d}" and "state.npz" in meta["files"]
    if not whole or not all(map(STATE.fullmatch, meta["files"])):
        raise ValueError("its meta.json was changed")
    for name, digest in meta["files"].items() if verify else ():
        if sha256(path / name) != digest:
            raise ValueError(f"the checksum of {name} differs")
    return meta


class State(contextlib.ExitStack):
    """Reads the arrays of a checkpoint one by one, never a whole file at once.

    Args:
        path: The folder of the checkpoint.
        meta: The result of `read_meta`.

    Example:
        with State(path, read_meta(path)) as state:
            kernel = state["model/00003"]
    """

    def __init__(self, path: pathlib.Path, meta: Meta):
        super().__init__()
        self.variables = meta["variables"]
        self._places: dict[str, list] = {}
        for name in meta["files"]:
            file = self.enter_context(np.load(path / name, allow_pickle=False))
            for key in file.files:
                self._places.setdefault(key.partition(AT)[0], []).append((key, file))

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> np.ndarray:
        """The whole array of a variable; bfloat16 as the upper halves of float32."""
        held = [(key, file[key]) for key, file in self._places[name]]
        if held[0][0] == name:
            return held[0][1]
        shape = tuple(self.variables[name][1])
        array, filled = np.empty(shape, held[0][1].dtype), np.zeros(shape, bool)
        for key, part in held:
            spans = key.partition(AT)[2].split(",")
            index = tuple(slice(*map(int, span.split(":"))) for span in spans)
            if len(index) == len(shape) and array[index].shape == part.shape:
                array[index], filled[index] = part, True
        if not filled.all():
            numbers = f"{filled.sum()} of {filled.size} numbers"
            raise ValueError(f"its parts {', '.join(key for key, _ in held)} hold {numbers}")
        return array


def _variables(model) -> dict[str, keras.Variable]:
    """Names variables by group and index, since paths depend on what else a process has built.

    The teacher's variables are left out: they do not change, and the run records their source.
    """
    teacher = {id(variable) for variable in teacher_variables(model)}
    groups = {
        "model": [variable for variable in model.variables if id(variable) not in teacher],
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    return {f"{group}/{i:05d}": v for group, held in groups.items() for i, v in enumerate(held)}


def _read_all(variables, topology):
    """The arrays of a checkpoint; for metrics, the sum over replicas and each replica's values."""
    metrics = {name: v for name, v in variables.items() if name.startswith(METRICS)}
    values = dict(zip(metrics, topology.read_replicas(list(metrics.values()))))
    arrays = {
        name + part: array
        for name, variable in variables.items()
        if name not in metrics
        for part, array in topology.read_parts(variable).items()
    }
    if (generator := generator_state()) is not None:
        arrays[GENERATOR] = generator
    arrays |= {name: each.sum(axis=0, dtype=each.dtype) for name, each in values.items()}
    return arrays | {REPLICAS + name: each for name, each in values.items() if len(each) > 1}


def _check_finite(variables, arrays, step, topology):
    """Raises in every process if a variable is not finite in one of them."""
    bad = [
        name.removeprefix(REPLICAS).partition(AT)[0]
        for name, array in arrays.items()
        if not np.issubdtype(array.dtype, np.integer) and not np.isfinite(array).all()
    ]
    if topology.gather(len(bad)).any():
        which = variables[bad[0]].path if bad else "another process's slice of a variable"
        raise NonFinite(f"after update {step}, {which} is not finite")


@backends.dispatch("generator_state")
def generator_state() -> np.ndarray | None:
    """Returns the state of torch's global generator as uint8, or None on other backends."""
    return None


@backends.dispatch("set_generator_state")
def set_generator_state(state: np.ndarray) -> None:
    """Sets a state from `generator_state`; backends other than torch have no generator."""
