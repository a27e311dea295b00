"""Models that Keras quantizes: each dense layer, as the layer of Keras that it extends."""

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import exporting, models, weights
from vit_keras.exporting import for_inference
from vit_keras.layers.base import Dense, HeadsDense
from vit_keras.models import VisionTransformer

SIZES = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "mlp_dim": 48, "num_classes": 10}
AT_NIGHT = pytest.mark.nightly_on("jax", "tensorflow")
EINSUM = keras.layers.EinsumDense
LAYERS = {
    "Dense": (Dense, keras.layers.Dense, (12, "gelu"), {}, (6, 16)),
    "to heads": (
        *(HeadsDense, EINSUM, ("bnd,dhk->bnhk", (None, 2, 6))),
        *({"bias_axes": "hk"}, (6, 16)),
    ),
    "from heads": (
        *(HeadsDense, EINSUM, ("bnhk,hkd->bnd", (None, 16))),
        *({"bias_axes": "d"}, (6, 2, 8)),
    ),
}


def build(rng, **arguments):
    return randomize(VisionTransformer(16, 4, **SIZES, **arguments), rng)


@pytest.mark.parametrize("mode", ["int8", pytest.param("int4", marks=AT_NIGHT)])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_as_that_of_keras(rng, name, mode):
    ours, theirs, arguments, named, shape = LAYERS[name]
    x = rng.normal(size=(3, *shape)).astype("float32")
    layers = [kind(*arguments, **named) for kind in (ours, theirs)]
    layers[0](x), layers[1](x)
    values = [rng.normal(size=w.shape).astype("float32") for w in layers[0].weights]
    for layer in layers:
        layer.set_weights(values)
    plain = to_numpy(layers[1](x))
    for layer in layers:
        layer.quantize(mode)
    answers = [to_numpy(layer(x)) for layer in layers]
    assert_close(answers[0], answers[1], rtol=2e-6)
    assert np.abs(answers[0] - plain).max() > 1e-4  # of 8 or 4 bits


@pytest.mark.on("torch")
def test_every_dense_layer_is_quantized(rng):
    model = build(rng, classifier="map", mlp="swiglu")
    images = rng.normal(size=(8, 16, 16, 3)).astype("float32")
    expected = model.predict_on_batch(images)
    kernels = [v.path for v in model.weights if v.path.endswith("kernel")]
    model.quantize("int8")
    whole = {v.path for v in model.weights if v.path in kernels and v.dtype != "int8"}
    assert len(kernels) > 7 and whole == {"embedding/kernel"}  # patches are cut by no dense layer
    answers = model.predict_on_batch(images)
    assert 0 < np.abs(answers - expected).max() < 0.05 * np.abs(expected).max()


Q = keras.quantizers
ABSMAX = {"axis": -1, "value_range": (-100, 100)}
CONFIGS = {
    "int8 weights": lambda: Q.Int8QuantizationConfig(activation_quantizer=None),
    "int8 own range": lambda: Q.Int8QuantizationConfig(None, Q.AbsMaxQuantizer(**ABSMAX)),
    "int4 groups": lambda: Q.Int4QuantizationConfig(block_size=16),
    "int4 activations": lambda: Q.Int4QuantizationConfig(None, Q.AbsMaxQuantizer(axis=-1), None),
    "float8": lambda: Q.Float8QuantizationConfig(),
}


@pytest.mark.parametrize(
    "name", [n if n == "int8 weights" else pytest.param(n, marks=AT_NIGHT) for n in CONFIGS]
)
def test_saved_models_answer_bit_by_bit_as_they_were_quantized(rng, tmp_path, name):
    model = build(rng, classifier="map", mlp="swiglu" if "weights" in name else "gelu")
    images = rng.normal(size=(4, 16, 16, 3)).astype("float32")
    plain = to_numpy(model(images))
    # One layer stays as it was; the head is a layer of the model itself.
    model.quantize(config=CONFIGS[name](), filters=lambda layer: layer.name != "Dense_1")
    expected = to_numpy(model(images))
    assert np.abs(expected - plain).max() > 1e-3
    model.save(tmp_path / "a.keras")
    opened = keras.saving.load_model(tmp_path / "a.keras")
    np.testing.assert_array_equal(to_numpy(opened(images)), expected)
    weights.save(opened, tmp_path / "b.keras")
    opened = vit_keras.open(tmp_path / "b.keras")
    np.testing.assert_array_equal(to_numpy(opened(images)), expected)


@pytest.mark.once
def test_what_needs_whole_numbers_of_bits_is_refused(rng, tmp_path):
    model = build(rng)
    model.quantize("int8")
    for action in (
        lambda: for_inference(model),
        lambda: exporting.export(model, tmp_path / "export"),
        lambda: weights.save(model, tmp_path / "a.safetensors", format="timm"),
        lambda: models.add_lora(model, 2),
        lambda: models.with_image_size(model, 32),
    ):
        with pytest.raises(ValueError, match=r"quantized to 'int8'|quantization_mode='int8'"):
            action()
    adapted = models.add_lora(build(rng), 2)
    with pytest.raises(ValueError, match=r"Merge them first with `models.merge_lora"):
        adapted.quantize("int8")
