"""How pictures become images: of new models, of files that say it, and of files that cannot."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest

import vit_keras
from tests.weights.builds import build
from vit_keras import weights
from vit_keras.config import read_config
from vit_keras.experiments.run_model import initial_model
from vit_keras.models import Preprocessing, preprocessing_of
from vit_keras.weights.formats import registry

pytestmark = pytest.mark.on("torch")
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


ROUNDED = ("timm", "torchvision", "open_clip", "open_clip_timm", "dino", "perception_encoder")


def test_projects_round_as_their_code_does():
    """What is read without our own note, as published files are."""
    said = {name: row.numerics({}, {}) for name, row in registry.FORMATS.items()}
    rounding = {name: says.preprocessing.rounding for name, says in said.items() if says}
    expected = dict.fromkeys(rounding, "none") | dict.fromkeys(ROUNDED, "torchvision")
    assert rounding == expected | {"huggingface": "transformers"}
    dino = {"preprocessor_config.json": {"image_processor_type": "DINOv3ViTImageProcessorFast"}}
    read = registry.FORMATS["huggingface"].numerics({}, dino).preprocessing
    assert read.rounding == "none"  # its processor resizes floats


BEFORE = "antialias=True and this model with antialias=False"
CROP, COLORS = {"crop_fraction": 0.8}, {"interpolation": "bicubic", **IMAGENET}


@pytest.mark.parametrize(
    ("format", "fields", "message"),
    [
        ("huggingface", {"antialias": False}, f"prepares pictures with {BEFORE}"),
        ("keras_hub", {"antialias": False, "rounding": "none"}, None),
        ("keras_hub", {"crop_fraction": 0.5, "rounding": "none"}, "crop_fraction=1.0 and .*=0.5"),
        ("timm", {**CROP, **COLORS}, None),
        ("huggingface", COLORS, None),
        ("huggingface", {**CROP, "rounding": "transformers"}, None),
        ("huggingface", {"rounding": "torchvision"}, None),  # which differs in crops alone
        ("keras_hub", {}, "rounding='none' and .*'torchvision'"),
        ("timm", {"rounding": "none"}, None),  # whose probabilities differ by less than 1e-3
        ("huggingface", {"rounding": "none"}, None),
        ("huggingface", {**CROP, "rounding": "none"}, "='transformers' and .*='none'"),
        ("timm", {**CROP, "rounding": "transformers"}, "='torchvision' and .*='transf"),
        ("timm", {"crop_fraction": 0.9, "rounding": "none"}, "='torchvision' and .*='none'"),
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
