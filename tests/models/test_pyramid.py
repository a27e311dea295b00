"""Feature pyramids equal the blocks' outputs, resampled by formulas in NumPy."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.models import (
    HybridViT,
    ResNet,
    VisionTransformer,
    feature_pyramid,
    intermediates,
    with_image_size,
)
from vit_keras.support.resizing import INTERPOLATIONS

pytestmark = pytest.mark.on("torch")


@pytest.fixture(scope="module")
def small():
    """A randomized model for 16x24 images, images, and the results of Eq. 1-4."""
    rng = np.random.default_rng(11)
    model = VisionTransformer((16, 24), 8, 24, 3, 3, 40, num_classes=5, name="small")
    randomize(model, rng, scale=0.15)
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    return model, images, reference.forward(images, weights_by_path(model), num_layers=3)


def computed(model, images):
    return keras.tree.map_structure(to_numpy, model(images))


def as_map(tokens, grid=(2, 3)):
    return tokens[:, 1:].reshape(len(tokens), *grid, -1)


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


def test_levels_are_the_last_map_resampled(small):
    model, images, expected = small
    last = as_map(expected["encoderblock_2"])
    maps = computed(feature_pyramid(model, levels=(2, 8, 16)), images)
    for received, target in zip(maps, (upsampled(last, 4), last, pooled(last, 2)), strict=True):
        assert_close(received, target)


def test_blocks_are_maps_of_their_own_with_and_without_the_norm(small):
    model, images, expected = small
    maps = computed(feature_pyramid(model, blocks=(0, -1)), images)
    for received, name in zip(maps, ("encoderblock_0", "encoderblock_2"), strict=True):
        assert_close(received, as_map(expected[name]))
    normed = computed(feature_pyramid(model, norm=True), images)
    assert_close(normed, as_map(expected["encoder_norm"]))


def test_a_pyramid_takes_another_size_and_is_saved(small, rng, tmp_path):
    model = small[0]
    resized = with_image_size(feature_pyramid(model, (4, 8), norm=True), (32, 8))
    images = rng.uniform(-1, 1, (2, 32, 8, 3)).astype("float32")
    other = computed(intermediates(with_image_size(model, (32, 8))), images)
    expected = as_map(other["encoder_norm"], (4, 1))
    resized.save(tmp_path / "pyramid.keras")
    fine, own = computed(keras.saving.load_model(tmp_path / "pyramid.keras"), images)
    assert_close(own, expected, rtol=2e-6)
    assert_close(fine, upsampled(expected, 2), rtol=2e-6)


def test_a_hybrid_gives_the_maps_of_its_stem(rng):
    sizes = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
    model = randomize(HybridViT(32, (1, 1), 0.5, 1, **sizes), rng, scale=0.15)
    images = rng.uniform(-1, 1, (2, 32, 32, 3)).astype("float32")
    outputs = computed(intermediates(model), images)
    maps = computed(feature_pyramid(model, levels=(4, 8, 16)), images)
    last = as_map(outputs["encoderblock_1"], (4, 4))
    expected = (outputs["block1"], last, pooled(last, 2))
    for received, target in zip(maps, expected, strict=True):
        assert_close(received, target, rtol=2e-6)


def test_a_resnet_gives_its_stages_for_any_size(rng):
    model = randomize(ResNet(None, (1, 1), 0.5, num_classes=5), rng, scale=0.15)
    pyramid = feature_pyramid(model, levels=(4, 8))
    images = rng.uniform(-1, 1, (1, 16, 24, 3)).astype("float32")
    outputs = computed(intermediates(model), images)
    for received, name in zip(computed(pyramid, images), ("block1", "block2")):
        assert_close(received, outputs[name], rtol=2e-6)
