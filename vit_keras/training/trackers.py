"""Experiment trackers: files for TensorBoard, and the Keras callbacks of MLflow and W&B."""

import dataclasses
import importlib
import io
import os
import pathlib
import socket
import sys
import time

import keras
import numpy as np

from vit_keras.data import to_uint8
from vit_keras.models import attention_maps, attention_rollout, patch_grid
from vit_keras.runs import Run
from vit_keras.support import extras
from vit_keras.training.callbacks import Recorder

PICTURES = 8
PACKAGE = {"extra": "tensorboard", "purpose": "Writing files for TensorBoard"}


def tensorboard_callbacks(run: Run, *arguments) -> list[keras.callbacks.Callback]:
    """Returns a list with a `TensorBoard` made from these arguments.

    Without the package `tensorboard`, the list is empty, and one line on standard error says so.

    Raises:
        ImportError: If the run requests pictures with `watch_every`, and the package is not
            installed.
    """
    try:
        extras.check("tensorboard", **PACKAGE)
    except ImportError as error:
        if run.config.watch_every:
            raise
        print(error, file=sys.stderr)
        return []
    return [TensorBoard(run, *arguments)]


class TensorBoard(keras.callbacks.Callback):
    """Writes each recorded row to `tensorboard/train` and `tensorboard/validation`.

    Every `watch_every` evaluations (0 for never), it also draws the attention rollout of the first
    held-out pictures.

    Args:
        run: The run.
        recorder: The callback that records the rows; it must run earlier in the list.
        validation: The held-out batches.
        images: Training images `(B, H, W, C)` to show once, at the beginning of a run.
    """

    def __init__(self, run: Run, recorder: Recorder, validation, images=None):
        super().__init__()
        self.folder, self.recorder, self.images = run.folder / "tensorboard", recorder, images
        self.watch_every, self.validation = run.config.watch_every, validation
        self.files: dict[str, EventFile] = {}

    def on_train_begin(self, logs=None):
        if not self.files:
            self.files = {n: EventFile(self.folder / n) for n in ("train", "validation")}
        if self.watch_every and not hasattr(self, "maps"):
            self.maps = attention_maps(self.model)
            self.pictures = np.array(next(iter(self.validation))[0][:PICTURES])
        if self.images is not None:
            images = to_unit(self.images[:PICTURES])
            self.files["train"].write_images(self.recorder.step, "augmented", images)
            self.images = None

    def on_epoch_end(self, epoch, logs=None):
        row = dict(self.recorder.rows[-1])
        step = int(row.pop("step"))
        held_out = {name[4:]: value for name, value in row.items() if name.startswith("val_")}
        trained = {name: value for name, value in row.items() if not name.startswith("val_")}
        self.files["train"].write_numbers(step, trained)
        self.files["validation"].write_numbers(step, held_out)
        if self.watch_every and len(self.recorder.rows) % self.watch_every == 0:
            self._write_attention(step)

    def _write_attention(self, step):
        maps = keras.ops.convert_to_numpy(self.maps(self.pictures))
        heat = attention_rollout(maps)[:, 0]  # the first token represents the image
        heat = heat[:, -np.prod(patch_grid(self.model)) :]  # without a class token
        heat = to_unit(heat.reshape(-1, *patch_grid(self.model), 1))  # (B, h, w, 1)
        size = self.pictures.shape[1:3]
        heat = keras.ops.image.resize(heat, size, data_format="channels_last")
        images = to_unit(self.pictures) * keras.ops.convert_to_numpy(heat)
        self.files["train"].write_images(step, "attention", images)


class EventFile:
    """A new event file in a folder, which TensorBoard reads.

    TensorBoard's own `EventFileWriter` imports TensorFlow if it is installed.
    """

    def __init__(self, folder: pathlib.Path):
        folder.mkdir(parents=True, exist_ok=True)
        started = f"{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.path = folder / f"events.out.tfevents.{started}"
        self._write(file_version="brain.Event:2")

    def write_numbers(self, step: int, numbers: dict[str, float]) -> None:
        """Writes numbers under their names."""
        values = [{"tag": name, "simple_value": value} for name, value in numbers.items()]
        self._write(step=step, summary={"value": values})

    def write_images(self, step: int, tag: str, images: np.ndarray) -> None:
        """Writes images `(B, H, W, C)` in [0, 1]: three channels of them, or one."""
        metadata = extras.require("tensorboard.plugins.image.metadata", **PACKAGE)
        height, width, channels = images.shape[1:]
        pixels = to_uint8(255 * images[..., : 3 if channels >= 3 else 1])
        strings = [str(width).encode(), str(height).encode(), *map(_png, pixels)]
        shape = {"dim": [{"size": len(strings)}]}
        tensor = {"dtype": "DT_STRING", "string_val": strings, "tensor_shape": shape}
        described = metadata.create_summary_metadata(display_name=None, description="")
        self._write(
            step=step, summary={"value": [{"tag": tag, "tensor": tensor, "metadata": described}]}
        )

    def _write(self, **fields):
        events = extras.require("tensorboard.compat.proto.event_pb2", **PACKAGE)
        records = extras.require("tensorboard.summary.writer.record_writer", **PACKAGE)
        event = events.Event(wall_time=time.time(), **fields)
        with open(self.path, "ab") as file:
            records.RecordWriter(file).write(event.SerializeToString())


def _png(pixels):
    """A picture `(H, W, C)` of uint8 as the bytes of a PNG file."""
    pillow = extras.require("PIL.Image", extra="data", purpose="Writing pictures")
    file = io.BytesIO()
    pillow.fromarray(pixels if pixels.shape[-1] > 1 else pixels[..., 0]).save(file, "PNG")
    return file.getvalue()


def to_unit(images: np.ndarray) -> np.ndarray:
    """Stretches the values of each image of `(B, H, W, C)` to [0, 1]; three channels, or one."""
    images = np.asarray(images, "float32")[..., : 3 if np.shape(images)[-1] >= 3 else 1]
    low, high = (f(images, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    return (images - low) / np.maximum(high - low, 1e-12)


def tracker_callbacks(run: Run) -> list[keras.callbacks.Callback]:
    """Returns a list with the callback of the run's `tracker`; it is empty for "none".

    Raises:
        ValueError: If the tracker's package is missing; the message gives the command to install
            it.
    """
    name = run.config.tracker
    return [] if name == "none" else [TRACKERS[name](run)]


def _mlflow(run):
    mlflow = _import("mlflow.keras", "mlflow")
    mlflow.start_run(run_name=run.folder.name)
    return mlflow.keras.MlflowCallback()


def _wandb(run):
    """Continues the W&B run that the name of the folder identifies."""
    wandb = _import("wandb.integration.keras", "wandb")
    wandb.init(
        id=run.folder.name,
        resume="allow",
        dir=str(run.folder),
        config=dataclasses.asdict(run.config),
    )
    return wandb.integration.keras.WandbMetricsLogger()


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}


def _import(module, package):
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"tracker={package!r} needs its package ({error}): pip install {package}"
        ) from error
    return importlib.import_module(package)
