"""The model that a run learns from: opened, and kept the same until the run ends."""

import json
import pathlib
import typing

import keras

from vit_keras import runs, weights
from vit_keras.config import DistillConfig
from vit_keras.files import write_text
from vit_keras.json_files import read_json, with_checksums

FILE = "teacher.json"


class Record(typing.TypedDict):
    """What `teacher.json` must hold: a checksum for each file."""

    sha256: dict[str, str]


def find_teacher(config: DistillConfig) -> str:
    """The file or folder of a teacher's weights, which may be downloaded."""
    return runs.find_weights(config.teacher or "", config.teacher_variant, "distill.teacher")


def open_teacher(config: DistillConfig) -> keras.Model:
    """Opens the model that a run learns from.

    Raises:
        OSError: There is nothing at `config.teacher`, or it cannot be downloaded.
        ValueError: The file cannot be read as a model.
    """
    return weights.from_checkpoint(find_teacher(config))


def check_teacher(config: DistillConfig, folder: pathlib.Path) -> None:
    """Writes `teacher.json` to a run's folder, or compares the teacher with that file.

    Without a teacher, it does nothing.

    Raises:
        ValueError: The teacher's weights have changed since the run began.
    """
    if not config.is_active:
        return
    files = weights.describe(find_teacher(config))["files"]
    now = {pathlib.Path(file["path"]).name: file["sha256"] for file in files}
    record = folder / FILE
    if not record.exists() and not any(folder.glob("checkpoints/step_*")):
        written = with_checksums({"teacher": config.teacher, "sha256": now})
        return write_text(record, json.dumps(written, indent=1))
    remedy = "Restore it, or begin another run with another --workdir"
    then = read_json(record, Record, remedy)["sha256"]
    if then != now:
        changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
        raise ValueError(
            f"The teacher {config.teacher!r} has changed since the run in {str(folder)!r} began "
            f"({', '.join(changed)}). Restore it, or begin another run with another --workdir"
        )
