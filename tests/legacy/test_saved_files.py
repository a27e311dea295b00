"""The files that vit-keras 0.1.2 and 0.2.0 saved give the outputs that those versions computed."""

import re
import shutil
import zipfile

import h5py
import keras
import numpy as np
import pytest

from tests.helpers import assert_close
from tests.legacy.conftest import SMALL, VERSIONS
from vit_keras import vit
from vit_keras.legacy import load_model, upgrade

pytestmark = pytest.mark.on("torch")


def build(name):
    """The model that a file's weights belong to."""
    arguments = {"image_size": (24, 16), "classes": 5, "name": "vit-tiny", **SMALL}
    if name == "top":
        return vit.build_model(**arguments, representation_size=12)
    body = vit.build_model(**arguments, include_top=False)
    added = (keras.layers.Flatten(), keras.layers.BatchNormalization())
    model = keras.Sequential([body, *added, keras.layers.Dense(3, activation="softmax")])
    model.build((None, 24, 16, 3))
    return model


FILES = [(version, name) for version in VERSIONS for name in ("top", "nested")]


@pytest.mark.parametrize(("version", "name"), FILES)
def test_saved_models_and_weights_give_the_outputs(old_files, outputs, version, name):
    images, expected = outputs[version]["images"], outputs[version][name]
    for suffix in (".h5", ".keras"):
        model = load_model(old_files / f"{version}_{name}{suffix}")
        assert_close(model.predict_on_batch(images), expected, name=suffix)
    for suffix in (".h5", ".weights.h5"):
        model = build(name)
        model.load_weights(old_files / f"{version}_{name}{suffix}")
        assert_close(model.predict_on_batch(images), expected, name=suffix)


def test_an_upgraded_model_computes_the_same_and_is_saved(old_files, outputs, tmp_path):
    model = upgrade(load_model(old_files / "0.1.2_top.h5"))
    expected, images = outputs["0.1.2"]["top"], outputs["0.1.2"]["images"]
    assert_close(model.predict_on_batch(images), expected)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(again.predict_on_batch(images), expected)
    assert (again.preprocessing.interpolation, again.preprocessing.antialias) == ("bilinear", False)


@pytest.mark.parametrize("damage", ["bytecode", "name"])
def test_no_code_in_a_file_runs(old_files, tmp_path, damage):
    """Bytecode that is none would crash Python; under another name Keras refuses the layer."""
    path = tmp_path / "b.keras"
    with zipfile.ZipFile(old_files / "0.2.0_top.keras") as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "config.json" and damage == "name":
                content = content.replace(b"ExtractToken", b"Mine")
            elif name == "config.json":
                content = re.sub(rb'"code": "[^"]*"', b'"code": "none"', content)
                assert b'"none"' in content
            new.writestr(name, content)
    if damage == "bytecode":
        load_model(path)
        return
    with pytest.raises(ValueError, match="b.keras' cannot be read as a model of vit-keras 0.x.*"):
        load_model(path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"again": "model_weights"}, "in two places"),
        ({f"{i}": "a" for i in range(99)}, "claim"),
        (
            {"model_weights/b": h5py.ExternalLink("b.h5", "k")},
            "linked.h5' .*the link /model_weights/b",
        ),
    ],
)
def test_links_elsewhere_are_refused_and_several_names_count_each(
    old_files, tmp_path, names, message
):
    """Keras reads an array once for each of its names, so a small file may claim a large model."""
    path = tmp_path / "linked.h5"
    shutil.copy(old_files / "0.1.2_top.h5", path)
    with h5py.File(path, "r+") as file:
        file["a"] = np.zeros(10**6, "float32")
        for name, place in names.items():
            file[name] = file[place] if isinstance(place, str) else place
    with pytest.raises(ValueError, match=message):
        load_model(path)


def test_messages_name_the_file_and_the_remedy(old_files, tmp_path):
    with pytest.raises(ValueError, match="only weights. Build the model with `vit_keras.vit`"):
        load_model(old_files / "0.2.0_top.weights.h5")
    for suffix in (".h5", ".keras"):
        shutil.copy(old_files / f"0.2.0_top{suffix}", tmp_path / f"cut{suffix}")
        with open(tmp_path / f"cut{suffix}", "r+b") as file:
            file.truncate(20_000)
        with pytest.raises(ValueError, match=f"cut{suffix}"):
            load_model(tmp_path / f"cut{suffix}")
    with pytest.raises(ValueError, match="`model` must be a model of vit-keras 0.x alone"):
        upgrade(load_model(old_files / "0.2.0_nested.h5"))
