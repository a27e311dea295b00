"""The same picture, the same answer, here and in other projects; what files say of pictures."""

import dataclasses
import json
import warnings

import keras
import numpy as np
import pytest
from PIL import Image

import vit_keras
from benchmarks.photographs import photographs
from benchmarks.same_answer import CASES, NEW, compare, told
from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from tests.weights.builds import build, strip_note
from vit_keras import data, weights
from vit_keras.config import read_config
from vit_keras.experiments.run_model import initial_model
from vit_keras.models import Preprocessing, preprocessing_of
from vit_keras.support.tasks import CLASSES as ONE_CLASS
from vit_keras.support.tasks import Task
from vit_keras.weights.formats import registry

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


IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_new_models_average_pixels_and_published_weights_keep_their_resize(rng, tmp_path):
    model = build(rng, gelu="tanh", image_size=16)
    assert model.preprocessing == Preprocessing() and Preprocessing().antialias
    there = "google prepares pictures with antialias=False, rounding='none' and this"
    with pytest.warns(UserWarning, match=there):
        weights.save(model, tmp_path / "model.npz", format="google")
    read = vit_keras.open(tmp_path / "model.npz")
    assert not read.preprocessing.antialias  # as Google prepares pictures
    assert not registry.FORMATS["google"].numerics({}, {}).preprocessing.antialias
    assert not registry.FORMATS["bit"].numerics({}, {}).preprocessing.antialias


def test_what_does_not_say_its_resize_has_the_published_one(rng, tmp_path):
    build(rng).save_weights(tmp_path / "model.weights.h5")
    arguments = {"gelu": "exact", "classifier": "token", "image_size": (16, 24)}
    read = vit_keras.open(tmp_path / "model.weights.h5", **arguments)
    published = Preprocessing(antialias=False, rounding="none")
    assert read.preprocessing == published
    assert preprocessing_of(keras.Sequential([keras.layers.Dense(1)])) == published


@pytest.mark.parametrize(("rounding", "antialias"), [(None, None), ("none", None), (None, False)])
def test_a_run_may_name_the_rounding_and_the_resize(rounding, antialias):
    config = read_config("digits")
    model = dataclasses.replace(config.model, rounding=rounding, antialias=antialias)
    built = initial_model(dataclasses.replace(config, model=model), ["a", "b"])
    expected = Preprocessing(rounding=rounding or "torchvision", antialias=antialias is None)
    assert built.preprocessing == expected


BEFORE = "antialias=True and this model with antialias=False"
CROP, COLORS = {"crop_fraction": 0.8}, {"interpolation": "bicubic", **IMAGENET}


@pytest.mark.parametrize(
    ("format", "fields", "message"),
    [
        ("huggingface", {"antialias": False}, f"prepares pictures with {BEFORE}"),
        ("keras_hub", {"antialias": False, "rounding": "none"}, None),
        ("keras_hub", {"crop_fraction": 0.5, "rounding": "none"}, "crop_fraction=1.0 and .*=0.5"),
        ("huggingface", COLORS, None),
        ("huggingface", {"rounding": "torchvision"}, None),  # which differs in crops alone
        ("keras_hub", {}, "rounding='none' and .*'torchvision'"),
        ("timm", {"rounding": "none"}, None),  # whose probabilities differ by less than 1e-3
        ("huggingface", {**CROP, "rounding": "none"}, "='transformers' and .*='none'"),
    ],
)
def test_a_folder_that_cannot_say_the_preprocessing_says_so(tmp_path, format, fields, message):
    model = build(gelu="exact", image_size=16, layer_norm_epsilon=1e-6)
    model.preprocessing = Preprocessing(**fields)
    if message is not None:
        with pytest.warns(UserWarning, match=f"{format} .*{message}"):
            weights.save(model, tmp_path / "folder", format=format)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        weights.save(model, tmp_path / "folder", format=format)
    read = vit_keras.open(tmp_path / "folder").preprocessing
    for name in ("mean", "std"):
        one, other = getattr(read, name), getattr(model.preprocessing, name)
        np.testing.assert_allclose(np.broadcast_to(one, 3), np.broadcast_to(other, 3))
