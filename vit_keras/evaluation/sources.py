"""Opens runs, checkpoints, and exported files as predictors."""

import dataclasses
import os
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NotRequired, TypedDict

import numpy as np

from vit_keras import _command_line
from vit_keras.annotated import pair
from vit_keras.data.depth import to_levels
from vit_keras.embedded_task import read_task
from vit_keras.evaluation.predictors import Predictor, make_predictor
from vit_keras.files import read_text
from vit_keras.hub_address import is_address
from vit_keras.json_files import read_json
from vit_keras.preprocessing import PUBLISHED_PREPROCESSING, Preprocessing, with_tuples
from vit_keras.runtimes import format_of, open_file
from vit_keras.tasks import Task

if TYPE_CHECKING:
    from vit_keras import runs

REMEDY = "Restore it, or export the model again"
NEEDS_CLASSES = "Predictions need a classifier. Received: {!r}, which gives features"
NEEDS_FEATURES = (
    "Embeddings need features. Received: {!r}, which gives classes. Export it again with --output "
    "features, or give the run or the checkpoint that it was made of"
)


class File(TypedDict):
    """A row of `manifest.json`."""

    file: str


class Input(TypedDict):
    """How `manifest.json` describes the input."""

    preprocessing: NotRequired[Preprocessing]
    preprocessing_is_inside: NotRequired[bool]


class Manifest(TypedDict):
    """What `manifest.json` must hold."""

    files: list[File]
    input: NotRequired[Input]
    output: NotRequired[str]
    task: NotRequired[Task]


def open_predictor(
    path: str | os.PathLike,
    image_size: int | tuple[int, int] | None = None,
    features: bool = False,
    labels: str | os.PathLike | None = None,
) -> tuple[Predictor, "runs.Run | None"]:
    """Opens a run, a checkpoint, or an exported file.

    The preprocessing and the classes of an exported file come from `manifest.json` and `labels.txt`
    beside it. Without a manifest, the file must take uint8 pixels. TFLite, ONNX and SavedModel
    files then say themselves what their outputs and, of classes, the levels of their pixels are;
    other files show by their outputs for noise whether they give probabilities or logits.

    Args:
        path: A run's folder, a checkpoint of any format, or an exported file.
        image_size: The side of the images in pixels, or their height and width, if it is not the
            model's.
        features: Whether an exported file must give features instead of classes. The predictor's
            `num_classes` is then the length of the features.
        labels: A file of embeddings of class names, as `vit-keras labels` writes it, which makes a
            classifier of an image tower; None takes the model's own outputs.

    Returns:
        The predictor, and the run; None for anything but a run's folder.

    Raises:
        FileNotFoundError: If there is nothing at `path`.
        ValueError: If an exported file is no classifier of images, or has another size; with
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
                "`labels` make a classifier of the image tower in a checkpoint. Received: "
                f"{os.fspath(path)!r}, an exported file; give --labels to `vit-keras export`"
            )
        return _open_exported(pathlib.Path(path), image_size, features), None
    from vit_keras import runs, weights

    model, run = runs.open_source(path)
    model = model if labels is None else weights.with_text_head(model, labels)
    return make_predictor(model, image_size), run


def _open_exported(path, image_size, features):
    with _command_line.quiet():
        exported = open_file(path)
    (folder, manifest), inside = _manifest_of(path), read_task(path)
    source = manifest.get("input", {})
    prepared = not source.get("preprocessing_is_inside", True)
    depth = {name: inside[name] for name in ("levels", "bands") if name in inside}
    fields = depth | source.get("preprocessing", {})
    preprocessing = dataclasses.replace(PUBLISHED_PREPROCESSING, **with_tuples(fields))
    shape, dtype = exported.input_shape, "float32" if prepared else preprocessing.input_type
    if exported.dtype != dtype or len(shape) != 3:
        raise ValueError(
            f"An exported file {'with this' if manifest else 'without a'} manifest.json must take "
            f"{dtype} images (B, H, W, C). "
            f"Received: {os.fspath(path)!r}, which takes {exported.dtype} {(None, *shape)}"
        )
    if image_size is not None and shape[:2] != pair(image_size, "image_size"):
        raise ValueError(
            f"`image_size` must be the exported file's. Received: image_size={image_size} for "
            f"{os.fspath(path)!r} of {shape[0]}x{shape[1]} pixels"
        )
    output, labels = (inside | manifest).get("output"), folder / "labels.txt"
    if (output == "features") != features:
        message = NEEDS_FEATURES if features else NEEDS_CLASSES
        raise ValueError(message.format(os.fspath(path)))
    names = None if features else inside.get("names")
    if labels.is_file() and not features:
        names = read_text(labels, REMEDY).splitlines()
    if not prepared:  # the file scales pixels itself
        preprocessing = preprocessing.unscaled()
    run: Callable[[np.ndarray], np.ndarray] = exported
    if dtype == "uint8":
        run = lambda images: exported(to_levels(images, 255))
    num_outputs = exported.num_outputs
    if output == "mask" and names is not None:
        num_outputs, run = len(names), _one_hot(run, len(names))
    task = Task(**({} if features else with_tuples((inside | manifest).get("task", {}))))
    final = output in (task.row.output, "mask") if output else _gives_probabilities(exported)
    return Predictor(
        run,
        shape,
        num_outputs,
        preprocessing,
        final or task.kind == "numbers",
        names and tuple(names),
        task=task,
        gives_masks=output == "mask",
    )


def _one_hot(run, count):
    """A file's masks `(B, H, W)` as probabilities `(B, H, W, K)`, which can be resized."""
    return lambda images: np.eye(count, dtype="float32")[np.asarray(run(images), "int64")]


def _gives_probabilities(exported):
    """Whether the outputs of an exported file for noise are probabilities."""
    noise = np.random.default_rng(0).integers(0, 256, (4, *exported.input_shape), dtype="uint8")
    outputs = exported(noise)
    return bool((outputs >= 0).all() and np.allclose(outputs.sum(axis=-1), 1, atol=1e-2))


def _manifest_of(path):
    """Returns the folder that an exported file was written to, and its manifest or {}."""
    for folder in path.parents[:2]:
        file = folder / "manifest.json"
        manifest = read_json(file, Manifest, REMEDY) if file.exists() else {"files": []}
        if path.relative_to(folder).as_posix() in [row["file"] for row in manifest["files"]]:
            return folder, manifest
    return path.parent, {}
