"""One interface to the predictions of runs, checkpoints, models and exported files."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import numpy as np

from vit_keras import data, runtimes
from vit_keras.data.depth import to_levels
from vit_keras.runtimes import format_of
from vit_keras.support import command_line
from vit_keras.support.box_metrics import scored_corners, softmax
from vit_keras.support.checks import pair, parse_json, read_json
from vit_keras.support.files import is_address, read_text
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, Preprocessing, with_tuples
from vit_keras.support.tasks import CLASSES, Task, check_class_names

if TYPE_CHECKING:
    import keras

    from vit_keras import runs

NO_IMAGES = "An evaluation needs at least one image. Received: none"


@dataclasses.dataclass(frozen=True)
class Predictor:
    """A model that takes batches of images, made by `open_predictor` or `make_predictor`.

    Attributes:
        run: Maps images `(B, H, W, C)`, prepared by `preprocessing`, to outputs `(B, K)`; for
            boxes, to those of `models.with_joined_boxes`, or to scores and corners.
        input_shape: (H, W, C).
        num_classes: K.
        preprocessing: Turns pictures into the images that `run` takes.
        gives_probabilities: Whether the outputs are probabilities or predicted numbers. If not,
            they are logits.
        class_names: The K names in the order of the outputs; None if they are unknown.
        model: The Keras model; None for an exported file.
        task: What the outputs are.
        gives_masks: Whether the probabilities are 0 and 1, from the masks of an exported file.

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

    def __post_init__(self):
        if self.class_names is not None:
            check_class_names(self.class_names, self.num_classes)

    @property
    def names(self) -> tuple[str, ...]:
        """The K names; the numbers of the classes if their names are unknown."""
        return self.class_names or tuple(map(str, range(self.num_classes)))

    @property
    def depth(self) -> tuple[float, tuple[int, ...]]:
        """The levels and bands with which to read pictures."""
        return self.preprocessing.levels, self.preprocessing.bands

    def keras_model(self, purpose: str) -> "keras.Model":
        """Returns the Keras model; raises ValueError without one."""
        if self.model is None:
            raise ValueError(
                f"{purpose} needs a Keras model. Received: an exported file, or several "
                "views (--tta). Give the run or the checkpoint, without --tta"
            )
        return self.model

    def batches(self, split: "data.Split", batch: int):
        """Makes batches of a split's images, prepared for `run`, and labels, in order."""
        if not len(split):
            raise ValueError(NO_IMAGES)
        return data.eval_batches(
            split, image_size=self.input_shape[:2], preprocessing=self.preprocessing, batch=batch
        )

    def outputs(self, batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
        """Runs all batches of images and labels.

        Returns:
            The outputs, `(N, K)` float32, and the labels, `(N,)` or `(N, K)`.

        Raises:
            ValueError: If there are no batches, or if outputs are not finite.
        """
        run = lambda images: np.asarray(self.run(np.asarray(images)), "float32")
        rows = [(run(images), np.asarray(labels)) for images, labels in batches]
        outputs, labels = map(np.concatenate, zip(*rows))
        check_finite(outputs)
        return outputs, labels

    def as_probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """Returns the outputs, after a softmax or sigmoid if they are logits.

        For boxes, see `support.box_metrics.scored_corners`.
        """
        return outputs if self.gives_probabilities else ACTIVATIONS[self.task.row.output](outputs)


def filled(run: Callable, size: int = 0) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that calls `run` on batches filled with copies of their images.

    Batches are filled up to `size` or to the largest batch so far, since another number of images
    would recompile the model and change the outputs' last bits. Only the outputs of the given
    images are returned, in float32.
    """
    largest = size

    def run_filled(images):
        nonlocal largest
        largest = max(largest, len(images))
        whole = np.resize(images, (largest, *images.shape[1:]))
        return np.asarray(run(whole), "float32")[: len(images)]

    return run_filled


def check_finite(outputs: np.ndarray, path: str | os.PathLike = "") -> None:
    """Raises ValueError if outputs are NaN or infinite; the message names the picture `path`."""
    if not np.isfinite(outputs).all():
        where = f" for {os.fspath(path)!r}" if path else ""
        raise ValueError(f"Outputs must be finite. Received: NaN or infinity{where}")


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Computes 1 / (1 + exp(-x)) without overflow, in the type of `logits`.

    Example:
        >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
        array([0. , 0.5, 1. ])
    """
    small = np.exp(-np.abs(logits))
    return np.where(logits >= 0, 1, small) / (1 + small)


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "values": lambda numbers: numbers,
    "boxes": scored_corners,
}


def make_predictor(
    model: "keras.Model", image_size: int | tuple[int, int] | None = None
) -> Predictor:
    """Makes a predictor from a Keras model.

    Args:
        model: A classifier.
        image_size: The side of the images in pixels, or their height and width, if different from
            the model's. Position embeddings are interpolated.

    Raises:
        ValueError: If the model takes images of any size and `image_size` is not given.

    Example:
        ```python
        predictor = evaluation.make_predictor(model, image_size=384)
        evaluation.classify(predictor, ["cat.jpg"])
        ```
    """
    from vit_keras import models

    model = models.with_one_output(model)
    if len(model.outputs) > 1:
        raise ValueError(
            f"Predictions need a model with one output. Received: {model.name!r}, which gives "
            f"{', '.join(getattr(model, 'output_names', ()))}. Call it directly: model(images)"
        )
    size = None if image_size is None else pair(image_size, "image_size")
    if size is not None and None not in model.input_shape[1:]:
        model = models.with_image_size(model, size)
    shape = (*(size or model.input_shape[1:3]), *model.input_shape[3:])
    if None in shape:
        raise ValueError(NEEDS_SIZE.format(f"model {model.name!r}"))
    names, task = tuple(getattr(model, "class_names", None) or ()), models.task_of(model)
    count, preprocessing = models.count_classes(model), models.preprocessing_of(model)
    final, run = models.ends_in_softmax(model), model.predict_on_batch
    return Predictor(run, shape, count, preprocessing, final, names or None, model, task)


def predict(model: "keras.Model", batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
    """Runs a model, such as a classifier or a `feature_model`, on batches of images and labels.

    Returns:
        The outputs, `(N, K)` float32, and the labels, `(N,)`.

    Raises:
        ValueError: If there are no batches, or if outputs are not finite.

    Example:
        ```python
        size = {"image_size": (224, 224), "preprocessing": model.preprocessing}
        batches = data.eval_batches(dataset.split("test"), batch=32, **size)
        logits, labels = evaluation.predict(model, batches)
        ```
    """
    return make_predictor(model).outputs(batches)


def probabilities(model: "keras.Model", images: np.ndarray) -> np.ndarray:
    """Computes the probabilities of classes, whether or not the model ends in a softmax.

    Args:
        model: A classifier.
        images: `(N, H, W, C)`, prepared by the model's `preprocessing`.

    Returns:
        `(N, K)` float32.
    """
    predictor = make_predictor(model)
    return predictor.as_probabilities(predictor.run(images).astype("float32"))


REMEDY = "Restore it, or export the model again"
NEEDS_SIZE = "`image_size` must be given for a model of any size. Received: None for {}"


class Input(TypedDict, total=False):
    """The description of the input in `manifest.json`."""

    preprocessing: Preprocessing
    preprocessing_is_inside: bool
    shape: list[int]


class Note(TypedDict, total=False):
    """What an exported file says about itself."""

    task: Task
    names: list[str] | None
    output: str
    levels: float
    bands: list[int]


class Manifest(Note):
    """The content of `manifest.json`."""

    files: list[dict[str, Any]]
    input: NotRequired[Input]


def open_predictor(
    path: str | os.PathLike,
    image_size: int | tuple[int, int] | None = None,
    features: bool = False,
    labels: str | os.PathLike | None = None,
) -> tuple[Predictor, "runs.Run | None"]:
    """Opens a run, a checkpoint, or an exported file.

    The preprocessing and the classes of an exported file come from `manifest.json` and `labels.txt`
    beside it. Without a manifest, the file must take uint8 pixels. TFLite, ONNX and SavedModel
    files then describe their outputs and, for classes, the levels of their pixels. For other files,
    outputs for noise show whether they are probabilities or logits.

    Args:
        path: A run's folder, a checkpoint of any format, or an exported file.
        image_size: The side of the images in pixels, or their height and width, if it is not the
            model's.
        features: Whether an exported file must give features instead of classes. The predictor's
            `num_classes` is then the length of the features.
        labels: A file of class-name embeddings from `vit-keras labels`, which turns an image tower
            into a classifier; None uses the model's own outputs.

    Returns:
        The predictor, and the run; None for anything but a run's folder.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If an exported file is not an image classifier, or needs another size; with
            `features`, if it gives no features.
        ImportError: If the runtime of an exported file is not installed.

    Example:
        ```python
        predictor, run = evaluation.open_predictor("runs/mine")
        ```
    """
    if is_address(os.fspath(path)):
        from vit_keras import weights

        path = weights.local_path(path)
    if format_of(path):
        if labels is not None:
            raise ValueError(
                "`labels` needs a checkpoint whose image tower becomes a classifier. Received: "
                f"{os.fspath(path)!r}, an exported file; give --labels to `vit-keras export`"
            )
        return _open_exported(pathlib.Path(path), image_size, features), None
    from vit_keras import runs, weights

    run, model = runs.run_of(path), weights.open(path)
    model = model if labels is None else weights.with_text_head(model, labels)
    return make_predictor(model, image_size), run


def _open_exported(path, image_size, features):
    with command_line.quiet():
        exported = runtimes.open(path)
    boxes = {"output": "boxes", "task": {"kind": "boxes"}} if exported.gives_boxes else {}
    facts: dict[str, Any] = {**boxes, **_description(path, exported.note)}
    output, names = facts.get("output"), None if features else facts.get("names")
    if (output == "features") != features:
        needed, received = ("features", "classes") if features else ("classes", "features")
        raise ValueError(
            f"The file must give {needed}. Received: {os.fspath(path)!r}, which gives {received}. "
            f"Export it again{' with --output features' if features else ''}, or give the run or "
            "the checkpoint that it was made from"
        )
    preprocessing, shape = _images_of(path, exported, facts, image_size)
    read = (lambda images: to_levels(images, 255)) if exported.dtype == "uint8" else np.asarray
    run = lambda images: exported(read(images))
    if is_mask := output == "mask":  # classes become probabilities, which can be resized
        if not facts.get("names"):
            raise ValueError(
                "An exported file of masks needs the names of its classes. Received: "
                f"{os.fspath(path)!r} without labels.txt. {REMEDY}"
            )
        classes = np.eye(len(facts["names"]), dtype="float32")
        run = lambda images: classes[exported(read(images))]
    task = Task(**with_tuples(facts.get("task", {})))
    final = output in (task.row.output, "mask") if output else _gives_probabilities(exported, shape)
    count, names = len(facts["names"]) if is_mask else exported.num_outputs, names and tuple(names)
    return Predictor(run, shape, count, preprocessing, final, names, None, task, is_mask)


def _description(path, note):
    """Joins an exported file's own note with its `manifest.json` and its `labels.txt`."""
    facts = parse_json(note or "{}", f"The task in {os.fspath(path)!r}", Note, REMEDY)
    folder, manifest = _manifest_of(path)
    if (labels := folder / "labels.txt").is_file():
        facts["names"] = read_text(labels, REMEDY).splitlines()
    return facts | manifest


def _manifest_of(path):
    """Returns the folder that an exported file was written to, and its manifest or {}."""
    for folder in path.parents[:2]:
        file = folder / "manifest.json"
        manifest = read_json(file, Manifest, REMEDY) if file.exists() else {"files": []}
        if path.relative_to(folder).as_posix() in [row.get("file") for row in manifest["files"]]:
            return folder, manifest
    return path.parent, {}


def _images_of(path, exported, facts, image_size):
    """Returns the preprocessing of an exported file's images, and their shape `(H, W, C)`."""
    source, size = facts.get("input", {}), None
    depth = {name: facts[name] for name in ("levels", "bands") if name in facts}
    fields = with_tuples(depth | source.get("preprocessing", {}))
    preprocessing = dataclasses.replace(PUBLISHED_PREPROCESSING, **fields)
    if image_size is not None:
        size = pair(image_size, "image_size")
    shape, dtype = exported.input_shape, "float32"
    if source.get("preprocessing_is_inside", True):
        dtype, preprocessing = preprocessing.input_type, preprocessing.unscaled()
    if None in shape:
        if (sides := size or source.get("shape")) is None:
            raise ValueError(NEEDS_SIZE.format(repr(os.fspath(path))))
        shape = (*sides[:2], shape[-1])
    if exported.dtype != dtype or len(shape) != 3:
        raise ValueError(
            f"An exported file must take {dtype} images (B, H, W, C), uint8 unless its "
            f"manifest.json says otherwise. Received: {os.fspath(path)!r}, which takes "
            f"{exported.dtype} {(None, *shape)}"
        )
    if size not in (None, shape[:2]):
        raise ValueError(
            f"`image_size` must be the exported file's. Received: image_size={image_size} for "
            f"{os.fspath(path)!r} of {shape[0]}x{shape[1]} pixels"
        )
    return preprocessing, shape


def _gives_probabilities(exported, shape):
    """Whether an exported file's outputs for noise are probabilities."""
    noise = np.random.default_rng(0).integers(0, 256, (4, *shape), dtype="uint8")
    outputs = exported(noise)
    return bool((outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=1e-2))
