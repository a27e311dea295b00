"""Schedules and weight decay against the published rules in NumPy."""

import math

import keras
import numpy as np
import pytest

from tests.helpers import randomise, to_numpy, weights_by_path
from vit_keras.config import OptimizerConfig
from vit_keras.models import VisionTransformer
from vit_keras.training import WarmupDecay, build_optimizer


def published(step, base, total, warmup, decay_type):
    """vit_jax' `create_learning_rate_schedule`, a rate for one update."""
    progress = min(max((step - warmup) / (total - warmup), 0.0), 1.0)
    decayed = 1 - progress if decay_type == "linear" else 0.5 * (1 + math.cos(math.pi * progress))
    return base * decayed * (min(1.0, step / warmup) if warmup else 1.0)


@pytest.mark.parametrize("decay_type", ["cosine", "linear"])
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_schedule_is_the_published(decay_type, warmup):
    schedule = WarmupDecay(0.3, 50, warmup, decay_type)
    again = WarmupDecay.from_config(schedule.get_config())
    found = [float(to_numpy(again(step))) for step in range(60)]
    expected = [published(step, 0.3, 50, warmup, decay_type) for step in range(60)]
    np.testing.assert_allclose(found, expected, atol=1e-7)


def updates(config, rng, steps=5):
    """Weights before and after updates on the gradients of a small model, and those gradients."""
    model = VisionTransformer(8, 4, 12, 1, 3, 20, 5, channels=1)
    randomise(model, rng)
    before = {name: value.astype("float64") for name, value in weights_by_path(model).items()}
    optimizer = build_optimizer(config, 20, model)
    gradients = []
    for _ in range(steps):
        drawn = [rng.normal(size=v.shape).astype("float32") for v in model.trainable_variables]
        gradients.append(drawn)
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in drawn], model.trainable_variables)
    return before, weights_by_path(model), gradients


def clipped(gradients, limit):
    norm = math.sqrt(sum(float((g.astype("float64") ** 2).sum()) for g in gradients))
    return [g * min(1.0, limit / norm) for g in gradients]


def test_adamw_decays_kernels_alone(rng):
    config = OptimizerConfig(
        learning_rate=0.01, weight_decay=0.2, beta_2=0.95, warmup_steps=3, grad_norm_clip=1.0
    )
    before, after, gradients = updates(config, rng)
    for i, (name, weight) in enumerate(before.items()):
        mean, square = np.zeros_like(weight), np.zeros_like(weight)
        for step, drawn in enumerate(gradients):
            gradient = clipped(drawn, 1.0)[i]
            rate = published(step, 0.01, 20, 3, "cosine")
            if name.endswith("/kernel"):
                weight = weight - rate * 0.2 * weight
            mean, square = 0.9 * mean + 0.1 * gradient, 0.95 * square + 0.05 * gradient**2
            correction = math.sqrt(1 - 0.95 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            weight = weight - rate * correction * mean / (np.sqrt(square) + 1e-7)
        np.testing.assert_allclose(after[name], weight, atol=2e-5, err_msg=name)


def test_sgd_has_momentum(rng):
    config = OptimizerConfig("sgd", 0.1, momentum=0.8, decay_type="linear", grad_norm_clip=None)
    before, after, gradients = updates(config, rng)
    for i, (name, weight) in enumerate(before.items()):
        velocity = np.zeros_like(weight)
        for step, drawn in enumerate(gradients):
            velocity = 0.8 * velocity - published(step, 0.1, 20, 0, "linear") * drawn[i]
            weight = weight + velocity
        np.testing.assert_allclose(after[name], weight, atol=1e-5, err_msg=name)
