"""Whether a photograph has the same probabilities here and where others read the same files.

    python -m benchmarks.same_answer
    PYTHONPATH=FOLDER python -m benchmarks.same_answer    # with MediaPipe, installed into FOLDER

writes a small model for each project, asks both for the probabilities of the photographs that
installed packages ship, lets the project write the model anew, reads it, and asks again. It prints
a table of the largest differences of a probability.
"""

import argparse
import dataclasses
import importlib.util
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np

import vit_keras
from benchmarks import readers
from benchmarks.photographs import photographs, small_model
from vit_keras import exporting, weights
from vit_keras.models import Preprocessing
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING

IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLIP = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
HALF = (0.5,) * 3, (0.5,) * 3
# What new models have, what they had before 1.0.0, and what each project publishes models with.
NEW = Preprocessing()
FLOATS = Preprocessing(rounding="none")
TORCHVISION = Preprocessing(*IMAGENET, "bilinear", True, 0.875, "torchvision")
DEIT = dataclasses.replace(TORCHVISION, interpolation="bicubic")
OPENAI = Preprocessing(*CLIP, "bicubic", True, 1.0, "torchvision")
AUGREG = Preprocessing(*HALF, "bicubic", True, 0.9, "torchvision")
SQUEEZED = Preprocessing(*HALF, "bicubic", True, None, "torchvision")
PUBLISHED = (SQUEEZED, DEIT, OPENAI, TORCHVISION, AUGREG)


@dataclasses.dataclass(frozen=True)
class Case:
    """A project, and the preprocessing of a model that is written for it.

    Attributes:
        project: What the table calls the project.
        preprocessing: How the model prepares pictures.
        format: The format of `vit_keras.weights`.
        file: The name of the file or folder.
        read: Returns the project's probabilities.
        copy: Lets the project write the model anew, or None.
    """

    project: str
    preprocessing: Preprocessing
    format: str
    file: str
    read: Callable
    copy: Callable | None = None


def _cases(project, format, file, read, copy, *preprocessings):
    return [Case(project, p, format, file, read, copy) for p in preprocessings]


def _in_transformers(pixels):
    return dataclasses.replace(pixels, rounding="transformers")


CASES = [
    *_cases(
        "transformers' pipeline",
        "huggingface",
        "folder",
        readers.transformers,
        readers.transformers_copy,
        *(NEW, FLOATS, *map(_in_transformers, PUBLISHED)),
    ),
    *_cases(
        "timm's transform",
        "timm",
        "folder",
        readers.timm,
        readers.timm_copy,
        *(NEW, FLOATS, *PUBLISHED),
    ),
    *_cases(
        "torchvision's transform",
        "torchvision",
        "model.pth",
        readers.torchvision,
        readers.torchvision_copy,
        TORCHVISION,
    ),
]


def compare(case: Case, paths, folder: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns the probabilities `(N, K)` of photographs by each way.

    Args:
        case: The project and the preprocessing.
        paths: The photographs.
        folder: An empty folder.

    Returns:
        "ours" by the model, "evaluated" by the model behind TensorFlow's pipeline, "theirs" by the
        project that reads what was written, "theirs again" by the project after it wrote the model
        anew, and "ours again" by this package, which reads that.
    """
    model = small_model(paths, case.preprocessing)
    file, again = folder / "ours" / case.file, folder / "theirs" / case.file
    file.parent.mkdir(parents=True)
    again.parent.mkdir()
    weights.save(model, file, format=case.format)
    answers = {"ours": readers.ours(model, paths), "theirs": case.read(file, paths)}
    answers["evaluated"] = readers.evaluated(model, paths)
    if case.copy is not None:
        case.copy(file, again)
        answers["theirs again"] = case.read(again, paths)
        arguments = {"num_heads": 3} if case.format == "torchvision" else {}
        read = vit_keras.open(again, **arguments)
        read.class_names = model.class_names  # which torchvision's files do not hold
        answers["ours again"] = readers.ours(read, paths)
    return answers


def exported(preprocessing, paths, folder) -> dict[str, np.ndarray]:
    """Returns the probabilities of a model's exported files, here and in other runtimes."""
    model = small_model(paths, preprocessing)
    exporting.export(model, folder, formats=["litert", "onnx"], precisions=["fp32"])
    tflite, onnx = folder / "model.tflite", folder / "model.onnx"
    answers = {"ours": readers.ours(model, paths)}
    answers["this package, on whole levels"] = readers.whole_levels(model, paths)
    for name, file in (("LiteRT", tflite), ("ONNX Runtime", onnx)):
        answers[f"the {file.suffix} file, by this package"] = readers.ours(file, paths)
        answers[f"the {file.suffix} file in {name}"] = readers.exported(file, paths)
    if importlib.util.find_spec("mediapipe") is not None:
        for resized, words in ((True, "pictures of its size"), (False, "whole photographs")):
            answers[f"MediaPipe, {words}"] = readers.mediapipe(tflite, paths, resized)
    return answers


def told(pixels: Preprocessing) -> str:
    """A preprocessing in a few words."""
    crop = "whole" if pixels.crop_fraction is None else f"crop {pixels.crop_fraction:g}"
    rounding = "no rounding" if pixels.rounding == "none" else f"rounding of {pixels.rounding}"
    return (
        f"{pixels.interpolation}{'' if pixels.antialias else ', no antialias'}, {crop}, {rounding}"
    )


def _line(*cells):
    print(f"| {' | '.join(cells)} |", flush=True)


def _largest(one, other):
    return f"{np.abs(one - other).max():.1e}"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    paths = photographs()
    print(f"{len(paths)} photographs: {', '.join(path.name for path in paths)}")
    _line("read by", "preprocessing", "written here", "read back here", "our pipeline")
    _line("---", "---", "--:", "--:", "--:")
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            rows = compare(case, paths, pathlib.Path(folder))
        there = _largest(rows["ours"], rows["theirs"])
        back = _largest(rows["ours again"], rows["theirs again"])
        pipeline = _largest(rows["ours"], rows["evaluated"])
        _line(case.project, told(case.preprocessing), there, back, pipeline)
    for preprocessing in (NEW, FLOATS, DEIT, PUBLISHED_PREPROCESSING):
        with tempfile.TemporaryDirectory() as folder:
            rows = exported(preprocessing, paths, pathlib.Path(folder))
        mine = rows.pop("ours")
        for name, answers in rows.items():
            _line(name, told(preprocessing), _largest(mine, answers), "", "")


if __name__ == "__main__":
    main()
