"""The published rules of an update in float64 NumPy, written from the papers and optax."""

import math

import keras
import ml_dtypes
import numpy as np

from tests.helpers import randomize, to_numpy
from vit_keras.models import VisionTransformer


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
