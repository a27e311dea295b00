"""Hybrids equal the published code in outputs and counts, and the formulas in NumPy."""

import inspect
import json

import numpy as np
import pytest

from tests import reference, resnet_reference
from tests.helpers import GOLDEN, assert_close, randomize, shapes_only, to_numpy, weights_by_path
from tests.models.test_vit import published_to_ours
from vit_keras import models, variants
from vit_keras.models import HybridViT, VisionTransformer

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
STEM = {"resnet_layers": (1, 2), "resnet_width": 0.5, "patch_size": 1}

OFF = pytest.mark.nightly_on("jax")  # tests/layers/test_std_conv.py has every part


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
        pytest.param((32, 64), {**STEM, "resnet_layers": (), "patch_size": (8, 4)}, {}, marks=OFF),
        pytest.param(
            *((24, 16), STEM, {"standardization": "timm", "group_norm_epsilon": 1e-3}), marks=OFF
        ),
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


PUBLISHED = {
    "R+Ti/16": 6_337_704,
    "R26+S/32": 36_431_912,
    "R26+B/32": 101_383_976,
    "R50+B/16": 98_659_112,
    "R50+B/32": 110_945_832,  # derived from B/32's: with a stem, and another patch kernel
    "R50+L/16": 316_483_624,  # derived from L/16's
    "R50+L/32": 328_994_856,
}


@pytest.mark.once
@pytest.mark.parametrize("variant", variants.HYBRIDS)
def test_parameter_counts_are_the_published(variant):
    with shapes_only():
        model = models.from_variant(variant, image_size=224, num_classes=1000)
        assert model.count_params() == PUBLISHED[variant]
        pixels = variants.get(variant).stride
        assert models.patch_grid(model) == (224 // pixels, 224 // pixels)
