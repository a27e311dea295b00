"""The constructors of the families, made from their rows."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, shapes_only, to_numpy, weights_by_path
from vit_keras import applications, variants
from vit_keras.layers.common import pair
from vit_keras.models import from_variant, intermediates
from vit_keras.variants.families import FAMILIES
from vit_keras.weights import save

pytestmark = pytest.mark.on("torch")

SMALL = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}
# A constructor of each way to read the tokens, and the number of tokens before the patches.
PREFIXES = {
    "CLIPViTB32": 1,
    "DINOv2S14Reg": 5,
    "DINOv3S16": 5,
    "SigLIPB16": 0,
    "PECoreB16": 1,
    "DeiTS16Distilled": 2,
    "BEiTB16": 1,
    "ViTReg4B16": 4,
    "IJEPAH14": 0,
}


@pytest.mark.parametrize("name", applications.OF_FAMILIES)
def test_each_name_builds_its_variant(name):
    variant = applications.OF_FAMILIES[name]
    build = getattr(applications, name)
    row = variants.get(variant)
    family = FAMILIES[row.family]
    assert build.__name__ == name and name in applications.__all__ and name in dir(applications)
    assert f"Instantiates the Vision Transformer {variant}." in build.__doc__
    assert family.paper in build.__doc__ and family.license in " ".join(build.__doc__.split())
    if row.size != next(iter(family.sizes)):
        return
    with shapes_only():
        model = build()
        finds = "boxes" in row.arguments  # its classes are the published ones
        expected = from_variant(
            variant, num_classes=row.arguments["num_classes"] if finds else 1000
        )
        shapes = [weight.shape for weight in model.weights]
        assert shapes == [weight.shape for weight in expected.weights]
    assert model.input_shape == (None, *pair(row.image_size, "image_size"), 3)
    assert finds or model.layers[-1].activation is keras.activations.softmax
    assert model.preprocessing.mean == family.preprocessing["mean"]
    assert model.resizing.positions == family.resizing[0]


@pytest.fixture(params=PREFIXES)
def small(request, monkeypatch):
    """A constructor whose variant is small, its prefix, and images for it."""
    variant = applications.OF_FAMILIES[request.param]
    row = dataclasses.replace(variants.get(variant), **SMALL)
    if row.arguments.get("map_heads"):
        row = dataclasses.replace(row, arguments={**row.arguments, "map_heads": 4})
    monkeypatch.setitem(variants.VARIANTS, variant, row)
    shape = (2 * row.patch_size, 3 * row.patch_size, 3)
    images = np.random.default_rng(1).uniform(-1, 1, (2, *shape)).astype("float32")
    return getattr(applications, request.param), PREFIXES[request.param], images


def test_output_without_top_is_all_normalized_tokens_and_poolings_are_over_the_patches(
    small, tmp_path
):
    build, before, images = small
    shape = images.shape[1:]
    whole = randomize(build(input_shape=shape, classes=3), np.random.default_rng(2))
    save(whole, tmp_path / "whole.keras")
    outputs = {}
    for pooling in (None, "avg", "max"):
        options = {"input_shape": shape, "include_top": False, "pooling": pooling}
        model = build(**options, weights=str(tmp_path / "whole.keras"))
        outputs[pooling] = to_numpy(model(images))
        assert model.preprocessing == whole.preprocessing and model.resizing == whole.resizing
    tokens = outputs[None]
    assert tokens.shape == (2, before + 6, 16)
    last = to_numpy(intermediates(whole)(images)["encoderblock_1"])
    centered = last - last.mean(axis=-1, keepdims=True)
    gamma, beta = (weights_by_path(whole)[f"encoder_norm/{name}"] for name in ("gamma", "beta"))
    epsilon = whole.get_layer("encoderblock_0").layer_norm_epsilon
    expected = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + epsilon)
    assert_close(tokens, expected * gamma + beta)
    assert_close(outputs["avg"], tokens[:, before:].mean(axis=1))
    assert_close(outputs["max"], tokens[:, before:].max(axis=1), rtol=2e-6)
