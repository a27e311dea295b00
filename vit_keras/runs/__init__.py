"""The folder of a run: its configuration, its files, and the check that they belong together.

`metrics.json` has a row for each evaluation.
"""

import csv
import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import pathlib
import shlex
from typing import Any, NotRequired, TypedDict

import keras

from vit_keras import variants
from vit_keras.config import Config, UsageError, dump_config, read_config
from vit_keras.config.model import REQUIRED
from vit_keras.config.parsing import flat_fields
from vit_keras.config.run import change_addresses
from vit_keras.layers import backends
from vit_keras.support.checks import differences, read_json, with_checksums
from vit_keras.support.files import LOCK, PARTIAL, claimed, without_commit, write_text
from vit_keras.support.machine import describe_environment
from vit_keras.support.tasks import KINDS
from vit_keras.weights import local_path, resolve

REMEDY = "Wait until it ends, or give another --workdir"  # if another process uses a folder
RESTORE = "Restore it, or begin another run with another --workdir"
_measure = functools.cache(backends.measure)  # once in a process, so that its runs compute alike
LARGEST_REPORT = 2**30  # bytes: its confusion matrix takes 5 bytes or more per entry
PLACE = {"workdir", "distribution", "model_devices", "shard_state"}  # may change on a restart


class Environment(TypedDict):
    """The required content of `environment.json`: what the run computes with."""

    backend: str
    keras: NotRequired[str | None]
    kernels: NotRequired[dict[str, dict[str, bool]]]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's folder. `open_run` makes one, and `find_run` opens a complete one.

    Attributes:
        folder: The folder.
        config: The configuration that made it.
    """

    folder: pathlib.Path
    config: Config

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.folder / "checkpoints"

    @property
    def model_file(self) -> pathlib.Path:
        return self.folder / "model.keras"

    @property
    def report(self) -> dict[str, Any]:
        """The content of `report.json`; empty if there is no such file."""
        file, remedy = self.folder / "report.json", "`vit-keras evaluate` writes it again"
        return read_json(file, dict, remedy, LARGEST_REPORT) if file.exists() else {}

    @property
    def environment(self) -> Environment:
        """The content of `environment.json`; raises an error if it is missing or damaged."""
        return read_json(self.folder / "environment.json", Environment, RESTORE)


def default_workdir(config: Config) -> pathlib.Path:
    """Returns `runs/NAME-BACKEND-HASH`, one per configuration: the same command resumes a run."""
    config = dataclasses.replace(config, workdir=None)
    identity = dump_config(change_addresses(config, without_commit))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return pathlib.Path("runs") / f"{config.name}-{keras.backend.backend()}-{digest}"


def folder_of(config: Config) -> pathlib.Path:
    """Returns the folder of the run that a configuration describes."""
    return pathlib.Path(config.workdir) if config.workdir else default_workdir(config)


def claim(config: Config):
    """Reserves a run's folder for this process in a `with` block, or raises ValueError."""
    folder = folder_of(config)
    _check_folder(folder)
    return claimed(folder, "training", REMEDY)


def open_run(config: Config) -> Run:
    """Makes the folder of a run, or opens the one that the same configuration made earlier.

    A new run on torch measures which kernels are faster, unless `config.kernels` is "default". The
    choices go into `environment.json`, and the run keeps them when it is resumed.

    Args:
        config: The configuration; its `workdir` is the folder, by default `default_workdir`.

    Raises:
        ValueError: The folder belongs to another run or holds something else. It is left unchanged.
    """
    folder = folder_of(config)
    _check_folder(folder)
    run = Run(folder, config)
    if earlier := run_of(folder, complete=False):
        _check_same(run, earlier.config)
        choices = run.environment.get("kernels", {})
    else:
        choices = _measure() if config.kernels == "measured" else {}
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**describe_environment(), "kernels": choices}
    write_text(folder / "environment.json", json.dumps(with_checksums(environment), indent=2))
    write_text(folder / "config.yaml", dump_config(config))
    return run


def _check_folder(folder):
    """Raises ValueError unless the folder is new, empty or a run's."""
    if not folder.exists() or (folder / "config.yaml").exists():
        return
    names = {file.name for file in folder.iterdir() if not file.name.startswith(PARTIAL)}
    if names - {"environment.json", LOCK}:
        raise ValueError(
            f"`workdir` must be empty or a run's folder. Received: {str(folder)!r}, which holds "
            "other files. Give another --workdir"
        )


def run_of(path: str | os.PathLike, complete: bool = True) -> Run | None:
    """Opens the run in a folder; returns None for any other folder, or for a file.

    Raises:
        FileNotFoundError: The run has no model yet, although it must be `complete`.
        ValueError: Its configuration is damaged.
    """
    if not (file := pathlib.Path(path, "config.yaml")).exists():
        return None
    try:
        run = Run(file.parent, read_config(file))
    except ValueError as error:
        raise UsageError(f"{error}. {RESTORE}") from error
    if complete and not run.model_file.is_file():
        raise FileNotFoundError(
            f"The run in {str(path)!r} has no model.keras yet. To continue it, repeat "
            "the command that began it. If model.keras is not a file, delete it first"
        )
    return run


def find_run(folder: str | os.PathLike, complete: bool = True) -> Run:
    """Does what `run_of` does, but raises FileNotFoundError instead of returning None."""
    if run := run_of(folder, complete):
        return run
    raise FileNotFoundError(f"{str(folder)!r} is not a run's folder: it has no config.yaml")


def find_weights(weights: str, variant: str | None, option: str = "model.weights") -> str:
    """Finds the file of a run's `model.weights`.

    Args:
        weights: A run's folder, a checkpoint, the address of a checkpoint on a hub, or a published
            name.
        variant: The variant whose published weights `weights` names; None for B/16.
        option: The name of the field that holds `weights`, for messages.

    Raises:
        ValueError: There is no published file of that name, or the recipe leaves it to the user.
        OSError: There is no such file, or the published file cannot be downloaded.
    """
    if weights == REQUIRED:
        raise ValueError(
            f"This recipe fine-tunes weights, so `{option}` must name them. Received: none. Give "
            f"--{option} a run's folder, a checkpoint, a published name, or null for random weights"
        )
    weights = local_path(weights)
    if run := run_of(weights):
        return str(run.model_file)
    if os.path.exists(weights):
        return weights
    if os.sep in weights or pathlib.Path(weights).suffix:
        raise FileNotFoundError(
            f"`{option}` must be a run's folder, a checkpoint or a published name. Received: "
            f"{weights!r}, which does not exist"
        )
    return resolve(variant or variants.DEFAULT, weights)


def _check_same(run, earlier):
    folder, backend = run.folder, run.environment["backend"]
    if backend != keras.backend.backend():
        raise ValueError(
            f"A run continues on the backend that began it, {backend!r} for {str(folder)!r}. "
            f"Received: {keras.backend.backend()!r}. Set KERAS_BACKEND, or give another --workdir"
        )
    recorded, requested = (json.loads(json.dumps(flat_fields(c))) for c in (earlier, run.config))
    if changes := differences(recorded, requested, sorted({*recorded} - PLACE)):
        raise ValueError(
            f"{str(folder)!r} belongs to another run ({'; '.join(changes)}). Give another "
            f"--workdir, such as {shlex.quote(f'{folder}-2')}"
        )


BEST = {f"val_{kind.metric}" for kind in KINDS.values()}


def read_rows(folder: pathlib.Path, least: int = 0) -> list[dict[str, float]]:
    """Reads the rows from a run's folder; there are none before the first evaluation.

    Args:
        folder: The run's folder.
        least: The number of rows that the run must have written.

    Raises:
        ValueError: If `metrics.json` is damaged, or if rows are missing.
    """
    path = folder / "metrics.json"
    rows = read_json(path, list[dict[str, float]], RESTORE) if path.exists() else []
    if len(rows) < least or any("step" not in row for row in rows):
        raise ValueError(
            f"{str(path)!r} must hold at least {least} rows, each with a step. Received: "
            f"{len(rows)} rows. {RESTORE}"
        )
    return rows


def write_rows(folder: pathlib.Path, rows: list[dict[str, float]]) -> None:
    """Replaces `metrics.csv` and `metrics.json` in a run's folder."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(folder / "metrics.csv", text.getvalue())
    write_text(folder / "metrics.json", json.dumps(rows, indent=1))


def best_row(rows: list[dict[str, float]]) -> dict[str, float] | None:
    """Returns the row with the highest `val_accuracy`, or None.

    For other kinds of labels, the figure of `best_name` counts. Of equal rows, the one with the
    lowest `val_loss` is returned, and of those the earliest.
    """
    rows = [row for row in rows if BEST & set(row)]
    rank = lambda row: (row[best_name(row)], -row.get("val_loss", math.inf))
    return max(rows, key=rank, default=None)


def best_name(row: dict[str, float]) -> str:
    """Returns the name of the figure that ranks a row."""
    return next(name for name in row if name in BEST)


def out_of_patience(rows: list[dict[str, float]], patience: int | None) -> bool:
    """Returns whether none of the last `patience` evaluations lowered the best `val_loss`."""
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    if patience is None or not losses:
        return False
    best = min(range(len(losses)), key=lambda i: (math.isnan(losses[i]), losses[i]))
    return len(losses) - 1 - best >= patience


class NonFinite(FloatingPointError):
    """A loss or a variable is NaN or infinite; the message names it and the update."""
