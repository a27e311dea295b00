"""Feature pyramids and decoders over the blocks equal formulas in NumPy."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import inspection
from vit_keras.exporting import for_inference
from vit_keras.models import (
    HybridViT,
    Preprocessing,
    ResNet,
    VisionTransformer,
    add_lora,
    feature_pyramid,
    intermediates,
    merge_lora,
    segmenter,
    with_image_size,
)
from vit_keras.support.interpolation import INTERPOLATIONS
from vit_keras.support.preprocessing import Resizing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 24, "num_layers": 5, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}


@pytest.fixture(scope="module")
def encoder():
    """A randomized model for 16x24 images in patches of 8."""
    model = VisionTransformer((16, 24), 8, **SIZES, name="small")
    return randomize(model, np.random.default_rng(11), scale=0.15)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(3).uniform(-1, 1, (2, 16, 24, 3)).astype("float32")


def block_maps(encoder, images, grid=(2, 3)):
    """The normalized tokens and those of each block without the class token, `(B, h, w, D)`."""
    outputs = {name: to_numpy(x) for name, x in intermediates(encoder)(images).items()}
    as_map = lambda x: x[:, 1:].reshape(len(x), *grid, -1)
    tokens = ("encoderblock", "encoder_norm")
    return {k: as_map(x) for k, x in outputs.items() if k.startswith(tokens) and x.ndim == 3}


def computed(model, images):
    return keras.tree.map_structure(to_numpy, model(images))


def compare(received, expected, rtol=4e-6):
    for one, other in zip(received, expected, strict=True):
        assert_close(one, other, rtol=rtol)


def upsampled(x, factor):
    """Bilinear interpolation with centers of pixels at halves."""
    rows, columns = (INTERPOLATIONS["bilinear_half_pixel"](n, n * factor) for n in x.shape[1:3])
    return np.einsum("ih,jw,bhwc->bijc", rows, columns, x)


def pooled(x, factor):
    """The largest of each square, where squares at the far edges may be cut."""
    rows, columns = (-(-n // factor) for n in x.shape[1:3])
    squares = [
        x[:, i * factor : (i + 1) * factor, j * factor : (j + 1) * factor].max(axis=(1, 2))
        for i in range(rows)
        for j in range(columns)
    ]
    return np.stack(squares, axis=1).reshape(len(x), rows, columns, -1)


def test_maps_are_the_blocks_tokens_resampled(encoder, images):
    maps = block_maps(encoder, images)
    expected = reference.forward(images, weights_by_path(encoder), num_layers=5)
    for name, value in maps.items():
        assert_close(value.reshape(2, 6, -1), expected[name][:, 1:], name=name)
    last = maps["encoderblock_4"]
    levels = computed(feature_pyramid(encoder, levels=(2, 8, 16)), images)
    compare(levels, (upsampled(last, 4), last, pooled(last, 2)))
    blocks = computed(feature_pyramid(encoder, blocks=(0, -1)), images)
    compare(blocks, (maps["encoderblock_0"], last))
    assert_close(feature_pyramid(encoder, norm=True)(images), maps["encoder_norm"])


def test_a_pyramid_takes_another_size_and_is_saved(encoder, rng, tmp_path):
    resized = with_image_size(feature_pyramid(encoder, (4, 8), norm=True), (32, 8))
    images = rng.uniform(-1, 1, (2, 32, 8, 3)).astype("float32")
    expected = block_maps(with_image_size(encoder, (32, 8)), images, (4, 1))["encoder_norm"]
    resized.save(tmp_path / "pyramid.keras")
    again = computed(keras.saving.load_model(tmp_path / "pyramid.keras"), images)
    compare(again, (upsampled(expected, 2), expected))


def test_hybrids_and_resnets_give_the_maps_of_their_stages(rng):
    model = randomize(HybridViT(32, (1, 1), 0.5, 1, **SIZES), rng, scale=0.15)
    images = rng.uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    last = block_maps(model, images, (4, 4))["encoderblock_4"]
    expected = (intermediates(model)(images)["block1"], last, pooled(last, 2))
    compare(feature_pyramid(model, levels=(4, 8, 16))(images), expected)
    model = randomize(ResNet(None, (1, 1), 0.5, num_classes=5), rng, scale=0.15)
    outputs = intermediates(model)(images)
    compare(feature_pyramid(model, levels=(4, 8))(images), (outputs["block1"], outputs["block2"]))


def transposed(x, kernel, bias):
    """Each place becomes 2x2 places: `(B, h, w, C)` by `(2, 2, filters, C)`."""
    y = np.einsum("bhwc,ijfc->bhiwjf", x, kernel)
    batch, rows, _, columns, _, filters = y.shape
    return y.reshape(batch, 2 * rows, 2 * columns, filters) + bias


def convolved(x, kernel, bias):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.einsum("bhwcij,ijcf->bhwf", windows, kernel) + bias


def multilevel(maps, weights):
    """The decoder's logits, written from its description."""
    dense = lambda x, name: x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]
    norm = lambda x, name: reference.layer_norm(x, weights, name, 1e-6)
    x = 0
    for number, block in enumerate((0, 1, 3, 4)):  # the ends of four equal parts of five blocks
        y = norm(maps[f"encoderblock_{block}"], f"decoder_norm_{number}")
        x = x + dense(y, f"decoder_projection_{number}")
    steps = (("up", transposed), ("mix", convolved))
    for number, (step, convolution) in ((n, step) for n in range(2) for step in steps):
        name = f"decoder_{step}_{number}"
        x = convolution(x, weights[f"{name}/kernel"], weights[f"{name}/bias"])
        x = np.maximum(norm(x, f"decoder_{step}_norm_{number}"), 0)
    return upsampled(dense(x, "head"), 2)


def test_the_linear_decoder_is_a_dense_layer_on_the_normalized_map(encoder, images, rng):
    model = randomize(segmenter(encoder, 4, "linear"), rng, scale=0.15)
    weights, maps = weights_by_path(model), block_maps(encoder, images)
    logits = maps["encoder_norm"] @ weights["head/kernel"] + weights["head/bias"]
    assert_close(model(images), upsampled(logits, 8))


def test_the_multilevel_decoder_takes_another_size_and_is_saved(encoder, rng, tmp_path):
    encoder.preprocessing = Preprocessing(mean=(0.4,), crop_fraction=0.9)
    model = randomize(segmenter(encoder, 4, width=6), rng, scale=0.15)
    resized = with_image_size(model, (8, 32))
    resized.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    images = rng.uniform(-1, 1, (1, 8, 32, 3)).astype("float32")
    expected = multilevel(block_maps(again, images, (1, 4)), weights_by_path(model))
    assert_close(again(images), expected, rtol=1e-5)
    assert again.preprocessing == Preprocessing(mean=(0.4,))  # which sees whole pictures


@pytest.mark.parametrize(
    ("build", "size"),
    [
        (lambda: VisionTransformer(18, 8, **SIZES, crop_to_patches=True), "18x18"),
        (lambda: ResNet(36, (1, 1), 0.5, num_classes=5), "36x36"),
        (lambda: ResNet(None, (1, 1), 0.5, num_classes=5), "NonexNone"),
    ],
)
def test_maps_that_do_not_cover_the_images_have_no_masks(build, size):
    encoder = build()
    assert feature_pyramid(encoder, levels=(8,)).output is not None  # the stride is 8, not 18 // 2
    with pytest.raises(ValueError, match=f"stride, 8x8 pixels.*{size}"):
        segmenter(encoder, 4)


def test_a_segmenter_is_not_resized_to_a_size_that_its_patches_do_not_cover(encoder):
    model = segmenter(encoder, 4)
    model.resizing = Resizing(crops=True)
    with pytest.raises(ValueError, match="`patch_size` must divide `image_size`"):
        with_image_size(model, (15, 24))


def test_the_task_is_masks_wherever_the_model_goes(encoder, rng, tmp_path):
    """The encoder's classes are not the pixels'."""
    labels = with_image_size(encoder, (16, 24))
    labels.class_names, labels.task = list("abcde"), Task("labels", thresholds=(0.3,) * 5)
    model = randomize(segmenter(labels, 4, width=6), rng)
    for name in ("model.keras", "model.h5"):
        model.save(tmp_path / name)
    opened = keras.saving.load_model(tmp_path / "model.keras")
    adapted = add_lora(keras.saving.load_model(tmp_path / "model.h5"), 2)
    copies = (opened, with_image_size(opened, 32), for_inference(opened), merge_lora(adapted))
    for copy in (model, *copies):
        assert (copy.task, copy.class_names) == (Task("masks"), None)
    assert (labels.task.kind, labels.class_names) == ("labels", list("abcde"))


def test_a_decoder_costs_what_was_counted_by_hand(encoder):
    blocks = inspection.flops(VisionTransformer((16, 24), 8, **SIZES | {"num_classes": None})).macs
    projections, ups, mixes = 4 * 6 * 24 * 10, (6 + 24) * 4 * 100, (24 + 96) * 9 * 100
    expected = blocks + projections + ups + mixes + 96 * 10 * 4
    assert inspection.flops(segmenter(encoder, 4, width=10)).macs == expected
