"""Files of a model for servers and phones, each compared with Keras before it is handed over."""

import contextlib
import os
import pathlib
import shutil
import tempfile

import keras
import numpy as np

from vit_keras.exporting import attention_output, jobs, manifest, samples, verification
from vit_keras.exporting.inference_model import for_inference
from vit_keras.exporting.plan import Plan
from vit_keras.exporting.serving import in_float32, serving_model
from vit_keras.models import preprocessing_of, with_image_size


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
    **plan,
) -> list[dict]:
    """Writes files of `model` and a `manifest.json` into `folder`; returns the manifest's rows.

    `plan` are the fields of `Plan`: formats, precisions and the graph. Every file answers, in its
    own runtime, `images` `(N, H, W, C)` uint8 (photographs by default), and with `labels` `(N,)`
    its accuracy is measured; it is timed with each of `threads`. `calibration`, more images, gives
    static int8 its ranges. `sensitivity` reports each layer's. The folder is put in place whole,
    in the stead of an earlier export's. ValueError, and no file, where one misses what is promised
    in `verify`; for what cannot be done, before any work. RuntimeError with a converter's words.
    """
    plan, folder = Plan(**plan), pathlib.Path(folder)
    if plan.attention:
        attention_output.check(model, plan.token_merging)
    check_folder(folder)
    if image_size is not None:
        model = with_image_size(model, image_size)
    source = "given images" if images is not None else "crops of photographs"
    images = samples.photographs(model.input_shape[1:]) if images is None else images
    inputs = _inputs(images, model, plan)
    expected, measured = _reference(model, plan, inputs, labels)
    reference = {"source": source, **measured}
    job = jobs.Job(model, plan, inputs, expected, labels, reference.get("accuracy"), sensitivity)
    calibrating = inputs[:64] if calibration is None else _inputs(calibration, model, plan)
    with in_place_of(folder) as partial:
        rows = jobs.make(job, partial, calibrating, threads)
        found = manifest.manifest(model, plan, reference, rows)
        manifest.write_documents(partial, model, found)
    return rows


def _inputs(images, model, plan):
    if images.shape[1:] != model.input_shape[1:] or images.dtype != np.uint8:
        raise ValueError(
            f"Images to compare on must be uint8 of shape (N, *{model.input_shape[1:]}). "
            f"Received: {images.dtype} of shape {images.shape}"
        )
    return preprocessing_of(model).normalise(images).astype("float32") if plan.raw else images


def _reference(model, plan, inputs, labels):
    """What Keras answers, and what the manifest says of it."""
    whole = expected = _answers(in_float32(model), plan, inputs)
    if plan.token_merging:
        merged = for_inference(model, plan.token_merging, plan.merging_schedule)
        expected = _answers(merged, plan, inputs)
    reference = verification.compare(expected, expected, plan.graph_output, labels)
    if plan.token_merging:
        reference["without_merging"] = verification.compare(
            whole, expected, plan.graph_output, labels
        )
    return expected, reference


def _answers(model, plan, inputs):
    served = serving_model(model, plan.graph_output, plan.raw)
    return np.asarray(served.predict(inputs, verbose=0))


def check_folder(folder: pathlib.Path) -> None:
    """ValueError where `folder` holds anything but an earlier export, which may be replaced."""
    earlier = (folder / "manifest.json").is_file()
    if folder.exists() and not earlier and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            f"An export goes to a new folder or replaces an earlier export, which has a "
            f"manifest.json. Received: {str(folder)!r}, which holds something else"
        )


@contextlib.contextmanager
def in_place_of(folder: pathlib.Path):
    """A new folder beside `folder` that takes its place at the end, or vanishes with an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = pathlib.Path(tempfile.mkdtemp(prefix=f".partial-{folder.name}-", dir=folder.parent))
    try:
        yield partial
        partial.chmod(0o755)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _replace(new: pathlib.Path, old: pathlib.Path) -> None:
    """Puts a folder in another's place; the old one goes only once the new one is there."""
    if not old.exists():
        os.replace(new, old)
        return
    aside = old.with_name(f".old-{old.name}-{os.getpid()}")
    os.replace(old, aside)
    os.replace(new, old)
    shutil.rmtree(aside)
