"""How pictures become images: of new models, of files that say it, and of files that cannot."""

import dataclasses
import json
import warnings
import zipfile

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.weights.builds import build
from vit_keras import runs, weights
from vit_keras.config import ModelConfig, read_config
from vit_keras.experiments.starting_point import complete_model, initial_model
from vit_keras.models import Preprocessing, preprocessing_of
from vit_keras.weights.formats import registry
from vit_keras.weights.numerics import Numerics

pytestmark = pytest.mark.once
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


def test_new_models_average_pixels_and_published_weights_keep_their_resize(rng, tmp_path):
    model = build(rng, gelu="tanh", image_size=16)
    assert model.preprocessing == Preprocessing() and Preprocessing().antialias
    there = "google prepares pictures with antialias=False, rounding='none' and this"
    with pytest.warns(UserWarning, match=there):
        weights.save(model, tmp_path / "model.npz", format="google")
    read = weights.from_checkpoint(tmp_path / "model.npz")
    assert not read.preprocessing.antialias  # as Google prepares pictures
    assert not registry.FORMATS["google"].numerics({}).preprocessing.antialias
    assert not registry.FORMATS["bit"].numerics({}).preprocessing.antialias


def test_files_without_the_field_mean_no_averages(rng, tmp_path):
    model, path = build(rng), tmp_path / "model.keras"
    model.save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(members["config.json"])
    del config["config"]["preprocessing"]["antialias"]
    del config["config"]["preprocessing"]["rounding"]
    members["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    old = Preprocessing(antialias=False, rounding="none")
    assert keras.saving.load_model(path).preprocessing == old
    note = Numerics(preprocessing=Preprocessing(rounding="torchvision")).to_json()
    del note["preprocessing"]["antialias"], note["preprocessing"]["rounding"]
    assert Numerics.from_json(note).preprocessing == old
    model.save_weights(tmp_path / "model.weights.h5")  # which says nothing of pictures at all
    arguments = {"gelu": "exact", "classifier": "token", "image_size": (16, 24)}
    read = weights.from_checkpoint(tmp_path / "model.weights.h5", **arguments)
    assert read.preprocessing == old
    assert preprocessing_of(keras.Sequential([keras.layers.Dense(1)])) == old


@pytest.mark.parametrize("rounding", [None, "none", "transformers"])
def test_a_run_may_name_the_rounding(tmp_path, rounding):
    config = read_config("digits")
    model = dataclasses.replace(config.model, rounding=rounding)
    config = dataclasses.replace(config, model=model, workdir=str(tmp_path / "run"))
    for settled in (config, runs.continued(config)):
        built = initial_model(settled, ["a", "b"])
        assert built.preprocessing == Preprocessing(rounding=rounding or "torchvision")


@pytest.mark.parametrize("antialias", [None, False, True])
def test_a_run_may_name_the_resize(antialias):
    small = read_config("digits").model
    for model, published in (
        (small, True),
        (ModelConfig("DINOv2-S/14", image_size=28, num_layers=1), True),
    ):
        config = dataclasses.replace(
            read_config("digits"), model=dataclasses.replace(model, antialias=antialias)
        )
        pixels = initial_model(config, ["a", "b"]).preprocessing
        assert pixels.antialias == (published if antialias is None else antialias)


ROUNDED = ("timm", "torchvision", "open_clip", "open_clip_timm", "dino", "perception_encoder")


def test_projects_round_as_their_code_does():
    """What is read without our own note, as published files are."""
    said = {name: row.numerics({}) for name, row in registry.FORMATS.items()}
    rounding = {name: says.preprocessing.rounding for name, says in said.items() if says}
    expected = dict.fromkeys(rounding, "none") | dict.fromkeys(ROUNDED, "torchvision")
    assert rounding == expected | {"huggingface": "transformers"}
    dino = {"preprocessor_config.json": {"image_processor_type": "DINOv3ViTImageProcessorFast"}}
    read = registry.FORMATS["huggingface"].numerics(dino).preprocessing
    assert read.rounding == "none"  # its processor resizes floats


def without_note(folder):
    """Writes a folder's tensors anew, as the project's own code does."""
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("line", ["", "  rounding: null\n"])  # which meant none until new ones did
@pytest.mark.parametrize("workdir", ["run", None])
def test_a_new_model_of_an_earlier_version_goes_on_without_rounding(
    tmp_path, monkeypatch, line, workdir
):
    monkeypatch.chdir(tmp_path)
    config = read_config("scratch/small")
    config = dataclasses.replace(config, dataset="digits", workdir=workdir)
    pixels = lambda config: initial_model(config, ["a", "b"]).preprocessing
    run = runs.open_run(config)
    assert run.folder == runs.folder_of(config) and pixels(run.config) == Preprocessing()
    described = run.folder / "config.yaml"
    assert "  rounding: torchvision\n" in described.read_text()
    described.write_text(described.read_text().replace("  rounding: torchvision\n", line))
    continued = runs.continued(config)
    assert pixels(continued) == Preprocessing(rounding="none")
    assert runs.open_run(config).config == runs.open_run(continued).config == continued
    assert runs.continued(config) == continued  # from now on the file says it
    named = dataclasses.replace(config.model, rounding="torchvision")
    with pytest.raises(ValueError, match="model.rounding: 'none' there, 'torchvision' here"):
        runs.open_run(dataclasses.replace(config, model=named, workdir=str(run.folder)))


def test_a_run_that_an_earlier_version_began_rounds_no_levels(tmp_path):
    weights.save(build(gelu="exact", image_size=16), tmp_path / "hf", format="huggingface")
    source = str(without_note(tmp_path / "hf"))
    model = ModelConfig(weights=source)
    config = dataclasses.replace(
        read_config("digits"), model=model, workdir=str(tmp_path / "run"), total_steps=1
    )
    pixels = lambda config: initial_model(config, ["a", "b"]).preprocessing
    new = complete_model(config)
    assert pixels(new).rounding == "transformers"
    described = runs.open_run(new).folder / "config.yaml"
    assert runs.continued(new) == new
    described.write_text(described.read_text().replace("  rounding: null\n", ""))
    continued = runs.continued(new)
    assert pixels(continued).rounding == "none"
    assert runs.open_run(continued).config == continued
    assert runs.continued(new) == continued  # from now on the file says it


@pytest.mark.parametrize(
    ("format", "fields", "message"),
    [
        ("huggingface", {"antialias": False}, "antialias=True and this model with antialias=False"),
        ("timm", {"antialias": False}, "antialias=True and this model with antialias=False"),
        ("keras_hub", {"antialias": False, "rounding": "none"}, None),
        (
            "keras_hub",
            {"crop_fraction": 0.5, "rounding": "none"},
            "crop_fraction=1.0 and .* crop_fraction=0.5",
        ),
        ("timm", {"interpolation": "bicubic", "crop_fraction": 0.8, **IMAGENET}, None),
        ("huggingface", {"interpolation": "bicubic", **IMAGENET}, None),
        ("timm", {"crop_fraction": 0.8, "rounding": "torchvision"}, None),
        ("huggingface", {"crop_fraction": 0.8, "rounding": "transformers"}, None),
        ("huggingface", {"rounding": "torchvision"}, None),  # which differs in crops alone
        ("keras_hub", {}, "rounding='none' and .*'torchvision'"),
        ("timm", {"rounding": "none"}, None),  # whose probabilities differ by less than 1e-3
        ("huggingface", {"rounding": "none"}, None),
        ("timm", {}, None),
        ("huggingface", {}, None),
    ],
)
def test_a_folder_that_cannot_say_the_preprocessing_says_so(tmp_path, format, fields, message):
    model = build(gelu="exact", image_size=16, layer_norm_epsilon=1e-6)
    model.preprocessing = Preprocessing(**fields)
    if message is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            weights.save(model, tmp_path / "folder", format=format)
        read = weights.from_checkpoint(tmp_path / "folder").preprocessing
        for name in ("mean", "std"):
            one, other = getattr(read, name), getattr(model.preprocessing, name)
            np.testing.assert_allclose(np.broadcast_to(one, 3), np.broadcast_to(other, 3))
        return
    with pytest.warns(UserWarning, match=f"{format} prepares pictures with {message}"):
        weights.save(model, tmp_path / "folder", format=format)


@pytest.mark.parametrize(
    ("format", "fraction", "rounding", "size", "message"),
    [
        ("huggingface", 0.8, "none", 16, "huggingface rounds the corner of a crop down"),
        ("huggingface", 0.8, "torchvision", 16, "huggingface rounds the corner of a crop down"),
        ("timm", 0.8, "transformers", 16, "timm rounds the corner of a crop to the even side"),
        ("timm", 0.9, "none", 16, "timm rounds the 17.8 pixels of the shorter side"),
        ("timm", 0.8, "torchvision", (16, 24), "timm takes other sizes before a crop of 16x24"),
    ],
)
def test_a_project_that_cuts_elsewhere_is_named(
    tmp_path, format, fraction, rounding, size, message
):
    model = build(gelu="exact", image_size=size)
    model.preprocessing = Preprocessing(crop_fraction=fraction, rounding=rounding)
    with pytest.warns(UserWarning, match=message):
        weights.save(model, tmp_path / "folder", format=format)


def test_gray_pictures_and_other_methods(tmp_path):
    model = build(image_size=16, channels=1, gelu="exact")
    with pytest.warns(UserWarning, match="timm does not turn pictures gray"):
        weights.save(model, tmp_path / "gray", format="timm")
    model.preprocessing = Preprocessing(interpolation="nearest")
    with pytest.raises(ValueError, match="`interpolation` must be one of 'bilinear', 'bicubic'"):
        weights.save(model, tmp_path / "nearest", format="huggingface")
    bare = build(image_size=16, gelu="exact")
    bare.preprocessing = Preprocessing(antialias=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a lone file of timm says nothing of pictures
        weights.save(bare, tmp_path / "bare.safetensors", format="timm")
    with pytest.warns(UserWarning, match="torchvision prepares pictures with mean="):
        weights.save(bare, tmp_path / "bare.pth", format="torchvision")
