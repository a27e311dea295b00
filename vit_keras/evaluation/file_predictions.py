"""Predictions for picture files, batch by batch."""

import dataclasses
import itertools
import os
import pathlib
from collections.abc import Iterable, Iterator, Sequence

import keras
import numpy as np

from vit_keras import data
from vit_keras.data.pillow_images import check_channels
from vit_keras.evaluation.predictors import Predictor, make_predictor

ON_ERROR = ("raise", "skip")


@dataclasses.dataclass(frozen=True)
class FilePrediction:
    """The most likely classes of one picture.

    Attributes:
        path: The file.
        classes: Names and probabilities, the most likely class first. Empty if there is an `error`.
        error: Why the picture could not be read, or None.
    """

    path: pathlib.Path
    classes: tuple[tuple[str, float], ...] = ()
    error: str | None = None


def predict_files(
    predictor: Predictor,
    paths: Iterable[str | os.PathLike],
    *,
    batch: int = 32,
    top: int = 5,
    on_error: str = "raise",
) -> Iterator[FilePrediction]:
    """Predicts the classes of picture files in the order of their paths.

    Only one batch of pictures is in memory at a time.

    Args:
        predictor: From `open_predictor` or `make_predictor`.
        paths: The files, such as `data.expand_pictures` finds.
        batch: The number of pictures per call of the predictor.
        top: The number of classes per picture.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to return the
            reason as its `error` and go on.

    Returns:
        An iterator of one `FilePrediction` per path.

    Raises:
        ValueError: If an argument is out of range or, while iterating with `"raise"`, if a picture
            cannot be read. The message names the file.
        FileNotFoundError: While iterating with `"raise"`, if a file does not exist.

    Example:
        ```python
        predictor, _ = evaluation.open_predictor("runs/mine")
        for row in evaluation.predict_files(predictor, data.expand_pictures(["photos"])):
            name, probability = row.classes[0]
            print(f"{row.path}: {name} ({probability:.1%})")
        ```
    """
    if on_error not in ON_ERROR:
        raise ValueError(f"`on_error` must be 'raise' or 'skip'. Received: on_error={on_error!r}")
    if batch < 1 or top < 1:
        raise ValueError(f"`batch` and `top` must be positive. Received: batch={batch}, top={top}")
    check_channels(predictor.input_shape[-1])
    return _predict(predictor, map(pathlib.Path, paths), batch, top, on_error)


def classify(
    source: keras.Model | Predictor, paths: Sequence[str | os.PathLike], top: int = 3
) -> list[list[tuple[str, float]]]:
    """Returns the `top` most likely classes and their probabilities for each picture.

    A short form of `predict_files` for a few pictures, which also takes a Keras model.

    Raises:
        FileNotFoundError, ValueError: If a picture cannot be read; the message names the file.
    """
    predictor = source if isinstance(source, Predictor) else make_predictor(source)
    return [list(row.classes) for row in predict_files(predictor, paths, top=top)]


def _predict(predictor, paths, batch, top, on_error):
    size = 0
    while rows := _read_rows(predictor, paths, batch, on_error):
        images = np.array([image for _, image, _ in rows if image is not None], "float32")
        size = max(size, len(images))
        probabilities = iter(_probabilities(predictor, images, size))
        for path, image, error in rows:
            classes = () if image is None else _most_likely(predictor, next(probabilities), top)
            yield FilePrediction(path, classes, error)


def _read_rows(predictor, paths, batch, on_error):
    """Reads the next `batch` files: path, the image or None, and the error or None."""
    rows: list[tuple[pathlib.Path, np.ndarray | None, str | None]] = []
    for path in itertools.islice(paths, batch):
        try:
            rows.append((path, _read_image(predictor, path), None))
        except (FileNotFoundError, ValueError) as error:
            if on_error == "raise":
                raise
            rows.append((path, None, str(error)))
    return rows


def _read_image(predictor, path):
    height, width, channels = predictor.input_shape
    picture = data.read_image(path, channels)
    pixels = data.resize(picture, (height, width), predictor.preprocessing)
    return data.normalize(pixels, predictor.preprocessing)


def _probabilities(predictor, images, size):
    """Probabilities `(N, K)` of N images.

    Fewer images than the `size` of an earlier batch are filled up to it, since models are compiled
    again for another size.
    """
    if not len(images):
        return images
    filled = np.concatenate([images, np.repeat(images[-1:], size - len(images), axis=0)])
    outputs = np.asarray(predictor.run(filled), "float32")[: len(images)]
    return predictor.as_probabilities(outputs)


def _most_likely(predictor, probabilities, top):
    order = probabilities.argsort()[::-1][:top]
    names = predictor.class_names or [str(k) for k in range(predictor.num_classes)]
    return tuple((names[k], float(probabilities[k])) for k in order)
