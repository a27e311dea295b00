"""Layers against formulas in NumPy, loops and distributions; rematerialized blocks too."""

import keras
import numpy as np
import pytest

from tests import reference, resnet_reference
from tests.helpers import assert_close, randomize, spread, to_numpy, weights_by_path
from vit_keras import layers
from vit_keras.layers import GroupNorm, PatchDropout, StdConv, base
from vit_keras.layers.base import Dense, HeadsDense
from vit_keras.models import VisionTransformer

TOKENS, GRID = (2, 6, 12), (2, 3)
IDS = np.array([[3, 9, 4, 9, 1], [2, 2, 5, 1, 1]])
KEYS = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]])
FLOAT64 = pytest.mark.on("tensorflow", "torch")  # JAX has no float64 by default


@pytest.mark.parametrize(
    ("arguments", "keys", "dtype", "rtol"),
    [
        ((), 4, "float32", 4e-6),  # from one sequence to another
        (("relative",), 7, "float32", 4e-6),
        (("rope2d", GRID), 7, "float32", 4e-6),
        pytest.param((), 7, "float64", 1e-13, marks=FLOAT64),
    ],
)
def test_attention_and_its_weights_equal_the_formula(rng, arguments, keys, dtype, rtol):
    attention = layers.MultiHeadDotProductAttention
    layer = attention(3, 0.0, *arguments, dtype=dtype, name="attention")
    q, kv = rng.normal(size=(2, 7, 12)), rng.normal(size=(2, keys, 12))
    inputs = (q,) if keys == 7 else (q, kv)
    layer(*inputs)
    randomize(layer, rng, scale=0.4)
    weights = {w.path: to_numpy(w.value).astype("float64") for w in layer.weights}
    turn = (lambda x: reference.rotary(x, GRID, True)) if "rope2d" in arguments else lambda x: x
    expected, maps = reference.attention(q, inputs[-1], weights, "attention", turn)
    output, shares = layer(*inputs, return_attention_weights=True)
    assert_close(layer(*inputs), expected, rtol)
    assert_close(output, expected, rtol)
    assert_close(shares, maps, rtol)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_masked_attention_is_the_formula(rng, causal, rate):
    x = rng.normal(size=(2, 5, 12)).astype("float32")
    layer = layers.MultiHeadDotProductAttention(3, attention_dropout_rate=rate)
    layer.build(x.shape)
    for variable in layer.weights:
        variable.assign(rng.normal(size=variable.shape))
    mask = layers.TextMask(causal)(IDS, KEYS)
    result, weights = layer(x, attention_mask=mask, return_attention_weights=True)
    project = lambda dense: (
        np.einsum("bnd,dhk->bhnk", x, to_numpy(dense.kernel)) + (to_numpy(dense.bias)[:, None])
    )
    query, key, value = (project(dense) for dense in (layer.query, layer.key, layer.value))
    allowed = KEYS[:, None, None].astype(bool) & (np.tri(5, dtype=bool) if causal else True)
    logits = np.where(allowed, query @ key.swapaxes(2, 3) / 2, -np.inf)
    expected = reference.softmax(logits)
    assert_close(weights, expected)
    mixed = np.einsum("bhnk,hkd->bnd", expected @ value, to_numpy(layer.out.kernel))
    assert_close(result, mixed + to_numpy(layer.out.bias), rtol=1e-5)
    without_weights = to_numpy(layer(x, attention_mask=mask))
    np.testing.assert_array_equal(without_weights, to_numpy(result))


@pytest.mark.parametrize("tokens", [6, 7])
def test_fixed_and_learned_positions_equal_loops(rng, tokens):
    x = rng.normal(size=(2, tokens, 8)).astype("float32")
    layer = layers.AddPositionEmbs2D(GRID, seed=1)
    layer.build(x.shape)
    initial = np.concatenate([np.ravel(to_numpy(w.value)) for w in layer.weights])
    assert 0.01 < initial.std() < 0.03
    tables = [to_numpy(w.value) for w in randomize(layer, rng).weights]
    assert [t.shape for t in tables] == [(3, 4), (2, 4), (1, 8)][: tokens - 4]
    assert_close(layer(x), x + reference.columns_and_rows(GRID, *tables), rtol=1e-6)
    expected = x + reference.sincos(GRID, 8, class_token=tokens == 7)
    assert_close(layers.AddSinCosPositions(GRID)(x), expected, rtol=1e-6)
    query = rng.normal(size=(2, tokens, 3, 8)).astype("float32")
    output = to_numpy(layers.RotaryPositions(GRID)(query))
    for head in range(3):
        expected = reference.rotary(query[:, :, head], GRID, class_token=tokens == 7)
        assert_close(output[:, :, head], expected, rtol=1e-6)


def test_dropout_is_where_the_paper_puts_it():
    """With all weights zero but the output biases, only dropped biases differ from z + b."""
    block = layers.EncoderBlock(3, 10, dropout_rate=0.5)
    block.build(TOKENS)
    kernel, x = block.mlp.dense_1.kernel, np.zeros((64, 6, 12), "float32")
    for bias in (block.mlp.dense_1.bias, block.attention.out.bias):
        bias.assign(np.ones(12))
        values, counts = np.unique(to_numpy(block(x, training=True)).round(4), return_counts=True)
        assert_close(values, [0, 2])  # dropped, or kept and doubled
        assert 0.45 < counts[0] / counts.sum() < 0.55
        bias.assign(np.zeros(12))
        kernel.assign(np.zeros(kernel.shape))


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


def kept_patches(x, seed, keep_rate, class_tokens):
    """The layer in NumPy, from the numbers that Keras draws by `seed`."""
    images, tokens, _ = x.shape
    patches = tokens - class_tokens
    numbers = to_numpy(keras.random.uniform((images, patches), dtype="float32", seed=seed))
    count = max(1, round(patches * keep_rate))
    places = np.sort(np.argsort(-numbers, axis=1)[:, :count], axis=1) + class_tokens
    return np.stack([np.concatenate([i[:class_tokens], i[p]]) for i, p in zip(x, places)])


@pytest.mark.parametrize(("keep_rate", "class_tokens"), [(0.01, 1), (0.7, 0)])
def test_training_keeps_the_patches_that_the_seed_says(rng, keep_rate, class_tokens):
    x = rng.normal(size=(5, 10, 3)).astype("float32")
    layer = PatchDropout(keep_rate, class_tokens, seed=3)
    generator = keras.random.SeedGenerator(layer.fold_in("patches"))
    for _ in range(2):  # every step draws other patches
        expected = kept_patches(x, generator, keep_rate, class_tokens)
        np.testing.assert_array_equal(to_numpy(layer(x, training=True)), expected)
    np.testing.assert_array_equal(to_numpy(layer(x)), x)
    again = PatchDropout.from_config(layer.get_config())
    first = kept_patches(x, layer.fold_in("patches"), keep_rate, class_tokens)
    np.testing.assert_array_equal(to_numpy(again(x, training=True)), first)


@spread(
    size=[(6, 9), (7, 8)],  # odd sides show where "same" pads
    kernel=[(1, 2), (3, 1), (7, 2)],
    padding=["same", "fixed"],
    standardization=["vit", "bit", "timm"],
)
def test_convolution_equals_loops(rng, size, kernel, padding, standardization):
    kernel_size, strides = kernel
    layer = StdConv(5, kernel_size, strides, padding, standardization)
    x = rng.normal(size=(2, *size, 4)).astype("float32")
    layer.build(x.shape)
    # So small that the three epsilons matter, with a mean to be removed.
    kernel = (1e-4 * (0.5 + rng.normal(size=layer.kernel.shape))).astype("float32")
    layer.kernel.assign(kernel)
    kernel = resnet_reference.standardize(kernel, standardization)
    expected = resnet_reference.convolve(x.astype("float64"), kernel, strides, padding)
    assert layer.compute_output_shape(x.shape) == expected.shape
    assert_close(layer(x), expected)


def test_kernel_is_standardized_at_full_precision_then_rounded(rng):
    layer = StdConv(3, 3, dtype="mixed_bfloat16")
    x = rng.normal(size=(1, 5, 5, 64)).astype("float32")
    layer.build(x.shape)
    layer.kernel.assign(100 + 0.01 * rng.normal(size=layer.kernel.shape))  # bfloat16: all 100
    kernel = resnet_reference.standardize(to_numpy(layer.kernel.value), "vit")
    expected = resnet_reference.convolve(x.astype("float64"), kernel)
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    error = to_numpy(keras.ops.cast(y, "float32")) - expected
    assert np.abs(error).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("mean", [0, 300])
def test_a_large_mean_costs_no_digits(rng, mean):
    layer = GroupNorm(4, epsilon=1e-3)
    x = (mean + rng.normal(size=(2, 5, 3, 12))).astype("float32")
    layer.build(x.shape)
    randomize(layer, rng)
    weights = {"norm/gamma": to_numpy(layer.gamma), "norm/beta": to_numpy(layer.beta)}
    expected = resnet_reference.group_norm(x.astype("float64"), weights, "norm", 1e-3, groups=4)
    # What is left of the digits of x, when the mean is subtracted, is exact.
    assert_close(layer(x), expected, rtol=4e-6 if mean == 0 else 5e-5)


RANK, ALPHA = 2, 5.0
# The layer, the shape of its input, and the equation of its product.
CASES = {
    "Dense": (lambda: Dense(7, "tanh"), (3, 4, 6), "...d,df->...f"),
    "query": (
        lambda: HeadsDense("bnd,dhk->bnhk", (None, 3, 2), bias_axes="hk"),
        (3, 4, 6),
        "bnd,dhk->bnhk",
    ),
    "out": (
        lambda: HeadsDense("bnhk,hkd->bnd", (None, 6), bias_axes="d"),
        (3, 4, 3, 2),
        "bnhk,hkd->bnd",
    ),
}


def adapted(name, rng):
    """A model of one layer with random adapters, and the weights of the layer."""
    make, shape, _ = CASES[name]
    inputs = keras.Input(shape[1:])
    layer = make()
    model = keras.Model(inputs, layer(inputs))
    layer.enable_lora(RANK, lora_alpha=ALPHA)
    randomize(model, rng)
    return model, layer


@pytest.mark.parametrize("name", CASES)
def test_a_product_has_rank_r_over_all_inputs_and_outputs(rng, name, tmp_path):
    model, layer = adapted(name, rng)
    _, shape, equation = CASES[name]
    x = rng.normal(size=shape).astype("float32")
    kernel, bias, a, b = map(to_numpy, layer.weights)
    size = int(np.prod(shape[2:]))
    product = a.reshape(size, RANK) @ b.reshape(RANK, -1)
    assert np.linalg.matrix_rank(product) == RANK and product.size == kernel.size
    whole = kernel + ALPHA / RANK * product.reshape(kernel.shape)
    expected = np.einsum(equation, x, whole) + bias
    expected = np.tanh(expected) if name == "Dense" else expected
    assert_close(model(x), expected)
    assert [v.name for v in layer.trainable_variables] == ["bias", "lora_kernel_a", "lora_kernel_b"]

    model.save_weights(tmp_path / "sum.weights.h5")  # Keras writes the sum
    first = to_numpy(layer.lora_kernel_a).copy()
    model.load_weights(tmp_path / "sum.weights.h5")
    np.testing.assert_array_equal(to_numpy(layer.lora_kernel_a), first)  # which can still learn
    assert not to_numpy(layer.lora_kernel_b).any()
    assert_close(model(x), expected)


def test_distributions_are_the_named_ones():
    uniform = to_numpy(base.xavier_uniform(300, 100, seed=1)((200, 500)))
    limit = np.sqrt(6 / 400)
    assert abs(np.abs(uniform).max() - limit) < 1e-4 * limit
    assert uniform.std() == pytest.approx(limit / np.sqrt(3), rel=0.01)
    lecun = to_numpy(base.lecun_normal(25, seed=2)((200, 500)))
    assert lecun.std() == pytest.approx(1 / 5, rel=0.01)  # the truncation is made up for
    assert np.abs(lecun).max() == pytest.approx(2 / 5 / 0.87962566, rel=0.01)
    normal = to_numpy(base.Normal(0.02, seed=3)((200, 500)))
    assert normal.std() == pytest.approx(0.02, rel=0.01)
    assert np.abs(normal).max() > 0.02 * 3.5


def test_initial_weights_are_the_published_codes():
    model = VisionTransformer(16, 4, 64, 2, 4, 96, 10, representation_size=32, seed=5)
    weights = weights_by_path(model)
    block = "encoderblock_1"
    std = {
        "embedding/kernel": np.sqrt(1 / (4 * 4 * 3)),
        "posembed_input/pos_embedding": 0.02,
        f"{block}/MultiHeadDotProductAttention_1/query/kernel": np.sqrt(2 / 128),
        f"{block}/MultiHeadDotProductAttention_1/out/kernel": np.sqrt(2 / 128),
        f"{block}/MlpBlock_3/Dense_0/kernel": np.sqrt(2 / 160),
        f"{block}/MlpBlock_3/Dense_1/bias": 1e-6,
        "pre_logits/kernel": np.sqrt(1 / 64),
    }
    for name, expected in std.items():
        assert weights[name].std() == pytest.approx(expected, rel=0.15), name
    for name in ("cls/cls", "head/kernel", "head/bias", "embedding/bias", "pre_logits/bias"):
        assert not weights[name].any(), name
    kernels = [w for name, w in weights.items() if name.endswith("query/kernel")]
    assert not np.array_equal(*kernels)  # each block draws its own


RATES = {"dropout_rate": 0.2, "attention_dropout_rate": 0.3, "stochastic_depth_rate": 0.4}
SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}


def model_of(remat, **changes):
    arguments = {**SIZES, **RATES, "rematerialize": remat, "seed": 3, **changes}
    return randomize(VisionTransformer(8, 4, **arguments), np.random.default_rng(1))


def fitted(model):
    """Trains `model` for three updates by plain gradients, so only these can make it differ."""
    rng = np.random.default_rng(2)
    images = rng.normal(size=(12, 8, 8, 3)).astype("float32")
    labels = rng.normal(size=(12, 3)).astype("float32")
    model.compile(keras.optimizers.SGD(0.05), "mse")
    model.fit(images, labels, batch_size=4, shuffle=False, verbose=0)
    return model


def draws(model):
    """The states of the seed generators, in the order of the layers."""
    return [to_numpy(v) for v in model.variables if v.path not in weights_by_path(model)]


@pytest.fixture(scope="module")
def runs():
    """A model before training, plain and rematerialized after three updates."""
    design = {"position_embedding": "relative", "mlp": "swiglu", "layer_scale": 0.5}
    plain, remat = (fitted(model_of(remat, **design)) for remat in (False, True))
    return weights_by_path(model_of(False, **design)), plain, remat


def test_gradients_and_seeds_are_those_of_plain_blocks_with_all_dropouts(runs):
    before, *models = runs
    plain, remat = map(weights_by_path, models)
    for name, start in before.items():
        if not name.endswith("key/bias"):  # whose gradient is 0 but for rounding
            # Weights moved by 1e-2 of their size: float32 rounds each update at 6e-6 of the move.
            assert_close(remat[name] - start, plain[name] - start, rtol=5e-5, name=name)
    states = [np.stack(draws(model)) for model in models]
    assert len(states[0]) == 1 + 2 * 4 + 2  # stochastic depth is 0 in the first block
    np.testing.assert_array_equal(*states)
    assert {int(state[1]) for state in states[0]} == {3}


@pytest.mark.on("torch")
@pytest.mark.parametrize("rates", [RATES, dict.fromkeys(RATES, 0.0)], ids=["dropouts", "none"])
def test_rematerialized_blocks_keep_less_for_the_backward_pass(rates):
    import torch

    def kept(remat):
        sizes, model = [], model_of(remat, **rates)
        images = np.ones((16, 8, 8, 3), "float32")
        model(images)  # a second call may take a shorter way
        keep = lambda t: sizes.append(t.nbytes) or t
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            model(images, training=True)
        return sum(sizes)

    assert kept(True) < (0.25 if rates["dropout_rate"] else 0.35) * kept(False)


@pytest.mark.parametrize("make", [lambda: layers.ClassToken(), lambda: layers.EncoderBlock(2, 16)])
def test_layers_tell_keras_their_shape_also_unbuilt(rng, make):
    """`TimeDistributed` asks for it."""
    x, layer = rng.normal(size=(2, 3, 4, 8)).astype("float32"), make()
    y = to_numpy(keras.layers.TimeDistributed(layer)(x))
    assert_close(y, np.stack([to_numpy(layer(x[:, i])) for i in range(3)], axis=1))
    assert make().compute_output_shape((None, 4, 8)) == (None, *y.shape[2:])
