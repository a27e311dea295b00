"""Native objects compute what the models compute, with the same gradients, on their framework."""

import keras
import numpy as np
import pytest

from tests.designs import DESIGNS, SIZES, images_for, random_design
from tests.helpers import to_numpy
from tests.native.results import by_native_names, channels_first, of_model, of_native
from tests.weights.builds import build
from tests.weights.test_golden_families import FAMILIES, TOLERANCE, golden
from vit_keras import native

# Together these have every option but those that are refused.
REFUSED = ("ViTDet",)
OPTIONS = ("BEiT", "DINOv2", "DINOv3", "DeiT", "EVA-02", "PE", "ViT-22B", "mixed rotary")
QUICK = {"torch": OPTIONS, "jax": ("BEiT",), "tensorflow": ("DINOv2", "PE")}
CASES = {
    **{name: lambda name=name: random_design(name) for name in DESIGNS if name not in REFUSED},
    "ViT": lambda: build(np.random.default_rng(1), gelu="tanh"),
    "pre_logits": lambda: build(np.random.default_rng(2), representation_size=9, classifier="gap"),
    "features": lambda: random_design("DeiT III", num_classes=None),
    "fixed positions": lambda: random_design(
        "DINOv2", position_embedding="sincos2d", position_cover="all"
    ),
    "gated": lambda: random_design("DINOv2", mlp="swiglu"),
    "probabilities": lambda: random_design("CLIP", classifier_activation="softmax"),
    "parallel rotary": lambda: random_design("ViT-22B", rope={"base": 1e4}, qkv_bias="all"),
}


def quick_ones():
    chosen = QUICK[keras.backend.backend()]
    return [n if n in chosen else pytest.param(n, marks=pytest.mark.nightly) for n in CASES]


def assert_close(result, expected, tolerance, name=""):
    assert result.shape == expected.shape, name
    difference = np.abs(result - expected).max() / max(np.abs(expected).max(), 1)
    assert difference <= tolerance, (name, difference)


@pytest.mark.parametrize("name", quick_ones())
def test_outputs_and_gradients_equal_the_models(name):
    model = CASES[name]()
    images = images_for(model)
    direction = np.random.default_rng(6).normal(size=(2, model.output_shape[-1])).astype("float32")
    expected, gradients = of_model(model, images, direction)
    output, results = of_native(model, images, direction)
    assert_close(output, expected, 2e-6)  # float32 rounds each by half of that
    expected = by_native_names(model, gradients)
    assert set(results) <= set(expected)
    assert {name for name in expected if np.abs(expected[name]).max() > 1e-6} <= set(results)
    for parameter, result in results.items():
        assert_close(result, expected[parameter], 1e-5, parameter)


@pytest.mark.nightly
@pytest.mark.on("torch")
@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("framework", ["torch", "jax", "tensorflow"])
def test_outputs_equal_the_publishers_code(name, framework):
    """Their own code computed the numbers in the golden files."""
    model, io = golden(name)
    expected, images = io["logits" if "logits" in io else "pooled"], io["images"]
    if framework == "torch":
        output = native.to_torch(model)(channels_first(images)).detach()
    elif framework == "jax":
        apply, params = native.to_jax(model)
        output = apply(params, images)
    else:
        output = native.to_tensorflow(model)(images)
    np.testing.assert_allclose(np.asarray(output), expected, atol=TOLERANCE, rtol=0)


@pytest.mark.on("torch")
@pytest.mark.nightly
def test_other_frameworks_than_the_backend_compute_without_keras():
    """Keras' operations would give tensors of torch here."""
    import jax

    model = random_design("CLIP", num_layers=1)
    images = images_for(model)
    expected = to_numpy(model(images))
    apply, params = native.to_jax(model)
    assert_close(np.asarray(jax.jit(apply)(params, images)), expected, 1e-5)
    assert_close(native.to_tensorflow(model)(images).numpy(), expected, 1e-5)
    assert SIZES["num_classes"] == expected.shape[1]
