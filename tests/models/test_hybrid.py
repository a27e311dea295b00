"""Hybrids equal the published code in outputs and counts, and the formulas in NumPy."""

import inspect
import json

import keras
import numpy as np
import pytest

from tests import reference, resnet_reference
from tests.helpers import GOLDEN, assert_close, randomize, shapes_only, to_numpy, weights_by_path
from tests.models.test_vit import COUNTS, published_to_ours
from vit_keras import models, variants
from vit_keras.models import HybridViT, VisionTransformer

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
STEM = {"resnet_layers": (1, 2), "resnet_width": 0.5, "patch_size": 1}


def images_for(model, rng):
    return rng.uniform(-1, 1, (2, *model.input_shape[1:])).astype("float32")


def hybrid_names(name):
    leaf = {"scale": "gamma", "bias": "beta"}
    layer, _, last = name.rpartition("/")
    part = layer.rpartition("/")[2]
    return f"{layer}/{leaf[last]}" if part.startswith("gn") else published_to_ours(name)


def test_logits_equal_the_published_code():
    config = json.loads((GOLDEN / "hybrid_stages.json").read_text())
    resnet = config.pop("resnet")
    arguments = {*inspect.signature(HybridViT).parameters}
    arguments |= {*inspect.signature(VisionTransformer).parameters}
    model = HybridViT(
        **{k: v for k, v in config.items() if k in arguments},
        resnet_layers=resnet["num_layers"],
        resnet_width=resnet["width_factor"],
        gelu="tanh",
    )
    with np.load(GOLDEN / "hybrid_stages.npz") as file:
        published = {hybrid_names(key): file[key] for key in file.files}
    assert published.keys() == {weight.path for weight in model.weights}
    for weight in model.weights:
        weight.assign(published[weight.path])
    with np.load(GOLDEN / "hybrid_stages.io.npz") as io:
        assert_close(model(io["images"]), io["logits"])


@pytest.mark.parametrize(
    ("image_size", "stem", "numerics"),
    [
        ((32, 48), STEM, {}),
        ((32, 64), {**STEM, "resnet_layers": (), "patch_size": (8, 4)}, {}),
        ((24, 16), STEM, {"standardization": "timm", "group_norm_epsilon": 1e-3}),
    ],
)
def test_logits_equal_the_formulas(rng, image_size, stem, numerics):
    model = HybridViT(image_size, **stem, **SMALL, **numerics)
    randomize(model, rng, scale=0.15)
    images = images_for(model, rng)
    weights = {k: v.astype("float64") for k, v in weights_by_path(model).items()}
    convention = numerics.get("standardization", "vit")
    epsilon = numerics.get("group_norm_epsilon", 1e-6)
    x = resnet_reference.stem(
        images.astype("float64"), weights, stem["resnet_layers"], convention, epsilon
    )
    expected = reference.forward(x, weights, num_layers=2)
    outputs = models.intermediates(model)(images)
    for name in ("encoderblock_0", "encoderblock_1"):
        assert_close(outputs[name], expected[name], rtol=1e-5)
    assert_close(outputs["head"], expected["logits"], rtol=1e-5)
    maps = to_numpy(models.attention_maps(model)(images))
    assert_close(maps, expected["attention"], rtol=2e-5)
    grid = np.array(x.shape[1:3]) // stem["patch_size"]
    assert models.patch_grid(model) == tuple(grid)


def stem_count(units, root=64):
    """Counts the parameters of a stem of width 1 and the channels of its map."""
    total, last = 7 * 7 * 3 * root + 2 * root, root
    for s, num_units in enumerate(units):
        inner = root * 2**s
        for u in range(num_units):
            total += last * inner + 9 * inner**2 + inner * 4 * inner  # conv1, conv2, conv3
            total += 2 * (inner + inner + 4 * inner)  # gn1, gn2, gn3
            total += last * 4 * inner + 2 * 4 * inner if u == 0 else 0  # conv_proj, gn_proj
            last = 4 * inner
    return total, last


PUBLISHED = {
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+L/32": 328_994_856,
}


def derived_count(units, plain):
    """Counts the parameters of a hybrid with 1x1 patches and as many tokens as the variant `plain`.

    The stem is added, the patch embedding's kernel replaced.
    """
    stem, channels = stem_count(units)
    size = variants.get(plain)
    kernels = channels * size.hidden_size - 3 * size.patch_size**2 * size.hidden_size
    return COUNTS[plain] + stem + kernels


@pytest.mark.once
def test_derivation_gives_the_published_counts():
    assert derived_count((2, 2, 2, 2), "S/32") == PUBLISHED["R26+S/32"]
    assert derived_count((2, 2, 2, 2), "B/32") == PUBLISHED["R26+B/32"]
    assert derived_count((3, 4, 9), "B/16") == PUBLISHED["R50+B/16"]
    assert derived_count((3, 4, 6, 3), "L/32") == PUBLISHED["R50+L/32"]


@pytest.mark.once
@pytest.mark.parametrize("variant", variants.HYBRIDS)
def test_parameter_counts_are_the_published(variant):
    expected = PUBLISHED | {
        "R50+B/32": derived_count((3, 4, 6, 3), "B/32"),  # 110 945 832
        "R50+L/16": derived_count((3, 4, 9), "L/16"),  # 316 483 624
    }
    with shapes_only():
        model = models.from_variant(variant, image_size=224, num_classes=1000)
        assert model.count_params() == expected[variant]
        pixels = variants.get(variant).stride
        assert models.patch_grid(model) == (224 // pixels, 224 // pixels)


@pytest.mark.on("torch")
def test_another_image_size_keeps_the_stem_and_resizes_positions(rng):
    model = randomize(HybridViT((16, 24), **STEM, **SMALL), rng, scale=0.15)
    larger = models.with_image_size(model, (32, 40))
    assert models.patch_grid(larger) == (4, 5)
    images = images_for(larger, rng)
    weights = {k: v.astype("float64") for k, v in weights_by_path(model).items()}
    weights["posembed_input/pos_embedding"] = weights_by_path(larger)[
        "posembed_input/pos_embedding"
    ]
    x = resnet_reference.stem(images.astype("float64"), weights, STEM["resnet_layers"])
    expected = reference.forward(x, weights, num_layers=2)["logits"]
    assert_close(larger(images), expected)


@pytest.mark.on("torch")
def test_saved_model_gives_the_same_logits(rng, tmp_path):
    model = randomize(HybridViT((16, 24), **STEM, **SMALL, classifier="gap"), rng, scale=0.15)
    images = images_for(model, rng)
    model.save(tmp_path / "hybrid.keras")
    again = keras.models.load_model(tmp_path / "hybrid.keras")
    np.testing.assert_array_equal(to_numpy(again(images)), to_numpy(model(images)))
    model.save_weights(tmp_path / "hybrid.weights.h5")
    fresh = HybridViT((16, 24), **STEM, **SMALL, classifier="gap")
    fresh.load_weights(tmp_path / "hybrid.weights.h5")
    np.testing.assert_array_equal(to_numpy(fresh(images)), to_numpy(model(images)))
