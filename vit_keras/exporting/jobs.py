"""From a plan to files in a folder, and what each of them answers."""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np

from vit_keras.exporting import sensitivity, tflite_metadata, verification
from vit_keras.exporting.manifest import describe_file
from vit_keras.exporting.plan import Plan
from vit_keras.exporting.targets import TARGETS
from vit_keras.models import class_names_of, preprocessing_of
from vit_keras.runtimes import delegate_partitions, open_file
from vit_keras.weights import save_model

SENSITIVITY_IMAGES = 16


@dataclasses.dataclass
class Job:
    """A plan with what its files are compared with.

    `expected` `(N, K)` is what Keras answers to `inputs`, `accuracy` its own where there are
    `labels`; `report` asks for the sensitivity of layers also where nothing is lost.
    """

    model: keras.Model
    plan: Plan
    inputs: np.ndarray
    expected: np.ndarray
    labels: np.ndarray | None
    accuracy: float | None
    report: bool

    def compare(self, path) -> dict:
        """What the file at `path` answers in its own runtime, beside Keras."""
        outputs = open_file(path)(self.inputs)
        return verification.compare(outputs, self.expected, self.plan.graph_output, self.labels)

    def keeps(self, precision, path) -> bool:
        return verification.broken_promise(precision, self.compare(path), self.accuracy) is None


def make(job: Job, folder: pathlib.Path, calibration: np.ndarray, threads) -> list[dict]:
    """Writes the files into `folder`; a row of the manifest for each. ValueError as `export`."""
    wanted = {pair: folder / TARGETS[pair[0]].name(pair[1]) for pair in job.plan.files()}
    notes = {}
    with tempfile.TemporaryDirectory() as scratch:
        paths = {**_sources(wanted, pathlib.Path(scratch)), **wanted}
        for path in paths.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        _convert(job, paths, scratch)
        for (format, precision), path in wanted.items():
            recipe = TARGETS[format].precisions[precision]
            if recipe.source is None:
                continue
            source = str(paths[recipe.source, "fp32"])
            if recipe.layers:
                notes[format, precision] = sensitivity.quantise_until(
                    recipe,
                    source,
                    str(path),
                    functools.partial(job.keeps, precision),
                    job.inputs[:SENSITIVITY_IMAGES],
                    calibration,
                    job.report,
                )
            else:
                recipe.make(source, str(path))
    for (format, _), path in wanted.items():
        if format == "litert":
            _describe(job, path)
    return _verify(job, folder, wanted, notes, threads)


def _sources(wanted, scratch):
    """The files that others are made from, by (format, precision)."""
    recipes = (TARGETS[format].precisions[precision] for format, precision in wanted)
    sources = {recipe.source for recipe in recipes if recipe.source}
    return {(name, "fp32"): scratch / TARGETS[name].name("fp32") for name in sources}


def _convert(job, paths, scratch):
    """Makes what is made from the model, in one process a backend."""
    model_file, plan = f"{scratch}/model.keras", job.plan
    save_model(job.model, model_file)
    direct = [
        (format, precision, str(path), plan.batch_of(format))
        for (format, precision), path in paths.items()
        if TARGETS[format].precisions[precision].source is None
    ]
    for backend in dict.fromkeys(TARGETS[format].backend for format, *_ in direct):
        files = [row for row in direct if TARGETS[row[0]].backend == backend]
        described = {
            "model": model_file,
            "merging": [plan.token_merging, plan.merging_schedule],
            "output": plan.graph_output,
            "raw": plan.raw,
            "attention": plan.attention,
            "files": files,
        }
        job_file = pathlib.Path(scratch) / "job.json"
        job_file.write_text(json.dumps(described))
        _run("vit_keras.exporting.conversion", job_file, backend)


def _run(module, argument, backend):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    package = pathlib.Path(__file__).parents[2]
    path = [str(package), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", module, str(argument)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        words = done.stderr[-3000:]
        raise RuntimeError(f"The export failed (exit status {done.returncode}):\n{words}")


def _describe(job, path):
    names = None if job.plan.graph_output == "features" else class_names_of(job.model)
    prepared = preprocessing_of(job.model)
    scaled = [[255 * value for value in values] for values in (prepared.mean, prepared.std)]
    normalization = scaled if job.plan.raw else None
    tflite_metadata.attach(path, job.model.name, names, job.model.input_shape[-1], normalization)


def _verify(job, folder, wanted, notes, threads):
    """A row for each file; ValueError with all that is missed."""
    rows, missed = [], []
    for (format, precision), path in wanted.items():
        name = path.relative_to(folder)
        whole = folder / name.parts[0]
        row = {"file": name.as_posix(), "format": format, "precision": precision}
        row |= {"batch": job.plan.batch_of(format), **describe_file(whole)}
        excluded, moved = notes.get((format, precision), ([], {}))
        row |= {"float_layers": excluded} | ({"sensitivity": moved} if moved else {})
        if format != "coreml":  # runs on macOS alone
            row |= job.compare(path)
            if broken := verification.broken_promise(precision, row, job.accuracy):
                missed.append(f"{name}: {broken}")
        if format == "litert":
            row["delegate_partitions"] = delegate_partitions(path)
        rows.append(row)
    if missed:
        raise ValueError("Exported files miss what is promised:\n" + "\n".join(missed))
    _time(job, wanted, rows, threads)
    return rows


def _time(job, wanted, rows, threads):
    batch = job.plan.batch or 1
    images = np.resize(job.inputs[:batch], (batch, *job.inputs.shape[1:]))
    timed = [str(path) for (format, _), path in wanted.items() if format != "coreml"]
    for count in threads if timed else ():
        found = verification.latencies(timed, images, count)
        for row, path in zip(rows, wanted.values()):
            if str(path) in found:
                row.setdefault("latency_ms", {})[str(count)] = round(found[str(path)], 3)
