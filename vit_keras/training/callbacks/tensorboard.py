"""Writes records, training images and attention maps for TensorBoard."""

from typing import Any

import keras
import numpy as np

from vit_keras.models import attention_maps, attention_rollout, patch_grid
from vit_keras.runs import Run
from vit_keras.training.callbacks.recorder import Recorder

PICTURES = 8


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
        self.writers: dict[str, Any] = {}

    def on_train_begin(self, logs=None):
        import tensorflow as tf

        self.tf = tf
        for name in ("train", "validation"):
            if name not in self.writers:
                self.writers[name] = tf.summary.create_file_writer(str(self.folder / name))
        if self.watch_every and not hasattr(self, "maps"):
            self.maps = attention_maps(self.model)
            self.pictures = np.array(next(iter(self.validation))[0][:PICTURES])
        if self.images is not None:
            self._write_images("augmented", to_unit(self.images[:PICTURES]), self.recorder.step)
            self.images = None

    def on_epoch_end(self, epoch, logs=None):
        row = dict(self.recorder.rows[-1])
        step = row.pop("step")
        for name, value in row.items():
            held_out = name.startswith("val_")
            with self.writers["validation" if held_out else "train"].as_default():
                self.tf.summary.scalar(name.removeprefix("val_"), value, step)
        if self.watch_every and len(self.recorder.rows) % self.watch_every == 0:
            self._write_attention(step)
        for writer in self.writers.values():
            writer.flush()

    def _write_images(self, name, images, step):
        with self.writers["train"].as_default():
            self.tf.summary.image(name, images, step, max_outputs=PICTURES)

    def _write_attention(self, step):
        maps = keras.ops.convert_to_numpy(self.maps(self.pictures))
        heat = attention_rollout(maps)[:, 0]  # the first token represents the image
        heat = heat[:, -np.prod(patch_grid(self.model)) :]  # without a class token
        heat = heat.reshape(-1, *patch_grid(self.model), 1)  # (B, h, w, 1)
        heat = self.tf.image.resize(to_unit(heat), self.pictures.shape[1:3]).numpy()
        self._write_images("attention", to_unit(self.pictures) * heat, step)


def to_unit(images: np.ndarray) -> np.ndarray:
    """Stretches the values of each image of `(B, H, W, C)` to [0, 1]."""
    images = np.asarray(images, "float32")
    low, high = (f(images, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    return (images - low) / np.maximum(high - low, 1e-12)
