"""Plans an export, writes the files into a folder, and compares and times each of them."""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

import keras
import numpy as np

from vit_keras import runtimes
from vit_keras.exporting import quantization, verification
from vit_keras.exporting.manifest import BOX_OUTPUTS, describe_file, output_text
from vit_keras.exporting.serving import ACTIVATIONS, OUTPUTS
from vit_keras.exporting.targets import OPSETS, TARGETS
from vit_keras.layers.common import check_positive
from vit_keras.models import class_names_of, preprocessing_of, task_of
from vit_keras.runtimes import delegate_partitions
from vit_keras.runtimes.embedded_task import write_task
from vit_keras.support import command_line, extras
from vit_keras.support.checks import check_choice
from vit_keras.weights import save_model

SENSITIVITY_IMAGES = 16
SHOWN = 1000  # characters of an error


@dataclasses.dataclass(frozen=True)
class Plan:
    """The files that `export` writes, and the graph that they contain.

    Attributes:
        formats: Names of rows of `TARGETS`.
        precisions: The precisions of each format; None for each format's default.
        output: "softmax" for classes and masks, "sigmoid" for labels, "values" for numbers, "mask"
            for the most likely class of each pixel, "boxes" with their scores, "logits", or
            "features", the input of the head.
        raw: Whether the graph takes preprocessed float32 images and returns logits.
        batch: Images per call; None for each format's default, which is usually any number.
        dynamic_batch: Whether every format takes any number of images.
        dynamic_size: Whether the files take images of any size, and interpolate their positions.
        token_merging: Pairs of tokens that each block merges.
        merging_schedule: "constant" or "decreasing".
        opset: The opset of ONNX files, and of the files made from them; None for 20.
        attention: Whether the attention rollout `(B, h, w)` over the patches is a second output.

    Raises:
        ValueError: If a field has an invalid value, or a format does not support the plan.
        ImportError: If a format or precision needs a package that is not installed.
    """

    formats: Sequence[str] = ("savedmodel", "litert")
    precisions: Sequence[str] | None = None
    output: str = "softmax"
    raw: bool = False
    batch: int | None = None
    dynamic_batch: bool = False
    dynamic_size: bool = False
    token_merging: int = 0
    merging_schedule: str = "constant"
    opset: int | None = None
    attention: bool = False

    def __post_init__(self):
        check_choice(self.output, OUTPUTS, "output")
        if self.batch is not None:
            check_positive(batch=self.batch)
        if self.batch is not None and self.dynamic_batch:
            raise ValueError(
                "An export has either a fixed `batch` or a `dynamic_batch`. "
                f"Received: batch={self.batch}, dynamic_batch=True"
            )
        if self.dynamic_size and (self.attention or self.token_merging):
            raise ValueError(
                "Files for images of any size have no attention and merge no tokens. Received: "
                f"dynamic_size=True, attention={self.attention}, token_merging={self.token_merging}"
            )
        if self.opset is not None and ("onnx" not in self.formats or self.opset not in OPSETS):
            raise ValueError(
                f"`opset` must be one that torch writes and ONNX Runtime runs, {OPSETS[0]} to "
                f"{OPSETS[-1]}, for the format onnx. Received: opset={self.opset}, "
                f"formats={list(self.formats)}"
            )
        for format in self.formats:
            check_choice(format, TARGETS, "format")
            self._check_format(format, TARGETS[format])
        for format, precision in self.files():
            target = TARGETS[format]
            packages = (*target.packages, *target.precisions[precision].packages)
            purpose = f"Exporting to {format} in {precision}"
            extras.check(*packages, extra=target.extra, purpose=purpose)

    def _check_format(self, format, target):
        for precision in self.precisions or ():
            check_choice(precision, target.precisions, f"precision of {format}")
        for option in ("attention", "dynamic_size", "dynamic_batch"):
            if getattr(self, option) and not getattr(target, option):
                able = [name for name, row in TARGETS.items() if getattr(row, option)]
                raise ValueError(
                    f"`{option}` is for the formats {', '.join(able)}. Received: format={format!r}"
                )
        refused = not self.raw or len(set(self.formats)) > 1 or self.output == "mask"
        if target.prepared and refused:
            raise ValueError(
                f"The format {format} needs raw=True, no other format, and an `output` of logits, "
                f"boxes or features. Received: raw={self.raw}, formats={[*self.formats]}, "
                f"output={self.output!r}"
            )

    @property
    def graph_output(self) -> str:
        """The output of the graph: `raw` turns probabilities into "logits"."""
        return "logits" if self.raw and self.output in ACTIVATIONS else self.output

    def files(self) -> list[tuple[str, str]]:
        """The (format, precision) of each file to write."""
        return [
            (format, precision)
            for format in dict.fromkeys(self.formats)
            for precision in dict.fromkeys(self.precisions or TARGETS[format].default)
        ]

    def batch_of(self, format: str) -> int | None:
        """Returns the images per call of a format's files; None for any number."""
        return None if self.dynamic_batch else self.batch or TARGETS[format].batch


@dataclasses.dataclass
class Job:
    """A plan, the model, and the reference to compare the files with.

    Attributes:
        model: The Keras model.
        plan: Which files to make.
        inputs: Images prepared for the graph, `(N, H, W, C)`.
        expected: Keras' outputs for `inputs`, `(N, K)`.
        labels: The classes of `inputs`, `(N,)`, their labels, `(N, K)`, or None.
        resized: Images of another size and Keras' outputs for them, if files take any size.
        accuracy: Keras' accuracy on `inputs`, or None without labels.
        report_sensitivity: Whether to rank layers by sensitivity even if no file loses too much.
    """

    model: keras.Model
    plan: Plan
    inputs: np.ndarray
    expected: np.ndarray
    labels: np.ndarray | None
    resized: tuple[np.ndarray, np.ndarray] | None
    accuracy: float | None
    report_sensitivity: bool

    def compare(self, path) -> dict:
        """Compares the outputs of the file at `path`, in its own runtime, with those of Keras."""
        output, task = self.plan.graph_output, task_of(self.model)
        with command_line.quiet():
            file = runtimes.open(path)
            row = verification.compare(file(self.inputs), self.expected, output, self.labels, task)
            if self.resized is None:
                return row
            images, expected = self.resized
            other = verification.compare(file(images), expected, output, task=task)
        sizes = [list(pictures.shape[1:3]) for pictures in (self.inputs, images)]
        largest = max(each["largest_difference"] for each in (row, other))
        return row | {"image_sizes": sizes, "largest_difference": largest}

    def is_good_enough(self, precision, path) -> bool:
        return verification.broken_promise(precision, self.compare(path), self.accuracy) is None


@contextlib.contextmanager
def _noting(failures, key):
    """Records why a file failed, by (format, precision), and ends the `with` block."""
    try:
        yield
    except Exception as error:  # each library raises its own errors
        failures[key] = str(error).strip() or type(error).__name__


def make(job: Job, folder: pathlib.Path, calibration: np.ndarray, threads) -> tuple[list, list]:
    """Writes the files of `job` into `folder`. A failed file does not affect the others.

    Args:
        job: The files to make, and the reference to compare them with.
        folder: An existing folder.
        calibration: Images that set the ranges of static int8, prepared for the graph.
        threads: Numbers of threads; each file is timed once with each of them.

    Returns:
        The manifest's rows, and a line for each failed file: its converter failed, or it breaks a
        promise of `verification`.

    Raises:
        ValueError: If every file failed.
    """
    requested = {pair: folder / TARGETS[pair[0]].name(pair[1]) for pair in job.plan.files()}
    layer_reports = {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = {**_sources(requested, pathlib.Path(scratch)), **requested}
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        failures = _convert(job, paths, scratch)
        for (format, precision), path in requested.items():
            recipe = TARGETS[format].precisions[precision]
            if recipe.source is not None and (recipe.source, "fp32") in failures:
                failures[format, precision] = failures[recipe.source, "fp32"]
            elif recipe.source is not None:
                source = str(paths[recipe.source, "fp32"])
                with _noting(failures, (format, precision)):
                    report = _derive(job, precision, recipe, source, str(path), calibration)
                    layer_reports[format, precision] = report
    rows = {}
    for key, path in requested.items():
        if key not in failures:
            with _noting(failures, key):
                _describe(job, key[0], path)
                rows[key] = _verify(job, folder, key, path, layer_reports.get(key, ([], {})))
    failed = {key: path for key, path in requested.items() if key in failures}
    lines = [
        f"{path.relative_to(folder)}: {' '.join(failures[key].split())[:SHOWN]}"
        for key, path in failed.items()
    ]
    if not rows:
        raise ValueError("The export failed:\n" + "\n".join(lines))
    for top in map(_whole, failed.values()):
        shutil.rmtree(top) if top.is_dir() else top.unlink(missing_ok=True)
    _time(job, {key: requested[key] for key in rows}, [*rows.values()], threads)
    return [*rows.values()], lines


def _whole(path):
    """The whole of a file: itself, or its folder for OpenVINO, which writes two files."""
    return path.parent if path.suffix == ".xml" else path


def _describe(job, format, path):
    """Writes the meaning of a file's outputs into it."""
    if format == "litert":
        _attach_metadata(job, path)
    if job.plan.graph_output != "features":
        task, names = task_of(job.model), class_names_of(job.model)
        write_task(path, task, names, job.plan.graph_output, **_depth(job))


def _depth(job):
    """Returns the levels and bands of a file that takes pixels, unless they are the default."""
    pixels = preprocessing_of(job.model)
    fields = {"levels": pixels.levels, "bands": list(pixels.bands)}
    return fields if not job.plan.raw and (pixels.levels != 255 or pixels.bands) else {}


def _sources(requested, scratch):
    """Returns the paths of the files that others are made from, by (format, precision)."""
    recipes = (TARGETS[format].precisions[precision] for format, precision in requested)
    sources = {recipe.source for recipe in recipes if recipe.source}
    return {(name, "fp32"): scratch / TARGETS[name].name("fp32") for name in sources}


def _convert(job, paths, scratch):
    """Converts the model to the files made directly from it, in one process per backend.

    Returns why files failed. If a file crashes the process, a new one continues after that file.
    """
    model_file, plan = f"{scratch}/model.keras", job.plan
    save_model(job.model, model_file)
    direct = [
        (format, precision, str(path), plan.batch_of(format))
        for (format, precision), path in paths.items()
        if TARGETS[format].precisions[precision].source is None
    ]
    failures: dict[tuple[str, str], str] = {}
    job_file, told = pathlib.Path(scratch) / "job.json", pathlib.Path(scratch) / "told.txt"
    while direct:
        backend = TARGETS[direct[0][0]].backend
        files = [row for row in direct if TARGETS[row[0]].backend == backend]
        description = {"plan": dataclasses.asdict(plan), "files": files, "told": str(told)}
        description |= {"model": model_file, "output": plan.graph_output}
        job_file.write_text(json.dumps(description))
        told.write_text("")
        ended = _run("vit_keras.exporting.conversion", job_file, backend)
        results = [json.loads(line) for line in told.read_text().splitlines()]
        if len(results) < len(files):
            results.append(ended)
        for row, fault in zip(files, results):
            direct.remove(row)
            failures |= {row[:2]: fault} if fault else {}
    return failures


def _run(module, argument, backend):
    """Runs a module in its own process; returns how the process ended."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    package = pathlib.Path(__file__).parents[2]
    path = [str(package), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", module, str(argument)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    written = process.stderr.strip()[-SHOWN // 2 :]
    return f"the converter's process ended with exit status {process.returncode}: {written}"


def _derive(job, precision, recipe, source, path, calibration):
    """Makes a file from another; returns its float32 layers and the sensitivity of all layers."""
    if not recipe.layers:
        recipe.make(source, path)
        return [], {}
    return quantization.quantize_until(
        recipe,
        source,
        path,
        functools.partial(job.is_good_enough, precision),
        job.inputs[:SENSITIVITY_IMAGES],
        calibration,
        job.report_sensitivity,
    )


def _attach_metadata(job, path):
    names = None if job.plan.graph_output == "features" else class_names_of(job.model)
    from vit_keras.exporting import tflite_file  # which needs flatbuffers

    normalization, preprocessing = None, preprocessing_of(job.model)
    if job.plan.raw:
        statistics = (preprocessing.mean, preprocessing.std)
        normalization = [[255 * value for value in values] for values in statistics]
    elif preprocessing.levels != 255:  # for clients that pass floats up to 255
        normalization = [[0.0], [255 / preprocessing.levels]]
    about = (names, job.model.input_shape[-1], normalization)
    description = output_text(job.model, job.plan.graph_output)
    outputs = BOX_OUTPUTS if job.plan.graph_output == "boxes" else None
    tflite_file.attach(path, job.model.name, *about, description, outputs)


def _verify(job, folder, key, path, layer_report):
    """Returns the row of a file; raises ValueError if the file breaks a promise."""
    (format, precision), (float_layers, report) = key, layer_report
    name = path.relative_to(folder)
    row = {"file": name.as_posix(), "format": format, "precision": precision}
    row |= {"batch": job.plan.batch_of(format), **describe_file(_whole(path))}
    row |= {"float_layers": float_layers} | ({"sensitivity": report} if report else {})
    if not float_layers and (broken := quantization.missed(precision, path)):
        raise ValueError(broken)
    if TARGETS[format].is_readable:
        row |= job.compare(path)
        if broken := verification.broken_promise(precision, row, job.accuracy):
            raise ValueError(broken)
    if format == "litert":
        from vit_keras.exporting import tflite_file

        row["delegate_partitions"] = delegate_partitions(path)
        row["left_out"] = tflite_file.left_out(path)
        if precision.startswith("int8-static"):
            row["float_operations"] = tflite_file.float_operations(path)
    return row


def _time(job, requested, rows, threads):
    batch = job.plan.batch or 1
    images = np.resize(job.inputs[:batch], (batch, *job.inputs.shape[1:]))
    timed = [str(path) for (name, _), path in requested.items() if TARGETS[name].is_readable]
    for count in threads if timed else ():
        latencies = verification.latencies(timed, images, count)
        for row, path in zip(rows, requested.values()):
            if str(path) in latencies:
                row.setdefault("latency_ms", {})[str(count)] = round(latencies[str(path)], 3)
