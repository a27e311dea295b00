"""Fields of JSON files with wrong types, each by its name."""

import functools
import json
import zipfile

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import vit_keras
from tests.fuzz import subjects
from vit_keras import weights

pytestmark = pytest.mark.once

HUGGING, TIMM = "huggingface folder, foreign", "timm folder, foreign"
CLIP, HUB = "open_clip folder, foreign", "keras_hub folder"
PIXELS, OPEN_CLIP = "preprocessor_config.json", "open_clip_config.json"
CONVERTER = ("config", "preprocessor", "config", "image_converter", "config")
VISION = ("model_cfg", "vision_cfg")
# A folder, a file in it, the place of a field, and values that no project writes there.
FIELDS = [
    (HUGGING, "config.json", ("id2label",), [5, ["a"], {"0": 5}, {"x": "cat"}, {"0": "\ud800"}]),
    (HUGGING, "config.json", ("image_size",), ["big", 0, -8, [8, "8"], {}, 10**30, 8.5, True]),
    (HUGGING, "config.json", ("patch_size",), [0, -4, "4", [0, 4], []]),
    (HUGGING, "config.json", ("num_attention_heads",), ["three", 0, -1, 2.5, [], 7, 10**12]),
    (HUGGING, "config.json", ("num_channels",), [0, "3", -1]),
    (HUGGING, "config.json", ("layer_norm_eps",), [[], "x", -1, 2, float("nan"), True]),
    (HUGGING, "config.json", ("hidden_act",), [3, [], "sine"]),
    (HUGGING, "config.json", ("model_type",), [3, [], "bert"]),
    (HUGGING, "config.json", ("qkv_bias",), ["false", 0, []]),
    (HUGGING, "config.json", ("vision_config",), [3, []]),
    (HUGGING, PIXELS, ("image_mean",), [[], "x", [None], ["a"], {}, [float("inf")]]),
    (HUGGING, PIXELS, ("image_std",), [[], [0, 0, 0], 0]),
    (HUGGING, PIXELS, ("size",), ["x", {"height": 0, "width": 8}, {"height": "8"}, -1]),
    (HUGGING, PIXELS, ("do_normalize",), ["false", 2]),
    (HUGGING, PIXELS, ("resample",), ["x", [], -3]),
    (HUGGING, PIXELS, ("image_processor_type",), [5, {}]),
    (TIMM, "config.json", ("model_args",), [[], 5, {"img_size": {}}, {"num_heads": 0}]),
    (TIMM, "config.json", ("pretrained_cfg",), [7, [], {"crop_pct": "x"}, {"crop_pct": -1}]),
    (TIMM, "config.json", ("pretrained_cfg",), [{"mean": {}}, {"std": [0]}, {"input_size": "x"}]),
    (TIMM, "config.json", ("pretrained_cfg",), [{"interpolation": []}, {"interpolation": "x"}]),
    (TIMM, "config.json", ("architecture",), [9, []]),
    (TIMM, "config.json", ("label_names",), [4, "abc", [1, 2, 3]]),
    (TIMM, "config.json", ("global_pool",), [7, []]),
    (CLIP, OPEN_CLIP, ("model_cfg",), [7, []]),
    (CLIP, OPEN_CLIP, (*VISION, "head_width"), [0, "64", -3, []]),
    (CLIP, OPEN_CLIP, (*VISION, "image_size"), [0, "x", [8], {}]),
    (CLIP, OPEN_CLIP, (*VISION, "norm_kwargs"), [7, {"eps": "x"}, {"eps": -1}]),
    (CLIP, OPEN_CLIP, (*VISION, "pool_type"), [7, [], "max"]),
    (CLIP, OPEN_CLIP, ("preprocess_cfg", "std"), [[0, 0, 0], "x"]),
    (HUB, "task.json", (*CONVERTER, "scale"), [0, "x", [0, 0, 0], [], {}, float("nan"), 1e-320]),
    (HUB, "task.json", (*CONVERTER, "offset"), ["x", [], {}, 1e300]),
    (HUB, "task.json", (*CONVERTER, "antialias"), ["x", 5]),
    (HUB, "config.json", ("config", "image_shape"), [0, "x", [8], {}, [8, "8", 3]]),
    (HUB, "config.json", ("config", "layer_norm_epsilon"), ["x", [], -1, True]),
]
CASES = [(*row[:3], value) for row in FIELDS for value in row[3]]
# Fields of the note that this package writes.
NOTED = [
    ("architecture", {"hidden_size": [], "num_layers": 10**9, "num_heads": 0, "mlp_dim": "5"}),
    ("architecture", {"image_size": "x", "patch_size": {}, "channels": 10**9, "classifier": []}),
    ("architecture", {"representation_size": 10**9, "num_classes": -1, "gelu": {}, "rope": 3}),
    ("architecture", {"qkv_bias": [], "layer_scale": "x", "num_registers": 10**9, "norm": 3}),
    ("numerics", {"gelu": 7, "layer_norm_epsilon": "x", "class_names": "cat", "resizing": 3}),
    ("numerics", {"preprocessing": [], "standardization": 7, "unknown": 1}),
]
NOTES = [(part, name, value) for part, values in NOTED for name, value in values.items()]


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    """Makes the valid files of a subject once."""
    made = {}

    def path_of(name):
        if name not in made:
            made[name] = subjects.made(name, tmp_path_factory.mktemp("valid"))
        return made[name]

    return path_of


@pytest.mark.parametrize(("name", "file", "place", "value"), CASES)
def test_fields_of_other_types_are_refused_by_name(valid, tmp_path, name, file, place, value):
    path = tmp_path / "damaged"
    subjects.copied(valid(name), path)
    content = inner = json.loads((path / file).read_text())
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    (path / file).write_text(json.dumps(content))
    with pytest.raises(ValueError, match="damaged"):
        vit_keras.open(path)


@pytest.mark.parametrize(("part", "name", "value"), NOTES)
def test_fields_of_a_note_are_refused_by_name(valid, tmp_path, part, name, value):
    whole, path = valid("timm .safetensors"), tmp_path / "damaged.safetensors"
    with safe_open(whole, "np") as file:
        note = json.loads(file.metadata()["vit_keras"])
    note[part][name] = value
    save_file(load_file(whole), path, {"vit_keras": json.dumps(note)})
    with pytest.raises(ValueError, match="damaged.safetensors"):
        vit_keras.open(path)


@pytest.mark.parametrize("file", ["config.json", PIXELS])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[" * 100_000, "is not JSON"),
        (b'{"a":' * 100_000, "is not JSON"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", r"is not JSON \(it must nest at most 50"),
        (b'{"a": "\xff"}', "is not JSON"),
        (b'{"a": 1, "a": 2}', r"is not JSON \(the name 'a' appears twice"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not JSON"),
        (b"[]", "must hold a JSON object"),
        (b" " * (2**23 + 1), "must have at most 8388608 bytes"),
    ],
)
def test_texts_that_are_no_json_objects_are_named(valid, tmp_path, file, content, message):
    path = tmp_path / "damaged"
    subjects.copied(valid(HUGGING), path)
    (path / file).write_bytes(content)
    with pytest.raises(ValueError, match=f"damaged/{file}' {message}"):
        vit_keras.open(path)


WHOLE = ["[]", "5", "null", '"x"', "{}", "[[]]"]
KERAS_FIELDS = [
    *((name, value) for name in ("class_names", "task", "layers") for value in (7, [7], {"a": 7})),
    ("preprocessing", []),
    ("preprocessing", {"mean": [None], "std": [1]}),
    ("resizing", 5),
]


def with_config(valid, path, change):
    """Writes a valid `.keras` file with a changed text of its configuration."""
    with zipfile.ZipFile(valid) as whole, zipfile.ZipFile(path, "w") as damaged:
        for name in whole.namelist():
            content = whole.read(name)
            damaged.writestr(name, change(content) if name == "config.json" else content)
    return path


@pytest.mark.parametrize("text", WHOLE)
def test_a_keras_file_whose_configuration_is_none_is_refused_by_name(valid, tmp_path, text):
    path = with_config(
        valid("vit_keras .keras"), tmp_path / "damaged.keras", lambda _: text.encode()
    )
    with pytest.raises(ValueError, match="damaged.keras"):
        vit_keras.open(path)


@pytest.mark.parametrize(("field", "value"), KERAS_FIELDS)
def test_a_keras_file_with_other_fields_is_refused_before_anything_changes(
    valid, tmp_path, field, value
):
    def change(text):
        config = json.loads(text)
        config["config"][field] = value
        return json.dumps(config)

    path = with_config(valid("vit_keras .keras"), tmp_path / "damaged.keras", change)
    model = subjects.vision_transformer(np.random.default_rng(1))
    before = model.get_config(), model.get_weights()
    for read in (vit_keras.open, functools.partial(weights.load, model)):
        try:
            read(path)
        except ValueError as error:
            assert "damaged.keras" in str(error)
            assert model.get_config() == before[0]
            assert all(map(np.array_equal, model.get_weights(), before[1]))
        else:
            assert field in ("task", "layers") and read is not vit_keras.open  # unread there


def test_an_npz_file_with_a_tensor_under_two_names_is_refused(valid, tmp_path):
    whole = valid("google .npz")
    for name in ("cls", "./cls.npy", "cls.npy.npy"):
        path = tmp_path / "twice.npz"
        path.write_bytes(whole.read_bytes())
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, archive.read("cls.npy"))
        with pytest.raises(ValueError, match=r"(?s)twice.npz.*\bcls\b"):
            weights.load(subjects.vision_transformer(np.random.default_rng(1)), path)
