"""The meaning of a model's outputs, stored inside exported files, which may lose their manifest."""

import dataclasses
import json
import os
import pathlib
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, NotRequired, TypedDict

from vit_keras.runtimes import SAVED_MODEL, format_of
from vit_keras.support.checks import parse_json
from vit_keras.support.files import is_zip
from vit_keras.support.tasks import Task

NAME = "task.json"  # as a member of a TFLite file, and in `assets.extra` of a SavedModel
KEY = "vit_keras.task"  # among the metadata of an ONNX file


class Note(TypedDict):
    """What an exported file says about itself."""

    task: NotRequired[Task]
    names: NotRequired[list[str] | None]
    output: NotRequired[str]
    levels: NotRequired[float]
    bands: NotRequired[list[int]]


def write_task(
    path: str | os.PathLike, task: Task, names: Sequence[str], output: str, **depth: Any
) -> None:
    """Writes the meaning of the outputs and pixels into a TFLite, ONNX or SavedModel file.

    Files in other formats are not changed.

    Args:
        path: The exported file or folder.
        task: The meaning of the outputs.
        names: The names of the outputs.
        output: What the file returns, such as "softmax" or "logits".
        **depth: The "levels" of pixels and the "bands" of files, as in `Preprocessing`.
    """
    if (format := format_of(path)) in FORMATS:
        note = {"task": dataclasses.asdict(task), "names": names, "output": output, **depth}
        text = json.dumps(note)
        FORMATS[format][0](pathlib.Path(path), text)


def read_task(path: str | os.PathLike) -> dict[str, Any]:
    """Reads the data that `write_task` wrote.

    Returns:
        The arguments of the `Task` as "task", the "names", and the "output"; {} if the file does
        not hold them.
    """
    format = format_of(path)
    text = FORMATS[format][1](pathlib.Path(path)) if format in FORMATS else None
    name = f"The task in {os.fspath(path)!r}"
    return parse_json(text, name, Note, "Export the model again") if text else {}


def _write_member(path, text):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(NAME), text)


def _read_member(path):
    if not is_zip(path):
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(NAME).decode() if NAME in archive.namelist() else None
    except zipfile.BadZipFile as error:
        raise ValueError(f"{str(path)!r} is damaged ({error}). Export the model again") from error


def _write_property(path, text):
    import onnx

    model = onnx.load(path)
    onnx.helper.set_model_props(model, {KEY: text})
    onnx.save(model, path)


def _read_property(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.get_modelmeta().custom_metadata_map.get(KEY)


def _write_asset(path, text):
    (path / "assets.extra").mkdir(exist_ok=True)
    (path / "assets.extra" / NAME).write_text(text)


def _read_asset(path):
    file = path / "assets.extra" / NAME
    return file.read_text() if file.is_file() else None


FORMATS: dict[str | None, tuple[Callable, Callable]] = {
    ".tflite": (_write_member, _read_member),
    ".onnx": (_write_property, _read_property),
    SAVED_MODEL: (_write_asset, _read_asset),
}
