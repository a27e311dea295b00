"""`export` writes a model's files for servers and phones, and compares each with Keras."""

import os
import pathlib

import keras
import numpy as np

from vit_keras.data.depth import to_levels
from vit_keras.exporting import jobs, manifest, samples, verification
from vit_keras.exporting.inference_model import for_inference
from vit_keras.exporting.jobs import Plan
from vit_keras.exporting.serving import check_attention, in_float32, serving_model
from vit_keras.exporting.targets import takes_prepared
from vit_keras.layers import PatchEmbedding
from vit_keras.layers.base import refuse_quantized
from vit_keras.models import preprocessing_of, task_of, with_image_size, with_one_output
from vit_keras.models.resized import check_any_size
from vit_keras.runtimes import scores_and_corners
from vit_keras.support import files
from vit_keras.support.files import claimed_output

CALIBRATION_IMAGES = 64
RESIZED_IMAGES = 8


def export(
    model: keras.Model,
    folder: str | os.PathLike,
    *,
    images: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    calibration: np.ndarray | None = None,
    image_size: int | tuple[int, int] | None = None,
    threads: tuple[int, ...] = (1, 2),
    sensitivity: bool = False,
    **options,
) -> list[dict]:
    """Exports `model` into `folder` and checks every file in its own runtime.

    The complete folder replaces an earlier export at once. It holds the files,
    `manifest.json`, `model_card.md` and, for a classifier, `labels.txt`.

    Args:
        model: A Keras model of any backend that maps images `(B, H, W, C)` to `(B, K)`. Its task
            (classes, labels, numbers, masks or boxes) decides what the files return. A detector
            with the outputs "logits" and "boxes" counts as boxes.
        folder: A new folder, or the folder of an earlier export.
        images: Images to compare on, `(N, H, W, C)` in the model's depth: uint8, uint16 for more
            than 255 levels, or float32. Crops of two photographs by default.
        labels: The classes of `images`, `(N,)`, or their labels, `(N, K)`; for boxes, `(N, M, 5)`
            as in `training.SetPrediction`. With them, accuracy is measured too, or COCO's AP.
        calibration: Images that set the ranges of static int8, shaped like `images`; by default the
            first 64 of `images`.
        image_size: The side, or height and width, of the exported model's images in pixels.
            Position embeddings are interpolated to it.
        threads: Numbers of threads; each file is timed once with each of them.
        sensitivity: Whether to report the loss from quantizing each layer alone.
        **options: The fields of `plan.Plan`: `formats`, `precisions`, `output`, `batch`, ….

    Returns:
        The manifest's rows, one dictionary for each file.

    Raises:
        ValueError: If the plan is impossible or another process exports to the folder; this is
            checked first, and nothing is written. Or if a converter fails or a file breaks a
            promise of `verification`: the other files are written, and the message has a line for
            each failed file. If all fail, nothing is written.
        ImportError: If a format needs a package that is not installed.
        OSError: If the disk cannot hold the files.

    Example:
        ```python
        rows = export(model, "files", formats=["litert", "onnx"], precisions=["fp32", "int8"])
        probabilities = vit_keras.runtimes.open("files/model_int8.tflite")(images)
        ```
    """
    refuse_quantized(model, "An export")
    model = with_one_output(model)
    if [len(x.shape) for x in model.inputs] != [4] or len(model.outputs) > 1:
        raise ValueError(
            "Exports are for images (B, H, W, C) and one output. Received: model "
            f"{model.name!r} with other inputs or outputs. Keras exports text towers and "
            "an OWL-ViT: model.export(path, format='onnx')"
        )
    plan, folder = Plan(**_with_output(model, options)), pathlib.Path(folder)
    if plan.attention:
        check_attention(model, plan.token_merging)
    if plan.dynamic_size:
        check_any_size(model)
    check_folder(folder)
    if image_size is not None:
        model = with_image_size(model, image_size)
    with claimed_output(folder, "an export"):
        return _export(model, folder, plan, images, labels, calibration, threads, sensitivity)


def _export(model, folder, plan, images, labels, calibration, threads, sensitivity):
    """Exports a model of the right size in the process that holds the folder's lock."""
    source = "given images" if images is not None else "crops of photographs"
    images = samples.photographs_for(model) if images is None else images
    inputs = _prepare(images, model, plan)
    expected, measured = _reference(model, plan, inputs, labels)
    reference = {"source": source, **measured}
    resized = _resized(model, plan, inputs[:RESIZED_IMAGES]) if plan.dynamic_size else None
    accuracy = reference.get("accuracy")
    job = jobs.Job(model, plan, inputs, expected, labels, resized, accuracy, sensitivity)
    if calibration is None:
        calibrating = inputs[:CALIBRATION_IMAGES]
    else:
        calibrating = _prepare(calibration, model, plan)
    with files.replacing_folder(folder) as new:
        rows, failures = jobs.make(job, new, calibrating, threads)
        manifest.write_documents(new, model, manifest.describe(model, plan, reference, rows))
    if failures:
        names = ", ".join(row["file"] for row in rows)
        raise ValueError(f"{folder} has {names}, but other files failed:\n" + "\n".join(failures))
    return rows


# What files may return beside their default, by the kind of label.
OTHER_OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("classes", "labels"), ("logits", "features")),
    "numbers": ("features",),
    "masks": ("mask", "logits", "features"),
    "boxes": (),
}
OF_PLACES = ("masks", "boxes")


def _with_output(model, options):
    """Adds the output of the model's task to the options of the plan."""
    task, output = task_of(model), options.get("output")
    allowed = (task.row.output, *OTHER_OUTPUTS[task.kind])
    if task.kind in OF_PLACES and options.get("token_merging"):
        raise ValueError(
            f"A model of {task.kind} needs the tokens of all patches. "
            f"Received: token_merging={options['token_merging']}"
        )
    if task.kind == "boxes" and options.get("attention"):
        raise ValueError("A file of boxes has no attention. Received: attention=True")
    if output not in (None, *allowed):
        raise ValueError(
            f"`output` of a model of {task.kind} must be "
            f"{' or '.join(filter(None, [', '.join(allowed[:-1]), allowed[-1]]))}. "
            f"Received: output={output!r}"
        )
    raw = options.get("raw", False) or takes_prepared(options.get("formats", ()))
    return {**options, "raw": raw, "output": output or task.row.output}


def _prepare(images, model, plan):
    """Prepares the images for the exported graph."""
    preprocessing = preprocessing_of(model)
    dtype = to_levels(images[:0], preprocessing.levels).dtype
    if images.shape[1:] != model.input_shape[1:] or images.dtype != dtype:
        raise ValueError(
            f"Images to compare on must be {dtype} of shape (N, *{model.input_shape[1:]}). "
            f"Received: {images.dtype} of shape {images.shape}"
        )
    prepared = preprocessing.normalize(images) if plan.raw else images
    return prepared.astype("float32" if plan.raw else preprocessing.input_type)


def _reference(model, plan, inputs, labels):
    """Returns Keras' outputs `(N, K)`, and the manifest's entry about them."""
    whole = expected = _outputs(in_float32(model), plan, inputs)
    if plan.token_merging:
        merged = for_inference(model, plan.token_merging, plan.merging_schedule)
        expected = _outputs(merged, plan, inputs)
    task, output = task_of(model), plan.graph_output
    compare = lambda out: verification.compare(out, expected, output, labels, task)
    reference = compare(expected)
    if plan.token_merging:
        reference["without_merging"] = compare(whole)
    return expected, reference


def _resized(model, plan, inputs):
    """Returns the images with one more row and two more columns of patches, and Keras' outputs."""
    height, width = next(x.patch_size for x in model.layers if isinstance(x, PatchEmbedding))
    images = np.pad(inputs, [(0, 0), (0, height), (0, 2 * width), (0, 0)], mode="wrap")
    return images, _outputs(with_image_size(in_float32(model), images.shape[1:3]), plan, images)


def _outputs(model, plan, inputs):
    served = serving_model(model, plan.graph_output, plan.raw)
    answers = served.predict(inputs, verbose=0)
    return scores_and_corners(answers) if isinstance(answers, dict) else np.asarray(answers)


def check_folder(folder: pathlib.Path) -> None:
    """Checks that `folder` is new, empty, or an earlier export.

    Raises:
        ValueError: If it holds anything else.
    """
    is_export = (folder / "manifest.json").is_file()
    if folder.exists() and not is_export and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            "An export needs a new folder, or an earlier export, which has a manifest.json, to "
            f"replace. Received: {str(folder)!r}, which holds something else"
        )
