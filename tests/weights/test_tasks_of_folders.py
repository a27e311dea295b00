"""What outputs mean, in folders of other projects: their code gives labels and numbers as ours."""

import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from tests.weights.builds import build
from vit_keras import data, weights
from vit_keras.support.tasks import CLASSES, Task

pytestmark = pytest.mark.on("torch")
NAMES = ["a", "b", "c"]
UNITS = {"mean": (20.0, -3.0, 0.5), "std": (4.0, 0.1, 30.0)}


def model_of(rng, task):
    model = build(rng, image_size=16, gelu="exact", num_classes=3)
    model.class_names, model.task = NAMES, task
    return model


def logits_of(model, picture):
    pixels = data.normalize(
        data.resize(picture, (16, 16), model.preprocessing), model.preprocessing
    )
    return to_numpy(model(pixels[None]))[0]


@pytest.mark.parametrize(
    ("task", "problem", "answer"),
    [
        (CLASSES, None, lambda logits: np.exp(logits) / np.exp(logits).sum()),
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
    assert fresh.task == CLASSES  # of its own head
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors, tmp_path / "model.safetensors")  # without our note
    known = Task("labels") if format == "huggingface" else CLASSES
    assert vit_keras.open(tmp_path).task == known
