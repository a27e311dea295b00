"""`export` writes a model's files for servers and phones, and compares each with Keras.

TensorFlow's converters take only TensorFlow models, and torch's take only torch models. So
this module also runs as a program, in one process per backend, which opens and converts the saved
model.
"""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from vit_keras import inspection, models, runtimes, weights
from vit_keras.data.depth import to_levels
from vit_keras.exporting import manifest, quantization, serving, verification
from vit_keras.exporting.targets import TARGETS, TRANSFORMERS, Plan, plan_for
from vit_keras.layers import PatchEmbedding
from vit_keras.layers.base import refuse_quantized
from vit_keras.support import command_line, files

COSTS = "costs.md"  # written by `export_patch_sizes`
SHOWN = 1000  # characters of an error


def export(
    model: keras.Model,
    folder: str | os.PathLike,
    *,
    images: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    calibration: np.ndarray | None = None,
    image_size: int | tuple[int, int] | None = None,
    **options,
) -> list[dict]:
    """Exports `model` into `folder` and checks every file in its own runtime.

    The complete folder replaces an earlier export in one step. It holds the files,
    `manifest.json` and, for a classifier, `labels.txt`.

    Args:
        model: A Keras model of any backend that maps images `(B, H, W, C)` to `(B, K)`. Its task
            (classes, labels, numbers, masks or boxes) decides what the files return. A detector
            with the outputs "logits" and "boxes" counts as boxes.
        folder: A new folder, or the folder of an earlier export.
        images: Images to compare on, `(N, H, W, C)` in the model's depth: uint8, uint16 for more
            than 255 levels, or float32. Crops of two photographs by default.
        labels: The classes of `images`, `(N,)`, or their labels, `(N, K)`; for boxes, `(N, M, 5)`
            as in `training.SetPrediction`. With them, accuracy (AP for boxes) is measured too.
        calibration: Images that set the ranges of static int8, shaped like `images`; by default the
            first 64 of `images`.
        image_size: The side, or height and width, of the exported model's images in pixels.
            Position embeddings are interpolated to it.
        **options: The fields of `targets.Plan`: `formats`, `precisions`, `output`, `batch`, ….

    Returns:
        The manifest's rows, one dictionary for each file.

    Raises:
        ValueError: If the plan is impossible or another process is exporting to the folder; this is
            checked first, and nothing is written. Also if a converter fails or a file breaks a
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
    model = models.with_one_output(model)
    if [len(x.shape) for x in model.inputs] != [4] or len(model.outputs) > 1:
        raise ValueError(
            "An exported model must take images (B, H, W, C) and give one output. Received: model "
            f"{model.name!r} with other inputs or outputs. Export a text tower "
            "or an OWL-ViT with Keras: model.export(path, format='onnx')"
        )
    plan, folder = plan_for(model, **options), pathlib.Path(folder)
    check_folder(folder)
    if image_size is not None:
        model = models.with_image_size(model, image_size)
    with files.claimed_output(folder, "an export"):
        job = Job(model, plan, images, labels, calibration)
        with files.replacing_folder(folder) as new:
            made, failed = make(job, new)
            rows = [file.row for file in made]
            content = manifest.describe(model, plan, job.reference, rows)
            manifest.write_documents(new, model, content)
    if failed:
        names = ", ".join(row["file"] for row in rows)
        raise ValueError(f"{folder} has {names}, but other files failed:\n" + "\n".join(failed))
    return rows


def check_folder(folder: pathlib.Path) -> None:
    """Checks that `folder` is new, empty, or an earlier export.

    Raises:
        ValueError: If it holds anything else.
    """
    is_export = (folder / "manifest.json").is_file()
    if folder.exists() and not is_export and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(
            "An export needs a new folder, or the folder of an earlier export (which has a "
            f"manifest.json) to replace. Received: {str(folder)!r}, which holds something else"
        )


def export_patch_sizes(
    model: keras.Model,
    folder: str | os.PathLike,
    patch_sizes: list[int],
    *,
    images: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    **options,
) -> list[dict]:
    """Exports a model once for each patch size, and compares their costs and answers.

    Each size gets an export in its own folder `patch_{size}`. `costs.md` has a row for each size:
    its tokens, the multiply-adds per image, and its agreement with the first size
    (`verification.agreement`).

    Args:
        model: A model that cuts images into patches itself, such as a FlexiViT.
        folder: A new folder, or the folder of an earlier export.
        patch_sizes: Patch sides in pixels; the others are compared with the first one.
        images: Images to compare on, `(N, H, W, C)`, as for `export`.
        labels: The classes of `images`, `(N,)`, to measure accuracy too.
        **options: The other arguments of `export`.

    Returns:
        A dictionary for each size: `patch_size`, `grid`, `macs`, the result of
        `verification.compare` with the first size, and the `files` of its manifest.

    Raises:
        ValueError: As in `with_patch_size` and `export`; nothing is written in that case.

    Example:
        ```python
        rows = export_patch_sizes(model, "files", [16, 20, 30], formats=["litert"])
        [row["macs"] for row in rows]
        ```
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    resized = {size: models.with_patch_size(model, size) for size in dict.fromkeys(patch_sizes)}
    if images is None:
        images = verification.photographs_for(model)
    rows, first, task = list[dict[str, Any]](), None, models.task_of(model)
    output = "values" if task.kind == "numbers" else "logits"
    options |= {"images": images, "labels": labels}
    with files.claimed_output(folder, "an export"), files.replacing_folder(folder) as new:
        for size, made in resized.items():
            written = export(made, new / f"patch_{size}", **options)
            inputs = models.preprocessing_of(made).normalize(images.astype("float32"))
            logits = np.asarray(serving.for_inference(made).predict(inputs, verbose=0))
            first = logits if first is None else first
            row = {"patch_size": size, "grid": list(models.patch_grid(made))}
            row |= {"macs": inspection.flops(made).macs}
            row |= verification.compare(logits, first, output, labels, task)
            rows.append({**row, "files": written})
        (new / "manifest.json").write_text(json.dumps({"patch_sizes": rows}, indent=1) + "\n")
        (new / COSTS).write_text(costs(rows))
    return rows


def costs(rows: list[dict]) -> str:
    """Returns the rows of `export_patch_sizes` as a Markdown table.

    Differences and agreements are relative to the first patch size.
    """
    cells = []
    for row in rows:
        sizes = {"patch": str(row["patch_size"]), "patches": "{}x{}".format(*row["grid"])}
        sizes["GMACs"] = f"{row['macs'] / 1e9:.3f}"
        cells.append(sizes | manifest.facts(row))
    lines = [cells[0], ["--:"] * len(cells[0]), *(row.values() for row in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


class Job:
    """A model, the plan of its files, and what the files are compared with.

    Attributes:
        model: The Keras model.
        plan: Which files to make.
        inputs: Images prepared for the graph, `(N, H, W, C)`.
        compared: `inputs`, Keras' outputs for them, `(N, K)`, and their classes `(N,)`, their
            labels `(N, K)`, or None. If files take any size, also the same for images of another
            size, without labels.
        calibration: Images that set the ranges of static int8, prepared for the graph.
        reference: The manifest's entry about Keras' outputs.
    """

    def __init__(self, model, plan: Plan, images, labels, calibration):
        self.model, self.plan = model, plan
        source = "crops of photographs" if images is None else "given images"
        images = verification.photographs_for(model) if images is None else images
        self.inputs = self._prepare(images)
        self.calibration = self.inputs[:64] if calibration is None else self._prepare(calibration)
        exact = serving.in_float32(model)
        merging = plan.token_merging, plan.merging_schedule
        graph = serving.for_inference(model, *merging) if plan.token_merging else exact
        expected = self._outputs(graph, self.inputs)
        self.reference = {"source": source, **self._compare(expected, expected, labels)}
        if plan.token_merging:
            whole = self._outputs(exact, self.inputs)
            self.reference["without_merging"] = self._compare(whole, expected, labels)
        self.compared = [(self.inputs, expected, labels)]
        if plan.dynamic_size:  # one more row and two more columns of patches
            sizes = (x.patch_size for x in model.layers if isinstance(x, PatchEmbedding))
            height, width = next(sizes)
            more = [(0, 0), (0, height), (0, 2 * width), (0, 0)]
            larger = np.pad(self.inputs[:8], more, mode="wrap")
            resized = models.with_image_size(exact, larger.shape[1:3])
            self.compared.append((larger, self._outputs(resized, larger), None))

    def _prepare(self, images):
        """Prepares the images for the exported graph."""
        preprocessing, shape = models.preprocessing_of(self.model), self.model.input_shape[1:]
        dtype = to_levels(images[:0], preprocessing.levels).dtype
        if images.shape[1:] != shape or images.dtype != dtype:
            raise ValueError(
                f"`images` and `calibration` must be {dtype} of shape (N, *{shape}). "
                f"Received: {images.dtype} of shape {images.shape}"
            )
        if self.plan.raw:
            return preprocessing.normalize(images).astype("float32")
        return images.astype(preprocessing.input_type)

    def _outputs(self, model, inputs):
        served = serving.serving_model(model, self.plan.graph_output, self.plan.raw)
        answers = served.predict(inputs, verbose=0)
        return runtimes.joined(answers) if isinstance(answers, dict) else np.asarray(answers)

    def _compare(self, outputs, expected, labels):
        output, task = self.plan.graph_output, models.task_of(self.model)
        return verification.compare(outputs, expected, output, labels, task)

    def judge(self, precision, path) -> tuple[dict, str | None]:
        """Compares a file's outputs, in its own runtime, with those of Keras.

        Returns:
            The result, and how the file falls short of the promise of its precision, or None.
        """
        with command_line.quiet():
            file = runtimes.open(path)
            row, *others = (self._compare(file(x), *answers) for x, *answers in self.compared)
        for other in others:
            row["largest_difference"] = max(x["largest_difference"] for x in (row, other))
            row["image_sizes"] = [list(images.shape[1:3]) for images, *_ in self.compared]
        return row, verification.broken_promise(precision, row, self.reference.get("accuracy"))


class File:
    """A file of an export.

    Args:
        format: A row of `TARGETS`.
        precision: One of its precisions.
        folder: Where to write the file.
        plan: The export's `Plan`.

    Attributes:
        source: The format whose float32 file this one is made from; None if made from the model.
        whole: The path, or its folder for OpenVINO, which writes two files.
        batch: The number of images per call; None for any number.
        fault: Why the file failed; empty if it did not.
        row: The file's row in the manifest.
    """

    def __init__(self, format: str, precision: str, folder: pathlib.Path, plan: Plan):
        self.format, self.precision, self.target = format, precision, TARGETS[format]
        is_first = (format, precision) == (self.target.source, "fp32")
        self.source = None if is_first else self.target.source
        self.path = folder / self.target.name(precision)
        self.whole = self.path.parent if self.path.suffix == ".xml" else self.path
        self.batch = None if plan.dynamic_batch else plan.batch or self.target.batch
        self.fault, self.row = "", dict[str, Any]()


def make(job: Job, folder: pathlib.Path) -> tuple[list[File], list[str]]:
    """Writes the files of `job` into an existing folder. A failed file does not affect the others.

    Returns:
        The files, and a line about each file that failed.

    Raises:
        ValueError: If every file failed.
    """
    plan, made = job.plan, []
    for format in dict.fromkeys(plan.formats):
        precisions = dict.fromkeys(plan.precisions or TARGETS[format].default)
        made += [File(format, precision, folder, plan) for precision in precisions]
    with tempfile.TemporaryDirectory() as name:
        scratch = pathlib.Path(name)
        floats = {file.format: file for file in made if file.precision == "fp32"}
        for format in sorted({file.source for file in made if file.source} - {*floats}):
            floats[format] = File(format, "fp32", scratch, plan)
        others = [file for file in made if file.precision != "fp32"]
        # Float32 files are converted first, since int8 changes a model's layers. Files made from
        # others are completed first, since a note changes those.
        _convert(job, [x for x in (*floats.values(), *others) if x.source is None], scratch)
        for file in sorted(made, key=lambda file: file.source is None):
            file.fault = file.fault or fault_of(_complete, file, job, floats)
    failed = [file for file in made if file.fault]
    lines = [f"{x.target.name(x.precision)}: {' '.join(x.fault.split())[:SHOWN]}" for x in failed]
    if len(failed) == len(made):
        raise ValueError("The export failed:\n" + "\n".join(lines))
    for top in (file.whole for file in failed):
        shutil.rmtree(top) if top.is_dir() else top.unlink(missing_ok=True)
    return [file for file in made if not file.fault], lines


def fault_of(step: Callable, *arguments) -> str:
    """Calls a step of an export; returns the reason if it fails, or else an empty text."""
    try:
        step(*arguments)
    except Exception as error:  # each library raises its own errors
        kind, text = type(error).__name__, str(error).strip()
        return text if isinstance(error, ValueError) and text else f"{kind}: {text}"
    return ""


def _convert(job, waiting, scratch):
    """Writes files directly from the model, in one process per backend.

    If a file crashes the process, a new one continues after that file.
    """
    weights.save_model(job.model, scratch / "model.keras")
    record = scratch / "faults.txt"
    while waiting:
        backend = waiting[0].target.backend
        chosen = [file for file in waiting if file.target.backend == backend]
        rows = [(file.format, file.precision, str(file.path), file.batch) for file in chosen]
        description = {"plan": dataclasses.asdict(job.plan), "files": rows}
        (scratch / "job.json").write_text(json.dumps(description))
        record.write_text("")
        ended = _run_converter(scratch, backend)
        faults = [json.loads(line) for line in record.read_text().splitlines()]
        for file, fault in zip(chosen, [*faults, ended]):
            file.fault = fault
            waiting.remove(file)


def _run_converter(scratch, backend):
    """Runs this module in its own process; returns how the process ended."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    path = [str(pathlib.Path(__file__).parents[2]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", "vit_keras.exporting.exporter", str(scratch)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    written = process.stderr.strip()[-SHOWN // 2 :]
    return f"the converter's process ended with exit status {process.returncode}: {written}"


def convert(scratch: str) -> None:
    """Converts the model in the folder `scratch`, and records why files failed."""
    folder = pathlib.Path(scratch)
    job, model = json.loads((folder / "job.json").read_text()), weights.open(folder / "model.keras")
    plan = Plan(**job["plan"])
    if plan.graph_output == "features" and TRANSFORMERS in plan.formats:
        model = serving.with_tokens(model)
    merging = plan.token_merging, plan.merging_schedule
    rewritten = serving.for_inference(model, *merging, with_attention=plan.attention)
    rewritten = models.with_image_size(rewritten, None) if plan.dynamic_size else rewritten
    for row in job["files"]:
        fault = fault_of(_write, rewritten, plan, *row)
        with open(folder / "faults.txt", "a") as record:
            record.write(json.dumps(fault) + "\n")


def _write(rewritten, plan, format, precision, path, batch):
    target = TARGETS[format]
    served = target.graph(rewritten, plan.graph_output, plan.raw)
    options = {"opset": plan.opset} if format == "onnx" and plan.opset else {}
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    target.precisions[precision](served, path, batch, **options)


def _complete(file, job, floats):
    """Derives a file unless it was converted; describes and judges it, and fills its row.

    Raises:
        ValueError: If the file stores its weights in too many bits, or differs too much from
            Keras.
    """
    excluded, sizes = list[str](), [job.model.count_params()]
    if file.source:
        excluded, sizes = _derive(file, job, floats[file.source])
    row = {"file": file.target.name(file.precision), "format": file.format}
    row |= {"precision": file.precision, "batch": file.batch, **_describe(file, job)}
    row |= {**manifest.describe_file(file.whole), "float_layers": excluded}
    broken = None if excluded else quantization.missed(file.precision, row["bytes"], *sizes)
    if not broken and file.target.is_readable:
        compared, broken = job.judge(file.precision, file.path)
        row |= compared
    if broken:
        raise ValueError(broken)
    file.row = row


def _derive(file, job, source):
    """Derives a file from another one; layers that would lose too much stay in float32.

    Returns:
        Those layers, and the most numbers and other bytes that the file may hold.
    """
    if source.fault:
        raise ValueError(source.fault)
    make, paths = file.target.precisions[file.precision], (str(source.path), str(file.path))
    file.path.parent.mkdir(parents=True, exist_ok=True)
    if source.format != file.format:  # OpenVINO converts whole files
        make(*paths)
        return [], [source.path.stat().st_size // 4]
    is_good = lambda path: job.judge(file.precision, path)[1] is None
    numbers, graph = quantization.contents(paths[0])
    images = job.inputs[:16], job.calibration
    excluded = quantization.quantize_until(make, *paths, is_good, *images)
    return excluded, [numbers, quantization.GROWTH * graph]


def _describe(file, job) -> dict[str, Any]:
    """Writes the meaning of outputs and pixels into a file; returns what stayed in float32."""
    plan, model, pixels = job.plan, job.model, models.preprocessing_of(job.model)
    about = {}
    if file.format == "litert":
        from vit_keras.exporting import tflite_file  # which needs flatbuffers

        tflite_file.attach(file.path, model, plan.graph_output, plan.raw)
        if file.precision.startswith("int8-static"):
            about["float_operations"] = tflite_file.float_operations(file.path)
    if plan.graph_output != "features":
        is_deep = not plan.raw and (pixels.levels != 255 or pixels.bands)
        depth = {"levels": pixels.levels, "bands": list(pixels.bands)} if is_deep else {}
        task, names = dataclasses.asdict(models.task_of(model)), models.class_names_of(model)
        note = {"task": task, "names": names, "output": plan.graph_output, **depth}
        manifest.write_note(file.path, note)
    return about


if __name__ == "__main__":
    convert(sys.argv[1])
