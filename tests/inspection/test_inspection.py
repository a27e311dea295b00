"""Every number of an inspection equals formulas on Eq. 1-4 in NumPy."""

import math

import numpy as np
import pytest

from tests import reference, resnet_reference
from tests.designs import images_for, random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import inspection
from vit_keras.models import HybridViT, VisionTransformer, attention_maps, intermediates

pytestmark = pytest.mark.on("torch")

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
MODELS = {
    "token": (lambda: VisionTransformer((12, 8), 4, **SMALL), (3, 2)),
    "map": (lambda: VisionTransformer((8, 18), (4, 6), **SMALL, classifier="map"), (2, 3)),
    "hybrid gap": (lambda: HybridViT((8, 12), (1,), 0.5, 1, **SMALL, classifier="gap"), (2, 3)),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """Returns a randomized model, three images, its grid, and the attention by Eq. 1-4."""
    rng = np.random.default_rng(11)
    build, grid = MODELS[request.param]
    model = randomize(build(), rng, scale=0.25)
    images = rng.uniform(-1, 1, (3, *model.input_shape[1:])).astype("float32")
    weights, x = weights_by_path(model), images
    if "hybrid" in request.param:
        x = resnet_reference.stem(images.astype("float64"), weights, (1,))
    classifier = request.param.split()[-1]
    expected = reference.forward(x, weights, num_layers=2, classifier=classifier)
    return model, images, grid, expected["attention"]


def distance_by_loops(attention, grid, patch):
    """Computes `(L, H)` query by query, without the class tokens."""
    _, layers, heads, tokens, _ = attention.shape
    skip = tokens - grid[0] * grid[1]
    places = [(r * patch[0], c * patch[1]) for r in range(grid[0]) for c in range(grid[1])]
    distances = np.zeros((layers, heads, len(attention), len(places)))
    for i, h, b, q in np.ndindex(distances.shape):
        weights = attention[b, i, h, skip + q, skip:]
        lengths = [math.dist(places[q], place) for place in places]
        distances[i, h, b, q] = weights @ lengths / weights.sum()
    return distances.mean(axis=(2, 3))


def rollout_by_loops(attention, join):
    """Follows one image's `(L, H, N, N)` through the layers."""
    flow = np.eye(attention.shape[-1])
    for weights in attention:
        step = join(weights, axis=0) + np.eye(len(flow))
        flow = step / step.sum(axis=1, keepdims=True) @ flow
    return flow


def read_by_loops(weights, grid):
    """Reads `(h, w)` from `(N, N)`: the class token's row, or the mean row without one."""
    patches = grid[0] * grid[1]
    row = weights[0] if len(weights) > patches else sum(weights) / len(weights)
    return row[len(weights) - patches :].reshape(grid)


def test_pixels_that_fill_no_patch_do_not_lengthen_distances(rng):
    kept = randomize(VisionTransformer((8, 12), 4, **SMALL), rng)
    whole = VisionTransformer((11, 15), 4, **SMALL, crop_to_patches=True)
    whole.set_weights(kept.get_weights())
    images = rng.uniform(-1, 1, (2, 11, 15, 3)).astype("float32")
    views = inspection.attention_views(whole, images)
    assert_close(
        views.distance_px, inspection.attention_views(kept, images[:, :8, :12]).distance_px
    )


def test_attention_views_equal_loops(case):
    model, images, grid, attention = case
    views = inspection.attention_views(model, images, batch=2)  # 2 images and 1
    patch = [size // cells for size, cells in zip(images.shape[1:3], grid)]
    expected = distance_by_loops(attention, grid, patch)
    assert_close(views.distance_px, expected)
    entropy = -(attention * np.log(attention)).sum(axis=-1)  # (B, L, H, N)
    assert_close(views.entropy_nats, entropy.mean(axis=(0, 3)))
    expected = [read_by_loops(rollout_by_loops(image, np.mean), grid) for image in attention]
    assert_close(views.rollout, expected)
    expected = [[read_by_loops(head, grid) for head in image[-1]] for image in attention]
    assert_close(views.last_layer, expected)
    assert views.tokens == attention.shape[-1]
    expected = [rollout_by_loops(image, np.max) for image in attention]
    assert_close(inspection.attention_rollout(attention, "max"), expected)


def components(samples, count):
    """Computes the eigenvectors of the covariance, with the largest entry of each positive."""
    centered = np.asarray(samples, "float64") - np.mean(samples, axis=0)
    values, vectors = np.linalg.eigh(centered.T @ centered)
    directions = vectors.T[::-1][:count]
    largest = np.take_along_axis(directions, np.abs(directions).argmax(1)[:, None], 1)
    return directions * np.sign(largest), values[::-1][:count] / values.sum(), centered


@pytest.mark.parametrize("count", [5, 28])
def test_filters_are_the_components_of_the_patch_embedding(case, count):
    model = case[0]
    weights = weights_by_path(model)
    kernel = weights.get("conv_root/kernel")
    if kernel is None:
        kernel = weights["embedding/kernel"]
    else:
        kernel = resnet_reference.standardize(kernel, "vit")
    height, width, channels, filters = kernel.shape
    samples = [kernel[..., f].ravel() for f in range(filters)]
    filters_of, shares_of_variance = inspection.filter_components(model, count)
    count = min(count, filters - 1)  # centering leaves no variance for the last direction
    directions, shares, _ = components(samples, count)
    assert_close(shares_of_variance, shares)
    expected = directions.reshape(-1, height, width, channels)
    assert_close(filters_of, expected, rtol=1e-5)


def test_position_similarity_is_the_cosine_without_the_class_token(case):
    model, _, (rows, columns), _ = case
    table = weights_by_path(model)["posembed_input/pos_embedding"][0].astype("float64")
    table = table[len(table) - rows * columns :]
    table /= np.linalg.norm(table, axis=1, keepdims=True)
    expected = (table @ table.T).reshape(rows, columns, rows, columns)
    np.testing.assert_allclose(inspection.position_similarity(model), expected, atol=1e-5)


def test_features_are_the_components_of_all_patches(case):
    model, images, (rows, columns), _ = case
    outputs = intermediates(model).predict(images, verbose=0)
    features = inspection.feature_components(model, images)
    stages = [name for name in features if name.startswith("block")]
    assert list(features) == [*stages, "encoderblock_0", "encoderblock_1"]
    assert stages == (["block1"] if "block1" in outputs else [])
    for name, values in features.items():
        x = outputs[name]
        if x.ndim == 3:
            x = x[:, x.shape[1] - rows * columns :].reshape(3, rows, columns, -1)
        samples = x.reshape(-1, x.shape[-1])
        directions, _, centered = components(samples, 3)
        assert values.shape == (*x.shape[:3], 3)
        expected = centered @ directions.T
        np.testing.assert_allclose(values.reshape(-1, 3), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["DINOv2", "registers"])
def test_registers_are_no_class_token(name):
    model = random_design(name, num_classes=None)
    images = images_for(model, 3)
    weights = to_numpy(attention_maps(model)(images))[:, -1]  # of the last layer, (B, H, N, N)
    views = inspection.attention_views(model, images, batch=2)
    first = 1 if name == "DINOv2" else 0
    read = weights[:, :, 0] if first else weights[:, :, -12:].mean(axis=2)
    expected = read[..., -12:].reshape(3, 2, 3, 4)
    assert_close(views.last_layer, expected, rtol=2e-6)
    assert views.tokens == first + 4 + 12
