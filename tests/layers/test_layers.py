"""Each layer against its formula, and through Keras' contract of a layer."""

import keras
import numpy as np
import pytest

from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import layers

TOKENS = (2, 6, 12)
CASES = {
    "patches": (layers.PatchEmbedding(8, (2, 3)), (2, 4, 6, 5)),
    "cls": (layers.ClassToken(), TOKENS),
    "take": (layers.TakeClassToken(), TOKENS),
    "drop": (layers.DropClassToken(), TOKENS),
    "posembed": (layers.AddPositionEmbs(), TOKENS),
    "posembed_2d": (layers.AddPositionEmbs2D((2, 3)), TOKENS),
    "sincos": (layers.AddSinCosPositions((2, 3)), TOKENS),
    "relative": (layers.MultiHeadDotProductAttention(3, 0.5, "relative"), TOKENS),
    "rotary": (layers.MultiHeadDotProductAttention(3, 0.5, "rope2d", (2, 3)), TOKENS),
    "attention": (layers.MultiHeadDotProductAttention(3, 0.5), TOKENS),
    "mlp": (layers.MlpBlock(10, 0.5, "tanh"), TOKENS),
    "block": (layers.EncoderBlock(3, 10, 0.5, 0.5, 0.5, "tanh", 1e-3), TOKENS),
    "map": (layers.MAPHead(3, 10, "tanh", 1e-3), TOKENS),
}


SEEDED = {name: {"seed": 1} for name in ("attention", "mlp", "block", "map")}  # what is dropped


def model_of(layer, shape):
    inputs = keras.Input(shape[1:])
    return keras.Model(inputs, layer(inputs))


LEARNING = [name for name in CASES if name not in ("take", "drop", "sincos", "rotary")]


@pytest.mark.parametrize("name", LEARNING)
def test_every_weight_of_a_layer_learns(rng, name):
    layer, shape = CASES[name]
    layer = type(layer).from_config({**layer.get_config(), **SEEDED.get(name, {})})
    model = randomize(model_of(layer, shape), rng)
    before = weights_by_path(model)
    model.compile(keras.optimizers.SGD(0.5), "mse", jit_compile=False)
    x = rng.normal(size=shape).astype("float32")
    for _ in range(3):  # a dropped branch rests
        model.train_on_batch(x, rng.normal(size=layer.compute_output_shape(shape)))
    after = weights_by_path(model)
    still = [path for path in before if np.array_equal(before[path], after[path])]
    # softmax ignores what all keys share, so the key's bias has no gradient but rounding
    assert [path for path in still if not path.endswith("key/bias")] == []


def test_attention_from_one_sequence_to_another(rng):
    layer = layers.MultiHeadDotProductAttention(3, name="attention")
    q, kv = rng.normal(size=(2, 4, 12)), rng.normal(size=(2, 7, 12))
    layer(q, kv)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape) * 0.4)
    weights = {w.path: np.asarray(to_numpy(w.value), "float64") for w in layer.weights}
    expected, maps = reference.attention(q, kv, weights, "attention")
    output, weights = layer(q, kv, return_attention_weights=True)
    assert_close(layer(q, kv), expected)
    assert_close(output, expected)
    assert_close(weights, maps)


@pytest.mark.on("tensorflow", "torch")  # JAX has no float64 by default
def test_attention_and_its_weights_are_exact_in_float64(rng):
    layer = layers.MultiHeadDotProductAttention(2, dtype="float64", name="attention")
    x = rng.normal(size=(2, 5, 8))
    layer(x)
    weights = weights_by_path(randomize(layer, rng))
    expected, maps = reference.attention(x, x, weights, "attention")
    output, shares = layer(x, return_attention_weights=True)
    np.testing.assert_allclose(to_numpy(shares), maps, rtol=0, atol=1e-14)
    np.testing.assert_allclose(to_numpy(output), expected, rtol=0, atol=1e-13)


def test_dropout_is_where_the_paper_puts_it(rng):
    """With all weights zero but the output biases, only dropped biases differ from z + b."""
    block = layers.EncoderBlock(3, 10, dropout_rate=0.5)
    block.build(TOKENS)
    block.mlp.dense_1.bias.assign(np.ones(12))
    x = np.zeros((64, 6, 12), "float32")
    values, counts = np.unique(to_numpy(block(x, training=True)).round(4), return_counts=True)
    assert_close(values, [0, 2])  # dropped, or kept and doubled
    assert 0.45 < counts[0] / counts.sum() < 0.55
    block.mlp.dense_1.bias.assign(np.zeros(12))
    block.attention.out.bias.assign(np.ones(12))
    block.mlp.dense_1.kernel.assign(np.zeros((10, 12)))
    values, counts = np.unique(to_numpy(block(x, training=True)).round(4), return_counts=True)
    assert_close(values, [0, 2])
    assert 0.45 < counts[0] / counts.sum() < 0.55


def test_stochastic_depth_drops_whole_branches_and_keeps_their_mean():
    block = layers.EncoderBlock(3, 10, stochastic_depth_rate=0.25)
    block.build(TOKENS)
    for kernel in (block.mlp.dense_1.kernel, block.attention.out.kernel):
        kernel.assign(np.zeros(kernel.shape))
    block.mlp.dense_1.bias.assign(np.ones(12))
    y = to_numpy(block(np.zeros((4000, 2, 12), "float32"), training=True))
    assert (y == y[:, :1, :1]).all()  # one draw an image
    assert_close(np.unique(y), [0, 1 / 0.75])
    assert abs(y.mean() - 1) < 0.04
    np.testing.assert_array_equal(to_numpy(block(np.zeros(TOKENS))), np.ones(TOKENS))


def test_attention_dropout_drops_weights_and_keeps_their_mean(rng):
    layer = layers.MultiHeadDotProductAttention(1, attention_dropout_rate=0.5)
    layer.build((1, 1, 4))
    for name in ("value", "out"):
        getattr(layer, name).kernel.assign(np.eye(4).reshape(getattr(layer, name).kernel.shape))
    y = to_numpy(layer(np.ones((2000, 1, 4), "float32"), training=True))  # one weight, of 1
    np.testing.assert_allclose(np.unique(y.round(4)), [0, 2])
    assert abs(y.mean() - 1) < 0.1
