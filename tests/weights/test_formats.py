"""Every format gives the golden files' logits, and writes and reads weights bit by bit."""

import json

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, weights_by_path
from tests.weights.builds import PAIRS, SUFFIX, assert_equal_weights, build, other_numerics
from vit_keras import weights

GOLDENS = {
    "vit_token": ("google", {}),
    "vit_token_prelogits": ("google", {}),
    "vit_gap": ("google", {}),
    "timm_token": ("timm", {"num_heads": 4}),
    "timm_map": ("timm", {"num_heads": 4}),
    "timm_avg_nonsquare": ("timm", {"num_heads": 4, "image_size": (16, 40)}),
    "torchvision_token": ("torchvision", {"num_heads": 4}),
    "torchvision_prelogits": ("torchvision", {"num_heads": 4}),
}


def golden_file(name):
    return GOLDEN / f"{name}{'.npz' if name.startswith('vit') else '.safetensors'}"


@pytest.mark.parametrize("name", GOLDENS)
def test_logits_equal_the_other_projects_code(name):
    model = vit_keras.open(golden_file(name), **GOLDENS[name][1])
    with np.load(GOLDEN / f"{name}.io.npz") as io:
        assert_close(model(io["images"]), io["logits"])


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", GOLDENS)
def test_golden_files_are_written_back_as_they_were(name, tmp_path):
    source, known = GOLDENS[name]
    model = vit_keras.open(golden_file(name), **known)
    path = tmp_path / f"again{golden_file(name).suffix}"
    weights.save(model, path, format=source)
    before, after = tensors(golden_file(name)), tensors(path)
    if source == "google":  # the original numbering, the golden files have Linen's
        before = {original_numbering(key): value for key, value in before.items()}
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert value.tobytes() == after[key].tobytes(), key


def tensors(path):
    """Names and arrays of a file, read by the format's own library."""
    if path.suffix == ".npz":
        with np.load(path) as file:
            return dict(file)
    from safetensors.numpy import load_file

    return load_file(path)


def original_numbering(name):
    name = name.replace("/LayerNorm_1/", "/LayerNorm_2/").replace("/MlpBlock_0/", "/MlpBlock_3/")
    return name.replace("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention_1")


@pytest.mark.on("torch")
@pytest.mark.parametrize(("source", "classifier"), PAIRS)
def test_saved_weights_load_bit_by_bit(rng, tmp_path, source, classifier):
    model, path = build(rng, classifier=classifier), tmp_path / f"weights{SUFFIX[source]}"
    with other_numerics():
        weights.save(model, path, format=source)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # no temporary file stays
    other = weights.load(build(classifier=classifier), path, source=source)
    assert_equal_weights(model, other)


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "source", ["google", "big_vision", "torchvision", "keras_hub", "vit_keras"]
)
def test_hidden_layer_of_the_head_is_saved_and_loaded(rng, tmp_path, source):
    model, path = build(rng, representation_size=9), tmp_path / f"weights{SUFFIX[source]}"
    with other_numerics():
        weights.save(model, path, format=source)
    assert_equal_weights(model, weights.load(build(representation_size=9), path))


@pytest.mark.on("torch")
@pytest.mark.parametrize("source", ["timm", "huggingface"])
def test_saved_safetensors_file_says_its_architecture(rng, tmp_path, source):
    model = build(rng, gelu="tanh", layer_norm_epsilon=1e-3)
    with other_numerics():
        weights.save(model, tmp_path / "model.safetensors", format=source)
    other = vit_keras.open(tmp_path / "model.safetensors")
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    assert_close(other(images), model(images), rtol=2e-6)
    assert other.get_layer("encoderblock_1").gelu == "tanh"


@pytest.mark.on("torch")
def test_timm_folder_says_what_a_bare_file_does_not(rng, tmp_path):
    model = build(rng, classifier="gap_norm", channels=1, gelu="tanh")
    model.class_names = ("a", "b", "c", "d", "e")
    weights.save(model, tmp_path / "folder", format="timm")
    config = json.loads((tmp_path / "folder" / "config.json").read_text())
    assert config["model_args"]["num_heads"] == 3
    assert config["model_args"]["img_size"] == [16, 24]
    strip_note(tmp_path / "folder" / "model.safetensors")
    other = vit_keras.open(tmp_path / "folder")
    assert_equal_weights(model, other)
    assert other.class_names == ("a", "b", "c", "d", "e")
    images = rng.uniform(-1, 1, (2, 16, 24, 1)).astype("float32")
    assert_close(other(images), model(images), rtol=2e-6)


def strip_note(path):
    from safetensors.numpy import load_file, save_file

    save_file({k: np.array(v) for k, v in load_file(path).items()}, path)


@pytest.mark.on("torch")
def test_numerics_travel_with_the_source(rng, tmp_path):
    model = weights.load(build(num_heads=3), golden_like(rng, tmp_path, "torchvision"))
    assert model.preprocessing.mean == (0.485, 0.456, 0.406)
    assert model.preprocessing.crop_fraction == 0.875
    with other_numerics():
        model = weights.load(build(), golden_like(rng, tmp_path, "google"))
    block = model.get_layer("encoderblock_0")
    assert (block.gelu, block.mlp.gelu) == ("tanh", "tanh")
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_layer("encoderblock_1").mlp.gelu == "tanh"
    loaded = weights.load(build(), tmp_path / "model.keras")
    assert loaded.get_layer("encoderblock_1").mlp.gelu == "tanh"
    assert loaded.preprocessing == model.preprocessing
    assert_equal_weights(model, loaded)


def golden_like(rng, tmp_path, source):
    path = tmp_path / f"{source}{SUFFIX[source]}"
    weights.save(build(rng), path, format=source)
    return path


def test_compiled_model_takes_the_new_numerics(rng, tmp_path):
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    with other_numerics():
        path = golden_like(rng, tmp_path, "google")
    model = build()
    model.compile(loss="mse")
    model.predict(images, verbose=0)  # compiles the exact GELU
    weights.load(model, path)
    tanh = build(gelu="tanh")
    tanh.set_weights([weights_by_path(model)[w.path] for w in tanh.weights])
    assert_close(model.predict(images, verbose=0), tanh(images))


@pytest.mark.on("torch")
def test_saving_warns_if_the_other_code_computes_differently(rng, tmp_path):
    with pytest.warns(UserWarning, match="google computes with `gelu` 'tanh' and this .* 'exact'"):
        weights.save(build(rng), tmp_path / "a.npz", format="google")
    with pytest.warns(UserWarning, match="torchvision computes with `layer_norm_epsilon` 1e-06"):
        weights.save(build(rng, layer_norm_epsilon=1e-3), tmp_path / "a.pth", format="torchvision")


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    ("source", "change", "message"),
    [
        ("google", {"classifier": "map"}, "no place for a model with classifier='map'"),
        ("big_vision", {"classifier": "gap_norm"}, "a model with classifier='gap_norm'"),
        ("timm", {"representation_size": 9}, "Received: representation_size=9"),
        ("huggingface", {"classifier": "gap_norm"}, "'vit' has ViTModel, .*classifier='gap_norm'"),
        ("huggingface", {"representation_size": 9}, "Received: representation_size=9"),
        ("torchvision", {"classifier": "map"}, "no place for a model with classifier='map'"),
        ("keras_hub", {"classifier": "map"}, "no place for .*classifier='map'"),
    ],
)
def test_models_that_a_format_cannot_hold_are_refused(tmp_path, source, change, message):
    with pytest.raises(ValueError, match=message):
        weights.save(build(**change), tmp_path / f"weights{SUFFIX[source]}", format=source)
    assert not list(tmp_path.iterdir())


@pytest.mark.on("torch")
def test_wrong_formats_and_suffixes_are_named(tmp_path):
    with pytest.raises(ValueError, match="must be one of 'huggingface'.*Received.*'caffe'"):
        weights.save(build(), tmp_path / "a.npz", format="caffe")
    with pytest.raises(ValueError, match=r"google weights are written to \.npz\. Received.*a\.pth"):
        weights.save(build(), tmp_path / "a.pth", format="google")
    with pytest.raises(ValueError, match=r"written to \.keras or \.weights\.h5 files.*a\.npz"):
        weights.save(build(), tmp_path / "a.npz")
    with pytest.raises(ValueError, match="`source` must be one of 'huggingface'"):
        weights.load(build(), GOLDEN / "vit_token.npz", source="caffe")


@pytest.mark.once
@pytest.mark.parametrize("source", [name for name in SUFFIX if name != "vit_keras"])
def test_a_softmax_that_a_file_does_not_hold_is_said(rng, tmp_path, source):
    model = build(rng, classifier_activation="softmax")
    message = "no place for the classifier's activation 'softmax'"
    with pytest.warns(UserWarning, match=message):
        weights.save(model, tmp_path / f"weights{SUFFIX[source]}", format=source)
    other = weights.load(
        build(classifier_activation="softmax"), tmp_path / f"weights{SUFFIX[source]}"
    )
    assert_equal_weights(model, other)
