"""On torch, steps replay recorded graphs, which compute the bits of the layers.

With `jit_compile=True` the graphs are compiled, which at night is compared with the layers too.
"""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras.layers import backends
from vit_keras.models import VisionTransformer, add_lora

SIZES = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24, "num_classes": 3}
pytestmark = pytest.mark.on("torch")


def make(lora=False, **arguments):
    keras.utils.set_random_seed(0)  # the seed of Keras' own dropout after the embedding
    model = VisionTransformer(8, 4, **SIZES, **arguments, seed=1)
    randomize(model, np.random.default_rng(0))
    return add_lora(model, 2, seed=0) if lora else model


@pytest.fixture
def images(rng):
    return rng.normal(size=(2, 8, 8, 3)).astype("float32")


def replayed(model, images):
    """The outputs of `predict` once it replays, as one array."""
    outputs = [model.predict(images, verbose=0) for _ in range(3)][-1]
    return np.concatenate(keras.tree.flatten(outputs), axis=-1)


def by_layers(model, images):
    outputs = keras.tree.flatten(model(images, training=False))
    return np.concatenate([to_numpy(y) for y in outputs], axis=-1)


def count_graphs(model, training=False):
    """How many graphs of the model there are."""
    plan = (model.train_function if training else model.predict_function).plans[model]
    return sum(len(piece.graphs) for piece in plan.pieces(training))


def test_a_graph_is_recorded_for_each_size_of_a_batch(images):
    model = make()
    for batch, count in ((images, 1), (2 * images[::-1] + 1, 1), (images[:1], 2)):
        np.testing.assert_array_equal(replayed(model, batch), by_layers(model, batch))
        assert count_graphs(model) == count


def test_products_of_the_other_library_are_replayed(monkeypatch, images, request):
    from torch.profiler import profile

    from vit_keras.layers.backends import torch as ours

    if not ours.has_onednn():
        pytest.skip("this torch has no other library")
    monkeypatch.setattr(ours, "LARGE", 1)
    request.addfinalizer(lambda: backends.use({}))
    model = make()
    first = replayed(model, images)
    backends.use({"torch_products": {"float32": True}})
    np.testing.assert_array_equal(replayed(model, images), by_layers(model, images))
    assert_close(replayed(model, images), first)
    with profile() as profiled:
        model.predict(images, verbose=0)
    assert any("mkldnn" in event.name for event in profiled.events())


def test_changes_of_weights_are_seen_however_they_are_made(images):
    model = make()
    before = replayed(model, images)
    kernel = model.get_layer("encoderblock_1").mlp.dense_0.kernel
    kernel.value.data.mul_(2.0)
    after = replayed(model, images)
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_array_equal(after, by_layers(model, images))
    kernel.value.data = kernel.value.data.clone() / 2
    np.testing.assert_array_equal(replayed(model, images), before)
    assert count_graphs(model) == 1


DESIGNS = {
    "paper": {},
    "gap": {"classifier": "gap", "representation_size": 5},
    "registers": {"num_registers": 2, "layer_scale": 0.3, "pre_norm": True},
    "rope": {"classifier": "map", "rope": {"base": 100.0}, "qkv_bias": "qv", "mlp": "swiglu"},
    "relative": {"position_embedding": "relative_2d"},
    "windows": {"classifier": "distilled", "window_size": 1, "qk_norm": True},
    "float64": {"dtype": "float64"},
    "mixed": {"dtype": "mixed_bfloat16"},
    "drops": {"dropout_rate": 0.3, "attention_dropout_rate": 0.2, "stochastic_depth_rate": 0.5},
    "rematerialize": {"rematerialize": True, "dropout_rate": 0.3},
    "patches left out": {"patch_keep_rate": 0.5},
    "lora": {"lora": True},
}


@pytest.mark.parametrize("name", DESIGNS)
def test_every_step_has_the_bits_of_layers(name, rng):
    images = rng.normal(size=(12, 8, 8, 3)).astype("float32")
    weights, losses = [], []
    for eagerly in (True, False):
        model = make(**DESIGNS[name])
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=1.0)
        model.compile(optimizer, "mse", run_eagerly=eagerly)
        target = keras.tree.map_structure(lambda y: np.zeros((12, *y.shape[1:])), model.output)
        model.fit(images, target, batch_size=2, shuffle=False, verbose=0)
        weights.append([to_numpy(variable) for variable in model.variables])
        losses.append([model.evaluate(images, target, verbose=0) for _ in range(2)])
    assert losses[0] == losses[1]
    assert model.test_function.plans[model].pieces(False)[0].graphs
    for of_graphs, of_layers in zip(*weights[::-1]):
        np.testing.assert_array_equal(of_graphs, of_layers)
    np.testing.assert_array_equal(replayed(model, images), by_layers(model, images))
    assert (count_graphs(model, training=True) > 0) == (name != "patches left out")


def block(model):
    return model.get_layer("encoderblock_0")


CHANGES = {
    "gelu": lambda model: setattr(block(model).mlp, "gelu", "tanh"),
    "epsilon": lambda model: setattr(model.get_layer("encoder_norm"), "epsilon", 0.1),
    "quantized": lambda model: model.quantize("int8"),
    "one adapter": lambda model: block(model).attention.query.enable_lora(2, b_initializer="ones"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_of_layers_are_seen(change, images):
    model = make()
    before = replayed(model, images)
    change(model)
    after = replayed(model, images)
    assert np.abs(after - before).max() > 0
    np.testing.assert_array_equal(after, by_layers(model, images))


def test_another_rate_of_dropout_is_seen(images):
    model = make(dropout_rate=0.3)
    model.compile(keras.optimizers.SGD(0.0), "mse")
    target = np.zeros((2, 3))
    model.fit(images, target, epochs=3, verbose=0)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    (loss,) = model.fit(images, target, verbose=0).history["loss"]
    assert loss == pytest.approx(model.evaluate(images, target, verbose=0), rel=1e-6)


def test_layers_of_others_and_hooks_see_each_call(images):
    base, seen = make(), []

    class Shout(keras.layers.Layer):
        def call(self, x):
            seen.append(self.name)
            return 2 * x

    model = type(base)(base.input, Shout()(base.output))
    seen.clear()
    np.testing.assert_array_equal(replayed(model, images), 2 * by_layers(base, images))
    assert len(seen) == 3
    model, seen = make(), []
    expected = replayed(model, images)
    handle = model.get_layer("encoderblock_1").norm_2.register_forward_hook(
        lambda layer, arguments, y: seen.append(layer.name)
    )
    np.testing.assert_array_equal(replayed(model, images), expected)
    assert seen == ["LayerNorm_2"] * 3
    handle.remove()
    replayed(model, images)
    assert len(seen) == 3


def results_of(model, jit_compile, images):
    """What `predict`, `fit`, `evaluate` and `predict` return, one after another."""
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
    target = keras.tree.map_structure(lambda y: np.zeros((4, *y.shape[1:])), model.output)
    results = [model.predict(images, verbose=0)]
    history = model.fit(images, target, batch_size=2, epochs=2, shuffle=False, verbose=0)
    results += [history.history["loss"], model.evaluate(images, target, verbose=0)]
    return [*results, model.predict(images, verbose=0)]


COMPILED = {
    **{name: DESIGNS[name] for name in ("paper", "rope", "relative", "mixed", "lora")},
    **{name: DESIGNS[name] for name in ("drops", "rematerialize", "patches left out")},
    "both": {"patch_keep_rate": 0.5, "rematerialize": True},
    "no chain": {"patch_keep_rate": 0.5, "classifier": "distilled"},
}


@pytest.mark.nightly
@pytest.mark.parametrize("arguments", COMPILED.values(), ids=COMPILED)
def test_compiled_steps_have_the_results_of_layers(arguments, rng):
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    exact = {name: value for name, value in arguments.items() if name != "dtype"}
    rtol = 1e-5 if exact == arguments else 0.05  # bfloat16 against float32
    expected = results_of(make(**exact), False, images)
    results = results_of(make(**arguments), True, images)
    for result, other in zip(results, expected, strict=True):
        assert_close(result, other, rtol)


@pytest.mark.nightly
@pytest.mark.parametrize("rematerialize", [False, True])
def test_many_sizes_of_batches_are_compiled(rematerialize, rng):
    """torch refuses to compile one code for more than eight kinds of inputs."""
    arguments = {**SIZES, "hidden_size": 4, "num_layers": 1, "mlp_dim": 4}
    model = VisionTransformer(8, 4, **arguments, rematerialize=rematerialize, seed=1)
    model.compile("sgd", "mse", jit_compile=True)
    for count in range(1, 11):
        images = rng.normal(size=(count, 8, 8, 3)).astype("float32")
        model.train_on_batch(images, np.zeros((count, 3)))
        assert_close(model.predict(images, verbose=0), by_layers(model, images), rtol=1e-5)


def test_compiled_layers_that_change_their_weights_go_on_changing_them(rng):
    images, averages = rng.normal(size=(4, 8, 8, 3)).astype("float32"), []
    for jit_compile in (False, True):
        backbone = make()
        normal = keras.layers.BatchNormalization(momentum=0.5)
        outputs = {"logits": normal(backbone.output), "head": backbone.output}
        model = type(backbone)(backbone.input, outputs)
        model.compile(keras.optimizers.SGD(0.01), {"logits": "mse"}, jit_compile=jit_compile)
        model.fit(images, {"logits": np.zeros((4, 3))}, epochs=2, verbose=0)
        assert model.predict(images, verbose=0).keys() == outputs.keys()
        averages.append(to_numpy(normal.moving_mean))
    assert np.abs(averages[0]).max() > 0.1
    assert_close(*averages)
