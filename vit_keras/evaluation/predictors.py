"""One interface to Keras models and exported files that classify images."""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vit_keras import data
from vit_keras.annotated import pair
from vit_keras.evaluation.disagreement import Disagreement
from vit_keras.evaluation.labels import sigmoid
from vit_keras.preprocessing import Preprocessing
from vit_keras.tasks import CLASSES, Task, check_class_names

if TYPE_CHECKING:
    import keras

NO_IMAGES = "An evaluation needs at least one image. Received: none"


class Predictions(NamedTuple):
    """Predictions for N labeled images.

    Attributes:
        probabilities: `(N, K)` float32; the predicted numbers if the task is numbers.
        labels: The true classes, `(N,)`, or labels or numbers, `(N, K)`.
        images_per_second: The speed of the predictor alone, without its first batch, which is
            compiled.
    """

    probabilities: np.ndarray
    labels: np.ndarray
    images_per_second: float


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A model of image batches, made by `open_predictor` or `make_predictor`.

    Attributes:
        run: Maps images `(B, H, W, C)`, prepared as `preprocessing` says, to outputs `(B, K)`.
        input_shape: (H, W, C).
        num_classes: K.
        preprocessing: How pictures become the images that `run` takes.
        gives_probabilities: Whether the outputs are probabilities, or the predicted numbers. If
            not, they are logits.
        class_names: The K names in the order of the outputs; None if they are unknown.
        model: The Keras model; None for an exported file.
        task: What the outputs are.
        gives_masks: Whether the probabilities are 0 and 1, made from an exported file's masks.
        disagreement: Compares the views of `with_views`.
        unmirrored: The predictor whose answers for a picture and for its mirror image are averaged;
            None if they are not.

    Example:
        ```python
        predictor = evaluation.make_predictor(model)
        outputs = predictor.run(images)  # (B, K)
        probabilities = predictor.as_probabilities(outputs)
        ```
    """

    run: Callable[[np.ndarray], np.ndarray]
    input_shape: tuple[int, int, int]
    num_classes: int
    preprocessing: Preprocessing
    gives_probabilities: bool
    class_names: tuple[str, ...] | None = None
    model: "keras.Model | None" = None
    task: Task = CLASSES
    gives_masks: bool = False
    disagreement: Disagreement = dataclasses.field(default_factory=Disagreement)
    unmirrored: "Predictor | None" = None

    def __post_init__(self):
        if self.class_names is not None:
            check_class_names(self.class_names, self.num_classes)

    def batches(self, split: "data.Split", batch: int):
        """Makes batches of a split's images, prepared for `run`, and labels, in order."""
        if not len(split):
            raise ValueError(NO_IMAGES)
        size = self.input_shape[:2]
        return data.eval_batches(
            split, image_size=size, preprocessing=self.preprocessing, batch=batch
        )

    def outputs(self, batches: Iterable) -> tuple[np.ndarray, np.ndarray, float]:
        """Runs all batches of images and labels.

        Returns:
            The outputs, `(N, K)` float32; the labels, `(N,)`; and the images per second.

        Raises:
            ValueError: If there are no images, or if outputs are not finite.
        """
        outputs, labels, first, images_timed, seconds = [], [], None, 0, 0.0
        for images, classes in batches:
            images = np.asarray(images)
            began = time.perf_counter()
            outputs.append(np.asarray(self.run(images), "float32"))
            self.disagreement.keep(len(images))
            if first is None:
                first = images
            elif len(images) == len(first):  # a model is compiled again for another size
                images_timed, seconds = _add(images_timed, seconds, images, began)
            labels.append(np.asarray(classes))
        if first is None or not sum(map(len, labels)):
            raise ValueError(NO_IMAGES)
        if not images_timed:
            began = time.perf_counter()
            self.run(first)
            images_timed, seconds = _add(images_timed, seconds, first, began)
        self.disagreement.report()
        joined = np.concatenate(outputs)
        if not np.isfinite(joined).all():
            bad = int((~np.isfinite(joined)).any(axis=-1).sum())
            raise ValueError(f"Outputs must be finite. Received: {bad} images with NaN or infinity")
        return joined, np.concatenate(labels), images_timed / seconds

    def predict(self, batches: Iterable) -> Predictions:
        """Predicts all batches of images and labels; raises as `outputs` does."""
        outputs, labels, speed = self.outputs(batches)
        return Predictions(self.as_probabilities(outputs), labels, speed)

    def as_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the outputs, after a softmax or sigmoid if they are logits."""
        return outputs if self.gives_probabilities else ACTIVATIONS[self.task.row.output](outputs)


def _add(count, seconds, images, began):
    return count + len(images), seconds + time.perf_counter() - began


def softmax(logits: np.ndarray) -> np.ndarray:
    """Computes the softmax over the last axis."""
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "values": lambda numbers: numbers,
}


def make_predictor(
    model: "keras.Model", image_size: int | tuple[int, int] | None = None
) -> Predictor:
    """Makes a predictor from a Keras model.

    Args:
        model: A classifier.
        image_size: The side of the images in pixels, or their height and width, if it is not the
            model's. Position embeddings are interpolated.

    Raises:
        ValueError: If the model takes images of any size and `image_size` is not given.

    Example:
        ```python
        predictor = evaluation.make_predictor(model, image_size=384)
        evaluation.classify(predictor, ["cat.jpg"])
        ```
    """
    from vit_keras import models

    size = None if image_size is None else pair(image_size, "image_size")
    if size is not None and None not in model.input_shape[1:]:
        model = models.with_image_size(model, size)
    shape = (*(size or model.input_shape[1:3]), *model.input_shape[3:])
    if None in shape:
        raise ValueError(
            f"`image_size` is needed for a model that takes images of any size. Received: "
            f"image_size=None for model {model.name!r}"
        )
    names = getattr(model, "class_names", None)
    return Predictor(
        model.predict_on_batch,
        shape,
        model.output_shape[-1],
        models.preprocessing_of(model),
        models.ends_in_softmax(model),
        tuple(names) if names else None,
        model,
        models.task_of(model),
    )
