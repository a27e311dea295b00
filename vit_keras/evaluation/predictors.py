"""One interface to all that classifies: models of Keras and exported files."""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import keras
import numpy as np

from vit_keras import data, runs
from vit_keras.models import Preprocessing, ends_in_softmax, preprocessing_of, with_image_size
from vit_keras.runtimes import format_of, open_file

NO_IMAGES = "An evaluation needs at least one image. Received: none"
# Pixels stay in [0, 255]: the exported file scales them itself.
BAKED_IN = {"mean": (0.0,), "std": (1 / 255,)}


class Predictions(NamedTuple):
    """What a predictor says of N labelled images.

    Attributes:
        probabilities: `(N, K)` float32.
        labels: `(N,)`.
        images_per_second: of the predictor alone, without its first batch, which compiles.
    """

    probabilities: np.ndarray
    labels: np.ndarray
    images_per_second: float


@dataclasses.dataclass(frozen=True)
class Predictor:
    """What classifies batches of images; `open_predictor` and `make_predictor` make one.

    Attributes:
        run: images `(B, H, W, C)`, scaled as `preprocessing` says -> outputs `(B, K)` float32.
        input_shape: (H, W, C).
        num_classes: K.
        preprocessing: how pictures become `run`'s images.
        gives_probabilities: whether the outputs are probabilities, or logits.
        class_names: in the order of the outputs; None where the source does not tell.
        model: the Keras model; None behind an exported file.
    """

    run: Callable[[np.ndarray], np.ndarray]
    input_shape: tuple[int, int, int]
    num_classes: int
    preprocessing: Preprocessing
    gives_probabilities: bool
    class_names: tuple[str, ...] | None = None
    model: keras.Model | None = None

    def batches(self, split: "data.Split", batch: int):
        """A split's images once, in order, as `run` takes them, with their labels."""
        if not len(split):
            raise ValueError(NO_IMAGES)
        size = self.input_shape[:2]
        return data.eval_batches(
            split, image_size=size, preprocessing=self.preprocessing, batch=batch
        )

    def outputs(self, batches: Iterable) -> tuple[np.ndarray, np.ndarray, float]:
        """Outputs `(N, K)` float32 and labels `(N,)` of all batches, and images per second.

        ValueError without any image, and for outputs that are not finite.
        """
        outputs, labels, first, images_timed, seconds = [], [], None, 0, 0.0
        for images, classes in batches:
            images = np.asarray(images)
            began = time.perf_counter()
            outputs.append(np.asarray(self.run(images), "float32"))
            if first is None:
                first = images
            elif len(images) == len(first):  # another size is compiled again
                images_timed, seconds = _add(images_timed, seconds, images, began)
            labels.append(np.asarray(classes))
        if not sum(map(len, labels)):
            raise ValueError(NO_IMAGES)
        if not images_timed:
            began = time.perf_counter()
            self.run(first)
            images_timed, seconds = _add(images_timed, seconds, first, began)
        found = np.concatenate(outputs)
        if not np.isfinite(found).all():
            bad = int((~np.isfinite(found)).any(axis=-1).sum())
            raise ValueError(f"Outputs must be finite. Received: {bad} images with NaN or infinity")
        return found, np.concatenate(labels), images_timed / seconds

    def predict(self, batches: Iterable) -> Predictions:
        """Probabilities, labels and speed over all batches of images and labels."""
        outputs, labels, speed = self.outputs(batches)
        return Predictions(self.as_probabilities(outputs), labels, speed)

    def as_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """The outputs, through a softmax where they are logits."""
        return outputs if self.gives_probabilities else softmax(outputs)


def _add(count, seconds, images, began):
    return count + len(images), seconds + time.perf_counter() - began


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


def make_predictor(model: keras.Model, image_size: int | None = None) -> Predictor:
    """A Keras model as a predictor; `image_size` where it is to see another size than its own.

    Position embeddings are interpolated then. ValueError where a model takes any size and none is
    given.
    """
    if image_size is not None and None not in model.input_shape[1:]:
        model = with_image_size(model, image_size)
    shape = tuple(image_size or n for n in model.input_shape[1:3]) + model.input_shape[3:]
    if None in shape:
        raise ValueError(f"Model {model.name!r} takes images of any size: give an image_size")
    names = getattr(model, "class_names", None)
    return Predictor(
        model.predict_on_batch,
        shape,
        model.output_shape[-1],
        preprocessing_of(model),
        ends_in_softmax(model),
        tuple(names) if names else None,
        model,
    )


def open_predictor(
    path: str | os.PathLike, image_size: int | None = None
) -> tuple[Predictor, runs.Run | None]:
    """The predictor of a run's folder with its run, or that of anything else with None.

    Anything else is a checkpoint of any format, or an exported file, beside which `manifest.json`
    and `labels.txt` are read where they are; without a manifest a file's answers to noise tell
    whether it gives probabilities or logits.
    """
    if format_of(path):
        return _of_file(pathlib.Path(path), image_size), None
    model, run = runs.open_source(path)
    return make_predictor(model, image_size), run


def _of_file(path, image_size):
    exported, (folder, manifest) = open_file(path), _beside(path)
    source = manifest.get("input", {})
    prepared = not source.get("preprocessing_is_inside", True)
    shape, dtype = exported.input_shape, "float32" if prepared else "uint8"
    if exported.dtype != dtype or len(shape) != 3:
        raise ValueError(
            f"Exported files take {dtype} images (B, H, W, C), as export.py writes them"
            f"{'' if manifest else ' where no manifest.json beside them says more'}. "
            f"Received: {os.fspath(path)!r}, which takes {exported.dtype} {(None, *shape)}"
        )
    if image_size is not None and shape[:2] != (image_size, image_size):
        raise ValueError(
            f"The size of an exported file is fixed. Received: image_size={image_size} for "
            f"{os.fspath(path)!r} of {shape[0]}x{shape[1]} pixels"
        )
    output, labels = manifest.get("output"), folder / "labels.txt"
    if output == "features":
        raise ValueError(f"A classifier is needed. Received: {os.fspath(path)!r}, of features")
    names = tuple(labels.read_text().splitlines()) if labels.is_file() else None
    given = source.get("preprocessing", {}) | ({} if prepared else BAKED_IN)
    to_pixels = lambda images: np.clip(np.round(images), 0, 255).astype("uint8")
    run = exported if prepared else lambda images: exported(to_pixels(images))
    softmaxed = output == "softmax" if output else _gives_probabilities(exported)
    return Predictor(run, shape, exported.num_outputs, Preprocessing(**given), softmaxed, names)


def _gives_probabilities(exported):
    """Whether a file of which nothing else tells answers noise by probabilities."""
    noise = np.random.default_rng(0).integers(0, 256, (4, *exported.input_shape), dtype="uint8")
    outputs = exported(noise)
    return bool((outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=1e-2))


def _beside(path):
    """The folder that an exported file was written to, and its manifest; {} without one."""
    for folder in path.parents[:2]:
        file = folder / "manifest.json"
        manifest = json.loads(file.read_text()) if file.is_file() else {"files": []}
        if path.relative_to(folder).as_posix() in [row["file"] for row in manifest["files"]]:
            return folder, manifest
    return path.parent, {}
