"""Copies for other sizes of images and patches, by the rules that a model carries."""

import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.models import (
    VisionTransformer,
    patch_grid,
    with_image_size,
    with_patch_size,
)
from vit_keras.support.preprocessing import Resizing
from vit_keras.support.resizing import (
    INTERPOLATIONS,
    resize_position_embeddings,
    resize_relative_table,
)

pytestmark = pytest.mark.on("torch")

POSITIONS, KERNEL = "posembed_input/pos_embedding", "embedding/kernel"
FLEXIVIT = Resizing("bilinear_antialias", "bilinear_half_pixel")


@pytest.fixture(scope="module")
def small():
    """A randomized model for 16x8 images with patches of 4, which has FlexiViT's rules."""
    model = VisionTransformer((16, 8), 4, 24, 2, 3, 40, num_classes=5, name="small")
    model.resizing = FLEXIVIT
    return randomize(model, np.random.default_rng(7), scale=0.15)


def pseudo_inverse(kernel, new, rule):
    """pinv(Bᵀ) w, for B the matrix that resizes whole patches."""
    old = kernel.shape[:2]
    matrix = np.kron(*(INTERPOLATIONS[rule](a, b) for a, b in zip(old, new)))
    resized = np.linalg.pinv(matrix.T) @ kernel.reshape(old[0] * old[1], -1).astype("float64")
    return resized.reshape(*new, *kernel.shape[2:]).astype("float32")


@pytest.mark.parametrize("rules", [FLEXIVIT, Resizing("bicubic", "bicubic_antialias")])
def test_another_patch_size_resizes_the_kernel_and_the_positions(small, rng, rules):
    resized = with_patch_size(small, (8, 2), rules.positions, rules.patches)
    weights = weights_by_path(small)
    weights[KERNEL] = pseudo_inverse(weights[KERNEL], (8, 2), rules.patches)
    weights[POSITIONS] = resize_position_embeddings(
        weights[POSITIONS], (4, 2), (2, 4), rules.positions
    )
    images = rng.uniform(-1, 1, (2, 16, 8, 3)).astype("float32")
    expected = reference.forward(images, weights, num_layers=2)["logits"]
    assert_close(resized(images), expected)
    assert patch_grid(small) == (4, 2) and patch_grid(resized) == (2, 4)


@pytest.mark.parametrize("rule", INTERPOLATIONS)
def test_a_model_of_any_size_interpolates_in_the_graph_as_copies_do(small, rng, rule):
    dynamic = with_image_size(small, None, rule)
    for size in [(16, 8), (8, 20), (24, 4)]:
        images = rng.uniform(-1, 1, (2, *size, 3)).astype("float32")
        expected = to_numpy(with_image_size(small, size, rule)(images))
        assert_close(dynamic(images), expected, rtol=5e-6)
        cropped = np.pad(images, [(0, 0), (0, 3), (0, 2), (0, 0)], constant_values=1)
        assert_close(dynamic(cropped), expected, rtol=5e-6)


def test_relative_biases_are_resized_in_every_block(rng):
    sizes = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
    model = VisionTransformer((16, 8), 4, **sizes, position_embedding="relative_2d")
    before = weights_by_path(randomize(model, rng))
    for after in (with_image_size(model, (24, 8), "bicubic"), with_patch_size(model, 8, "bicubic")):
        grid = patch_grid(after)
        resized = weights_by_path(after)
        tables = [path for path in before if path.endswith("relative_2d/table")]
        assert len(tables) == 2
        for path in tables:
            expected = resize_relative_table(before[path], (4, 2), grid, "bicubic")
            assert_close(resized[path], expected, rtol=1e-6)
        np.testing.assert_array_equal(
            resized["encoderblock_1/MlpBlock_3/Dense_0/kernel"],
            before["encoderblock_1/MlpBlock_3/Dense_0/kernel"],
        )


def test_a_publisher_that_crops_takes_any_size(rng):
    model = randomize(VisionTransformer((16, 8), 4, 24, 2, 3, 40, num_classes=5), rng)
    with pytest.raises(ValueError, match="`patch_size` must divide `image_size`"):
        with_image_size(model, (18, 15))
    model.resizing = Resizing(crops=True)
    images = rng.normal(size=(2, 18, 15, 3)).astype("float32")
    expected = to_numpy(with_image_size(model, (16, 12))(images[:, :16, :12]))
    outputs = to_numpy(with_image_size(model, (18, 15))(images))
    assert_close(outputs, expected, rtol=2e-6)
