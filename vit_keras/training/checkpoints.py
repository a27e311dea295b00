"""The checkpoints of a run: written in one step, verified by a checksum.

A checkpoint is a folder `step_NNNNNNNNN` with two files. `state.npz` holds all variables of the
model (including dropout's seeds, which `.keras` files leave out), of the optimizer and of the
metrics. Where several replicas train, it also holds the metrics of each, since their sums would
continue with other roundings. `meta.json` holds the step, the backend, the paths and shapes of the
variables, the checksum of `state.npz`, the step of the best `val_accuracy` and the numbers of
evaluations and rollbacks so far, and its own checksum. Where processes share variables,
`state_NNNNN.npz` holds the parts of process NNNNN.
"""

import functools
import pathlib
import time
import warnings

import keras
import numpy as np

from vit_keras.files import recover, remove_folder
from vit_keras.models import teacher_variables
from vit_keras.training.checkpoint_files import (
    AT,
    PAUSES,
    State,
    read_meta,
    replacing_checkpoint,
    write,
)
from vit_keras.training.checkpoint_parts import (
    collect_parts,
    remove_part,
    remove_pending,
    write_part,
)
from vit_keras.training.checkpoint_writer import CheckpointWriter
from vit_keras.training.distribution import ALONE, Topology
from vit_keras.training.rollbacks import NonFinite, read_rollbacks
from vit_keras.training.torch_generator import generator_state, set_generator_state

METRICS = "metrics/"
GENERATOR, REPLICAS = "generator", "replicas/"


def save(
    model: keras.Model,
    folder: pathlib.Path,
    step: int,
    keep: int,
    best: dict | None = None,
    topology: Topology = ALONE,
    writer: CheckpointWriter | None = None,
    rows: int = 0,
) -> pathlib.Path:
    """Writes the state of a compiled model, and deletes old checkpoints.

    Every process of `topology` must call it. The chief writes, and on JAX each process that holds
    variables in part writes its parts.

    Args:
        model: The model, compiled and built.
        folder: The folder of the run's checkpoints.
        step: The number of updates so far.
        keep: How many of the newest checkpoints stay.
        best: The step and `val_accuracy` of the best evaluation; its checkpoint stays too.
        topology: The devices and processes of the run.
        writer: Writes a copy of the state in its thread, after the checkpoint before. Without one,
            the checkpoint is complete when the function returns.
        rows: The number of evaluations so far, which `metrics.json` then holds.

    Returns:
        The folder of the checkpoint.

    Raises:
        NonFinite: a variable is NaN or infinite. Nothing is written.
        OSError: The checkpoint, or the one before it in the `writer`, cannot be written, such as on
            a full disk. The earlier checkpoints stay as they are.
    """
    thread = writer or CheckpointWriter(topology)
    thread.wait()
    variables = _variables(model)
    arrays = _read_all(variables, topology)
    _check_finite(variables, arrays, step, topology)
    final = folder / f"step_{step:09d}"
    shared = {} if topology.is_chief else {n: a for n, a in arrays.items() if AT in n}
    if shared:
        remove_part(final, topology.process_index)  # of a process that was killed
    others = np.flatnonzero(topology.gather(len(shared))).tolist()
    if topology.is_chief:
        meta = _describe(variables, step, best) | {"rows": rows}
        meta |= {"rollbacks": len(read_rollbacks(folder.parent))}
        thread.start(functools.partial(_write, final, arrays, meta, others, keep), bool(others))
    else:
        write_shared = lambda written: write_part(final, shared, topology.process_index)
        thread.start(write_shared if shared else None, bool(others))
    if writer is None:
        thread.wait()
    return final


def _describe(variables, step, best):
    """What `meta.json` says besides checksums."""
    return {
        "step": step,
        "backend": keras.backend.backend(),
        "best": best,
        "variables": {n: [v.path, list(v.shape), str(v.dtype)] for n, v in variables.items()},
    }


def _write(final, arrays, meta, others, keep, written):
    """Writes a checkpoint, of which `others` write parts, and then removes older ones."""
    collect = lambda folder: collect_parts(final, folder, others, written)
    with replacing_checkpoint(final, arrays) as new:
        write(new, arrays, meta, collect if others else None)
    remove_pending(final)
    _remove_old(final.parent, final, keep, meta["best"])


def _remove_old(folder, last, keep, best):
    """Removes all checkpoints up to `last` but the newest `keep` and the best."""
    older = [path for path in _newest_first(folder) if path.name <= last.name]
    for path in older[keep:]:
        if best is None or path.name != f"step_{best['step']:09d}":
            remove_folder(path)


def restore(model: keras.Model, folder: pathlib.Path, topology: Topology = ALONE) -> int:
    """Restores a compiled model from the newest checkpoint in `folder` that is not damaged.

    A damaged checkpoint causes a warning, and the one before it is used.

    Returns:
        The step of the checkpoint, or 0 if there is none.

    Raises:
        ValueError: The checkpoint does not fit the model, or processes see different checkpoints.
    """
    for pause in PAUSES:
        with topology.chief_first():
            path = newest(folder)
        step = 0 if path is None else int(path.name.removeprefix("step_"))
        if len(steps := set(topology.gather(step).tolist())) == 1:
            return 0 if path is None else load(model, path, topology)
        time.sleep(pause)
    raise ValueError(
        "All processes must see the same `workdir`, on a disk that the machines share. "
        f"Received: {str(folder)!r}, whose newest checkpoints they see at the steps {sorted(steps)}"
    )


def newest(folder: pathlib.Path) -> pathlib.Path | None:
    """Returns the newest checkpoint that is not damaged; removes remains of a killed process."""
    recover(folder)
    for path in _newest_first(folder):
        try:
            read_meta(path)
            return path
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = f"Checkpoint {path} is damaged ({error}): the one before it is used"
            warnings.warn(text, stacklevel=3)
    return None


def load(model: keras.Model, path: pathlib.Path, topology: Topology = ALONE) -> int:
    """Restores a compiled model from the checkpoint at `path`; returns its step.

    Raises:
        OSError, KeyError: The checkpoint is missing or damaged.
        ValueError: The checkpoint is damaged or does not fit the model.
    """
    meta, variables = read_meta(path), _variables(model)
    if {n: list(v.shape) for n, v in variables.items()} != {
        name: shape for name, (_, shape, _) in meta["variables"].items()
    }:
        raise ValueError(
            "A checkpoint must hold the variables of the run's model, optimizer and metrics. "
            f"Received: {str(path)!r}, which does not fit this run: its {len(meta['variables'])} "
            f"variables have other shapes than the run's {len(variables)}. Give another --workdir"
        )
    with State(path, meta) as state:
        for name, variable in variables.items():
            array = state[name]
            if meta["variables"][name][2] == "bfloat16":
                array = (array.astype("uint32") << 16).view("float32")
            if name.startswith(METRICS):
                several = REPLICAS + name in state
                values = state[REPLICAS + name] if several else array[None]
                topology.write_replicas([variable], [values])
            else:
                topology.write_variable(variable, array)
        if GENERATOR in state:
            set_generator_state(state[GENERATOR])
    return meta["step"]


def _variables(model) -> dict[str, keras.Variable]:
    """Names variables by group and place, since paths depend on what else a process has built.

    A teacher's are left out: they stay as they are, and a run notes what they are.
    """
    teacher = {id(variable) for variable in teacher_variables(model)}
    groups = {
        "model": [variable for variable in model.variables if id(variable) not in teacher],
        "optimizer": model.optimizer.variables,
        "metrics": model.metrics_variables,
    }
    return {f"{group}/{i:05d}": v for group, held in groups.items() for i, v in enumerate(held)}


def _read_all(variables, topology):
    """The arrays of a checkpoint; of metrics the sum over replicas, and each one's values."""
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
        which = variables[bad[0]].path if bad else "what another process holds of a variable"
        raise NonFinite(f"after update {step}, {which} is not finite")


def _newest_first(folder):
    return sorted(folder.glob("step_*"), reverse=True)
