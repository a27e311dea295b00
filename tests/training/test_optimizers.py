"""Compares schedules and updates with the published rules in NumPy."""

import dataclasses
import math

import keras
import ml_dtypes
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.config import OptimizerConfig
from vit_keras.models import HybridViT, VisionTransformer
from vit_keras.support.keras_internals import averages_of
from vit_keras.training import WarmupDecay, build_optimizer, freeze
from vit_keras.training.optimizers import num_blocks, rate_multiplier


def published_rate(step, base, total, warmup, decay_type):
    """vit_jax' `create_learning_rate_schedule`, a rate for one update; or BiT's stairs."""
    warmed = base * (min(1.0, step / warmup) if warmup else 1.0)
    if decay_type == "staircase":
        return warmed / 10 ** sum(step / total >= share for share in (0.3, 0.6, 0.9))
    progress = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
    decayed = 1 - progress if decay_type == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return warmed * decayed


def clip(gradients, limit):
    """All gradients scaled so that their norm is `limit` at most, and the norm before."""
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    return [g * min(1.0, limit / norm) if limit else g for g in gradients], norm


def adamw(gradient, state, update, config):
    state["m"] = config.beta_1 * state.get("m", 0.0) + (1 - config.beta_1) * gradient
    state["v"] = config.beta_2 * state.get("v", 0.0) + (1 - config.beta_2) * gradient**2
    m, v = (state[k] / (1 - b**update) for k, b in (("m", config.beta_1), ("v", config.beta_2)))
    return m / (np.sqrt(v) + 1e-8)


def sgd(gradient, state, update, config):
    if config.momentum_dtype == "float32":
        state["trace"] = gradient + config.momentum * state.get("trace", 0.0)
        return state["trace"]
    new = gradient + float(ml_dtypes.bfloat16(config.momentum)) * state.get("trace", 0.0)
    state["trace"] = new.astype("float32").astype(ml_dtypes.bfloat16).astype("float64")
    return new


def train(weights, gradients, config, total_steps, multiplier=lambda path: 1.0):
    """`{path: array}` after updates on lists of gradients: (weights, their averages, norms)."""
    rule = {"adamw": adamw, "sgd": sgd}[config.name]
    weights = {path: weight.astype("float64") for path, weight in weights.items()}
    states, averages, norms = {path: {} for path in weights}, {}, []
    for step, drawn in enumerate(gradients):
        drawn, norm = clip([g.astype("float64") for g in drawn], config.grad_norm_clip)
        norms.append(norm)
        schedule = (config.learning_rate, total_steps, config.warmup_steps, config.decay_type)
        for path, gradient in zip(weights, drawn):
            rate = published_rate(step, *schedule) * multiplier(path)
            direction = rule(gradient, states[path], step + 1, config)
            decay = config.weight_decay if path.endswith("/kernel") else 0.0
            weights[path] = weights[path] - rate * (direction + decay * weights[path])
            d = config.ema_decay if step and config.ema_decay else 0.0
            averages[path] = d * averages.get(path, 0.0) + (1 - d) * weights[path]
    return weights, averages, norms


def small_model(rng, **arguments):
    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
    return randomize(VisionTransformer(8, 4, **sizes, channels=1, **arguments), rng)


def draw_gradients(rng, variables, count):
    """Lists of gradients whose norm is now above 1, now below."""
    shapes = [v.shape for v in variables]
    scales = rng.uniform(0.2, 3.0, count) / math.sqrt(sum(map(math.prod, shapes)))
    return [[(s * rng.normal(size=shape)).astype("float32") for shape in shapes] for s in scales]


def updater(optimizer, variables, often=False):
    """A function that updates `variables` by a list of arrays, as `fit` does it.

    Compiled on JAX; on TensorFlow where it is called so often that it takes less time.
    """
    if not optimizer.built:
        optimizer.build(variables)
    if keras.backend.backend() == "tensorflow" and often:
        import tensorflow as tf

        return tf.function(lambda drawn: optimizer.apply(drawn, variables))
    if keras.backend.backend() != "jax":
        convert = keras.ops.convert_to_tensor
        return lambda drawn: optimizer.apply([convert(g) for g in drawn], variables)
    import jax

    compiled = jax.jit(optimizer.stateless_apply)

    def update(drawn):
        values = [v.value for v in optimizer.variables], drawn, [v.value for v in variables]
        for group, new in zip((variables, optimizer.variables), compiled(*values)):
            for variable, value in zip(group, new):
                variable.assign(value)

    return update


def values(variables):
    return [to_numpy(v.value) for v in variables]


STEPS = 100
ADAMW = OptimizerConfig(
    learning_rate=0.01, weight_decay=0.2, beta_2=0.95, warmup_steps=10, ema_decay=0.9999
)
SGD_LINEAR = OptimizerConfig(
    "sgd", 0.05, weight_decay=0.1, momentum=0.8, decay_type="linear", warmup_steps=5, ema_decay=0.9
)
CASES = {
    "adamw": ADAMW,
    "adamw by layer": dataclasses.replace(
        ADAMW, layer_decay=0.65, grad_norm_clip=None, decay_type="linear", warmup_steps=0
    ),
    "sgd": SGD_LINEAR,
    "sgd in bfloat16": OptimizerConfig("sgd", 0.03, warmup_steps=10, momentum_dtype="bfloat16"),
}


BLOCKS = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


@pytest.mark.parametrize("decay_type", ["cosine", "linear", "staircase"])
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_the_schedule_equals_the_published_rule(decay_type, warmup):
    schedule = WarmupDecay(0.3, 50, warmup, decay_type)
    again = WarmupDecay.from_config(schedule.get_config())
    rates = [float(to_numpy(again(step))) for step in range(60)]
    expected = [published_rate(step, 0.3, 50, warmup, decay_type) for step in range(60)]
    assert_close(rates, expected, rtol=1e-6)


def of_layer(decay):
    """Multipliers for a model of one block, as BEiT's `get_num_layer_for_vit` counts them."""
    depths = {"embedding": 0, "cls": 0, "posembed_input": 0, "encoderblock_0": 1}
    return lambda path: decay ** (2 - depths.get(path.split("/")[0], 2))


@pytest.mark.parametrize("case", CASES)
def test_updates_equal_the_published_rules(rng, case):
    config, total = CASES[case], STEPS + 5
    model = small_model(rng, representation_size=6)
    variables = [v for v in model.trainable_variables if "Attention" not in v.path]
    before = dict(zip([v.path for v in variables], values(variables)))
    gradients = draw_gradients(rng, variables, STEPS)
    optimizer = build_optimizer(config, total, model)
    update, norms = updater(optimizer, variables, often=True), []
    for drawn in gradients:
        update(drawn)
        norms.append(float(to_numpy(optimizer.gradient_norm.value)))
    multiplier = of_layer(config.layer_decay or 1.0)
    weights, averages, exact_norms = train(before, gradients, config, total, multiplier)
    assert_close(norms, exact_norms)
    assert 10 < sum(norm > 1 for norm in norms) < 90  # clipped
    after = dict(zip(before, values(variables)))
    rtol = 5e-5 if case == "sgd in bfloat16" else 4e-6
    assert_near(after, weights, rtol)
    assert max(np.abs(after[name] - before[name]).max() for name in before) > 0.1
    if config.ema_decay:
        kept = values(averages_of(optimizer))
        assert_near(dict(zip(before, kept)), averages, rtol)


def assert_near(found, expected, rtol):
    for name, value in expected.items():
        assert_close(found[name], value, rtol, name)


def few_variables():
    """The norm and the head of a model, to compile little."""
    return small_model(np.random.default_rng(0)).trainable_variables[-4:]


def test_loss_scaling_only_skips_steps_that_are_not_finite(rng):
    config = dataclasses.replace(ADAMW, accumulation_steps=2)
    gradients, states = draw_gradients(rng, few_variables(), 8), []
    for scale in (1.0, 2.0**15):
        variables = few_variables()
        inner = build_optimizer(config, 10, None)
        optimizer = inner if scale == 1 else keras.optimizers.LossScaleOptimizer(inner)
        update = updater(optimizer, variables)
        for drawn in gradients:
            update([g * np.float32(scale) for g in drawn])
        if scale > 1:
            update([np.full_like(g, np.inf) for g in gradients[0]])
            assert float(to_numpy(optimizer.dynamic_scale.value)) == 2.0**14
        assert int(to_numpy(optimizer.iterations)) == 4
        states.append(values([*variables, *averages_of(inner)]))
    for plain, scaled in zip(*states):
        np.testing.assert_array_equal(scaled, plain)


@pytest.mark.parametrize("config", [ADAMW, SGD_LINEAR], ids=["adamw", "sgd"])
def test_a_loaded_optimizer_decays_only_kernels(rng, tmp_path, config):
    config = dataclasses.replace(
        config, momentum_dtype="bfloat16", layer_decay=0.8, warmup_steps=0, ema_decay=None
    )
    model = small_model(rng)
    freeze(model, ["encoderblock_0"])  # to compile little
    model.compile(build_optimizer(config, 20, model), "mse")
    model.optimizer.build(model.trainable_variables)
    for slot in model.optimizer.variables[1:]:  # all but the number of updates
        slot.assign(rng.normal(size=slot.shape).astype("float32"))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    optimizer = loaded.optimizer
    assert type(optimizer) is type(model.optimizer)
    assert optimizer.get_config() == model.optimizer.get_config()
    for old, new in zip(model.optimizer.variables, optimizer.variables):
        assert old.dtype == new.dtype
        np.testing.assert_array_equal(to_numpy(new.value), to_numpy(old.value), err_msg=old.path)
    for slot in optimizer.variables[1:]:
        slot.assign(np.zeros(slot.shape, "float32"))
    before, trained = weights_by_path(loaded), loaded.trainable_variables
    updater(optimizer, trained)([np.zeros(v.shape, "float32") for v in trained])
    rate = float(to_numpy(model.optimizer.learning_rate))
    for path, found in zip([v.path for v in trained], values(trained)):
        decay = config.weight_decay * path.endswith("/kernel")
        expected = before[path] * (1 - rate * of_layer(0.8)(path) * decay)
        assert_close(found, expected, rtol=1e-6, name=path)


@pytest.mark.once
@pytest.mark.parametrize(
    ("patterns", "trained"),
    [
        (["[!h]*"], {"head"}),
        (["embedding", "encoderblock_*"], {"cls", "posembed_input", "encoder_norm", "head"}),
        (["encoder*", "?ls", "embedding", "head"], {"posembed_input"}),
    ],
)
def test_freeze_leaves_the_other_layers(rng, patterns, trained):
    model = small_model(rng)
    freeze(model, patterns)
    assert {v.path.split("/")[0] for v in model.trainable_variables} == trained


@pytest.mark.once
def test_what_stands_before_the_blocks_is_the_first_layer():
    options = {"pre_norm": True, "num_registers": 2, "classifier": "distilled"}
    stem = {"conv_root", "gn_root", "block1", "embedding", "cls", "posembed_input"}
    tokens = {"embedding", "cls", "dist", "registers", "posembed_input", "pre_norm"}
    for model, first, last in (
        (HybridViT(32, (1,), 0.5, 1, **BLOCKS), stem, {"encoder_norm", "head"}),
        (
            VisionTransformer(8, 4, **BLOCKS, **options),
            tokens,
            {"encoder_norm", "head", "head_dist"},
        ),
    ):
        layers = {}
        for path in (variable.path for variable in model.trainable_variables):
            multiplier = rate_multiplier(path, 0.5, num_blocks(model))
            layers.setdefault(multiplier, set()).add(path.split("/")[0])
        blocks = {0.5 ** (3 - i): {f"encoderblock_{i}"} for i in range(3)}
        assert layers == {0.0625: first, **blocks, 1.0: last}
