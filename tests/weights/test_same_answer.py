"""The same picture, the same answer: here, and where other projects read the same files."""

import json

import numpy as np
import pytest
from PIL import Image

import vit_keras
from benchmarks.photographs import photographs
from benchmarks.same_answer import CASES, FLOATS, NEW, compare, exported, told
from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from tests.weights.builds import build, strip_note
from vit_keras import data, weights
from vit_keras.support.tasks import CLASSES as ONE_CLASS
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.on("torch")
ATOL = 1e-3
QUICK = [case for case in CASES if case.preprocessing is NEW or case.format == "torchvision"]
OTHERS = [pytest.param(case, marks=pytest.mark.nightly) for case in CASES if case not in QUICK]


def name_of(case):
    return f"{case.format}, {told(case.preprocessing)}"


@pytest.mark.parametrize("case", QUICK + OTHERS, ids=name_of)
def test_photographs_have_the_same_probabilities(case, tmp_path):
    peer({"huggingface": "transformers"}.get(case.format, case.format))
    paths = photographs()
    assert len(paths) >= 12
    answers = compare(case, paths, tmp_path)
    assert answers["ours"].std(axis=0).max() > 0.1  # or nothing would be compared
    for name in ("theirs", "evaluated", "ours again"):
        np.testing.assert_allclose(answers[name], answers["ours"], atol=ATOL, err_msg=name)
    np.testing.assert_allclose(answers["ours again"], answers["theirs again"], atol=ATOL)
    np.testing.assert_allclose(answers["theirs again"], answers["theirs"], atol=1e-5)


@pytest.mark.nightly
def test_exported_files_answer_as_the_model_does_for_whole_levels(tmp_path):
    """They take 8 bits, from which a model that rounds no levels differs."""
    answers = exported(FLOATS, photographs(), tmp_path)
    for suffix in (".tflite", ".onnx"):
        file = answers[f"the {suffix} file, by this package"]
        np.testing.assert_allclose(file, answers["this package, on whole levels"], atol=1e-5)
        np.testing.assert_allclose(file, answers["ours"], atol=2 * ATOL)  # 1.4e-3 was measured


NAMES = ["a", "b", "c"]
UNITS = {"mean": (20.0, -3.0, 0.5), "std": (4.0, 0.1, 30.0)}


def model_of(rng, task):
    model = build(rng, image_size=16, gelu="exact", num_classes=3)
    model.class_names, model.task = NAMES, task
    return model


def logits_of(model, picture):
    resized = data.resize(picture, (16, 16), model.preprocessing)
    pixels = data.normalize(resized, model.preprocessing)
    return to_numpy(model(pixels[None]))[0]


@pytest.mark.parametrize(
    ("task", "problem", "answer"),
    [
        (ONE_CLASS, None, lambda logits: np.exp(logits) / np.exp(logits).sum()),
        (Task("labels"), "multi_label_classification", lambda logits: 1 / (1 + np.exp(-logits))),
        (Task("numbers"), "regression", lambda logits: logits),
        (Task("numbers", **UNITS), "regression", lambda x: x * UNITS["std"] + UNITS["mean"]),
    ],
    ids=["classes", "labels", "numbers", "numbers in units"],
)
def test_transformers_pipeline_answers_as_the_task_says(rng, tmp_path, task, problem, answer):
    model, folder = model_of(rng, task), tmp_path / "folder"
    picture = rng.integers(0, 256, (16, 16, 3), dtype="uint8")
    Image.fromarray(picture).save(tmp_path / "a.png")
    weights.save(model, folder, format="huggingface")
    assert json.loads((folder / "config.json").read_text()).get("problem_type") == problem
    pipeline = peer("transformers").pipeline("image-classification", model=str(folder))
    scores = {row["label"]: row["score"] for row in pipeline(str(tmp_path / "a.png"), top_k=3)}
    expected = answer(logits_of(model, picture))
    assert_close([scores[name] for name in NAMES], expected, rtol=1e-5)


@pytest.mark.parametrize("format", ["huggingface", "timm"])
def test_a_folder_keeps_the_task(rng, tmp_path, format):
    model = model_of(rng, Task("numbers", **UNITS))
    picture = rng.integers(0, 256, (16, 16, 3), dtype="uint8")
    weights.save(model, tmp_path, format=format)
    read = vit_keras.open(tmp_path)
    assert read.task == Task("numbers")  # whose outputs are the numbers themselves
    expected = logits_of(model, picture) * UNITS["std"] + UNITS["mean"]
    assert_close(logits_of(read, picture), expected, rtol=1e-5)
    labels = model_of(rng, Task("labels", thresholds=(0.5, 0.25, 0.75)))
    weights.save(labels, tmp_path, format=format)
    assert vit_keras.open(tmp_path).task == labels.task
    fresh = build(image_size=16, gelu="exact", num_classes=3)
    weights.load(fresh, tmp_path, head="reset")
    assert fresh.task == ONE_CLASS  # of its own head
    strip_note(tmp_path / "model.safetensors")
    known = Task("labels") if format == "huggingface" else ONE_CLASS
    assert vit_keras.open(tmp_path).task == known
