"""Files for models of other sizes and channels: grids, slots, and the rules of each publisher."""

import dataclasses
import json
import warnings

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS
from tests.helpers import GOLDEN, assert_close, randomize, weights_by_path
from tests.weights.builds import arrays_of, assert_equal_weights, build
from vit_keras import weights
from vit_keras.models import Preprocessing, ResNet, intermediates, with_image_size, with_patch_size
from vit_keras.support.interpolation import resample_patch_kernel, resize_position_embeddings
from vit_keras.support.preprocessing import Resizing
from vit_keras.weights.formats import registry

pytestmark = [
    pytest.mark.on("torch"),
    pytest.mark.filterwarnings("ignore:.*computes with", "ignore:.*pictures"),
]
FAMILIES = GOLDEN / "families"
POSITIONS, KERNEL = "posembed_input/pos_embedding", "embedding/kernel"
FLEXIVIT = {"interpolation": "bilinear_antialias", "patch_interpolation": "bilinear_half_pixel"}
NAFLEX = FAMILIES / "big_vision_siglip2_naflex" / "siglip2_naflex.npz"


def assert_golden(model, io, end, image_end):
    """The outputs, under the names that end so; `test_golden_families` has those of the file."""
    vector = "logits" if f"logits{end}" in io else "pooled"
    outputs = intermediates(model)(io[f"images{image_end}"])
    for layer, name in (("encoder_norm", "tokens"), (model.layers[-1].name, vector)):
        assert_close(outputs[layer], io[f"{name}{end}"], rtol=1e-5, name=name)


@pytest.mark.parametrize("patch_size", [4, 6])
def test_flexivit_of_big_vision_at_other_patch_sizes(patch_size):
    folder = FAMILIES / "big_vision_flexivit"
    io, end = arrays_of(folder / "io.npz"), f"_patch{patch_size}"
    loaded = vit_keras.open(folder / "flexivit.npz", patch_size=patch_size, **FLEXIVIT)
    assert_golden(loaded, io, end, "")
    # The model keeps the rules that it was loaded by.
    kept = vit_keras.open(folder / "flexivit.npz", interpolation="bilinear_antialias")
    assert_golden(with_patch_size(kept, patch_size), io, end, "")


def test_naflex_of_big_vision_is_loaded_at_another_grid(recwarn):
    model, io = vit_keras.open(NAFLEX), arrays_of(NAFLEX.parent / "io.npz")
    assert model.input_shape == (None, 16, 16, 3)
    assert model.resizing == Resizing("bilinear_antialias", "bilinear_half_pixel", crops=True)
    assert model.preprocessing.crop_fraction is None
    loaded = vit_keras.open(NAFLEX, image_size=io["images_1"].shape[1:3])
    assert_golden(loaded, io, "_1", "_1")
    assert not [warning for warning in recwarn if "does not state its grid" in str(warning.message)]


def test_naflex_is_written_as_an_ordinary_file(tmp_path):
    model = vit_keras.open(NAFLEX)
    weights.save(model, tmp_path / "a.npz", format="big_vision")
    after, before = arrays_of(tmp_path / "a.npz"), arrays_of(NAFLEX)
    kernel, table = after["params/embedding/kernel"], before["params/img/embedding/kernel"]
    assert kernel.shape == (4, 4, 3, 16) and after["params/pos_embedding"].shape == (1, 16, 16)
    np.testing.assert_array_equal(kernel.reshape(48, 16), table)  # rows, columns, channels
    assert_equal_weights(model, vit_keras.open(tmp_path / "a.npz"))


def written(tmp_path, positions, **changes):
    """A bare big_vision file of 16x16 images in patches of 4, with other positions."""
    model = build(np.random.default_rng(3), **changes, image_size=16, patch_size=4, gelu="tanh")
    weights.save(model, tmp_path / "a.npz", format="big_vision")
    arrays = arrays_of(tmp_path / "a.npz") | {"params/pos_embedding": positions}
    np.savez(tmp_path / "a.npz", **arrays)
    return tmp_path / "a.npz"


@pytest.mark.parametrize(("grid", "classifier"), [((3, 5), "token"), ((2, 8), "gap")])
def test_equal_counts_of_another_grid_are_resized_and_warned_of(rng, tmp_path, grid, classifier):
    table = rng.normal(size=(1, 16, 24)).astype("float32")
    path = written(tmp_path, table, classifier=classifier)
    image_size = tuple(4 * side for side in grid)
    model = build(image_size=image_size, patch_size=4, classifier=classifier)
    with pytest.warns(UserWarning, match="16 positions are read as 4x4 patches"):
        weights.load(model, path)
    after = weights_by_path(model)[POSITIONS]
    expected = resize_position_embeddings(table, (4, 4), grid)
    assert_close(after[:, -expected.shape[1] :], expected, rtol=1e-6)
    assert not after[:, : -expected.shape[1]].any()


def test_a_bare_file_of_3x5_patches_and_a_class_token_is_warned_of(tmp_path):
    """timm's may have positions for the patches only, so a square fits without the class token."""
    weights.save(build(image_size=(12, 20), patch_size=4), tmp_path / "a.pth", format="timm")
    with pytest.warns(UserWarning, match="16 positions are read as 4x4 patches and resized to 3x5"):
        vit_keras.open(tmp_path / "a.pth", image_size=(12, 20), num_heads=3)


def test_a_grid_that_no_square_explains_is_the_models(rng, tmp_path):
    table = rng.normal(size=(1, 15, 24)).astype("float32")  # 3x5 without a slot
    path = written(tmp_path, table)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = weights.load(build(image_size=(12, 20), patch_size=4, gelu="tanh"), path)
    np.testing.assert_array_equal(weights_by_path(model)[POSITIONS][:, 1:], table)
    with pytest.raises(ValueError, match="15 positions of a grid that is not square"):
        weights.load(build(image_size=(12, 24), patch_size=4), path)


@pytest.mark.parametrize("source", ["google", "timm", "huggingface", "vit_keras"])
def test_sixteen_positions_of_3x5_patches_and_a_class_token(rng, tmp_path, source):
    """Formats that always have the slot, and files that say their grid, are read as written."""
    suffix = {"google": ".npz", "vit_keras": ".weights.h5"}.get(source, ".safetensors")
    size = {"image_size": (12, 20), "patch_size": 4, "gelu": "tanh"}
    model = build(rng, **size)
    path = tmp_path / f"a{suffix}"
    weights.save(model, path, format=source)
    assert_equal_weights(model, weights.load(build(**size), path))
    if path.suffix == ".safetensors":  # which states its grid
        assert_equal_weights(model, vit_keras.open(path))


def test_relative_biases_are_resized_as_they_are_loaded(rng, tmp_path):
    source = build(rng, image_size=(24, 32), position_embedding="relative_2d")
    for name in ("own.keras", "own.weights.h5"):
        weights.save(source, tmp_path / name)
        same = build(image_size=(24, 32), position_embedding="relative_2d")
        assert_equal_weights(source, weights.load(same, tmp_path / name))
    other = build(image_size=(40, 16), position_embedding="relative_2d")
    weights.load(other, tmp_path / "own.keras", interpolation="bicubic")
    assert_equal_weights(other, with_image_size(source, (40, 16), "bicubic"))
    with pytest.raises(ValueError, match="38 positions of a grid that is not square"):
        weights.load(other, tmp_path / "own.weights.h5")


def test_kernels_and_positions_have_rules_of_their_own(rng, tmp_path):
    source = build(rng, image_size=32)
    weights.save(source, tmp_path / "a.safetensors", format="timm")
    before = weights_by_path(source)
    antialias = "bicubic_antialias"
    for options, rules in (
        ({}, Resizing(antialias, antialias, True)),
        ({"interpolation": "bicubic_offset"}, Resizing("bicubic_offset", antialias, True)),
        ({"patch_interpolation": "bicubic"}, Resizing(antialias, "bicubic", True)),
    ):
        model = build(image_size=32, patch_size=(4, 16))
        weights.load(model, tmp_path / "a.safetensors", **options)
        after = weights_by_path(model)
        positions = resize_position_embeddings(before[POSITIONS], (4, 4), (8, 2), rules.positions)
        assert_close(after[POSITIONS], positions, rtol=1e-6)
        kernel = resample_patch_kernel(before[KERNEL], (4, 16), rules.patches)
        assert_close(after[KERNEL], kernel, rtol=1e-6)
        assert model.resizing == rules
    with pytest.raises(ValueError, match="`patches` must be one of .*'area'"):
        weights.load(model, tmp_path / "a.safetensors", patch_interpolation="area")


MEAN, STD = (0.48, 0.45, 0.4, 0.3, 0.6), (0.27, 0.26, 0.25, 0.2, 0.3)
CHANNELS = 5
# The architecture that each format holds; the others hold the small ViT.
OTHERS = {
    "google": {"gelu": "tanh"},
    "big_vision": {"gelu": "tanh"},
    "dino": {"num_classes": None},
    "dinov3": {**DESIGNS["DINOv3"], "num_classes": None, "layer_norm_epsilon": 1e-5},
    "open_clip": {**DESIGNS["CLIP"], "gelu": "exact", "layer_norm_epsilon": 1e-5},
    "perception_encoder": {**DESIGNS["PE"], "head_use_bias": False, "layer_norm_epsilon": 1e-5},
}


def built(rng, name):
    """A model that the format holds."""
    if name == "bit":
        return randomize(ResNet(24, (1, 1), 0.5, 5, CHANNELS), rng)
    return build(rng, channels=CHANNELS, **OTHERS.get(name, {}))


@pytest.mark.parametrize("name", sorted(registry.FORMATS))
def test_every_format_holds_the_channels_or_refuses_them_by_name(rng, tmp_path, name):
    row, model = registry.FORMATS[name], built(rng, name)
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    folder = row.folder_name
    path = tmp_path / ("folder" if folder else "".join(["a", *row.suffixes[:1]]))
    if name in ("open_clip", "perception_encoder", "torchvision", "open_clip_timm"):
        with pytest.raises(ValueError, match="channels=5|Received: format='open_clip_timm'"):
            weights.save(model, path, format=name)
        return
    for values in (1, 3, CHANNELS) if folder else [CHANNELS]:
        model.preprocessing = Preprocessing(mean=MEAN[:values], std=STD[:values])
        weights.save(model, path, format=name)
        again = weights.load(built(rng, name), path)
        assert_close(again.predict_on_batch(images), model.predict_on_batch(images), rtol=1e-5)
        for field in ("mean", "std") if folder else ():
            read, ours = (getattr(x.preprocessing, field) for x in (again, model))
            assert_close(np.broadcast_to(read, CHANNELS), np.broadcast_to(ours, CHANNELS), 1e-5)


@pytest.mark.parametrize("channels", [1, CHANNELS])  # the mean of the colors, and colors by turns
@pytest.mark.parametrize("project", ["timm", "huggingface"])
def test_files_of_three_channels_are_read_for_others(rng, tmp_path, project, channels):
    """The statistics of three colors become those of the channels, as the patch kernel does."""
    source = build(rng)
    source.preprocessing = dataclasses.replace(
        source.preprocessing, mean=MEAN[:3], std=STD[:3], rounding="torchvision"
    )
    weights.save(source, tmp_path / "rgb", format=project)
    model = vit_keras.open(tmp_path / "rgb", channels=channels)
    mean = [np.mean(MEAN[:3])] if channels == 1 else [MEAN[i % 3] for i in range(channels)]
    np.testing.assert_allclose(model.preprocessing.mean, mean)
    weights.save(model, tmp_path / "ours", format=project)
    name = "config.json" if project == "timm" else "preprocessor_config.json"
    config = json.loads((tmp_path / "ours" / name).read_text())
    pixels = config["pretrained_cfg"] if project == "timm" else config
    pair = ("mean", "std") if project == "timm" else ("image_mean", "image_std")
    assert [len(pixels[field]) for field in pair] == [channels, channels]
