"""The contact sheet shows the training pipeline's own batches."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from vit_keras import data, experiments
from vit_keras.config import (
    AugmentConfig,
    Config,
    ModelConfig,
    OptimizerConfig,
)
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
MODEL = ModelConfig(
    variant=None,
    image_size=(16, 24),
    patch_size=8,
    hidden_size=12,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
)
CONFIG = Config(
    batch=16,
    total_steps=4,
    seed=5,
    model=MODEL,
    augment=AugmentConfig(crop="inception", flip=True, rotation_degrees=20, mixup_alpha=0.5),
    optimizer=OptimizerConfig(accumulation_steps=2),
)


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for name in ("cat", "dog", "owl"):
        (root / name).mkdir()
        for i in range(12):
            coarse = rng.integers(0, 256, (4, 5, 3), dtype="uint8")
            Image.fromarray(coarse).resize((50, 40)).save(root / name / f"{i}.png")
    return dataclasses.replace(CONFIG, dataset=f"folder:{root}")


def feed_of(config, preprocessing):
    return data.Feed(data.load(config.dataset, 3), config, (16, 24), preprocessing)


@pytest.mark.parametrize("steps", [{"total_steps": 4}, {"total_steps": None, "epochs": 2.0}])
def test_the_images_are_the_first_batches_of_the_run(config, steps):
    images, labels, names, _ = experiments.first_training_images(
        dataclasses.replace(config, **steps), 16
    )
    training = feed_of(config, Preprocessing()).training(0)
    parts = [training[0], training[1]]  # of one update
    expected = np.concatenate([part[0] for part in parts])
    np.testing.assert_array_equal(images, np.round((expected * 0.5 + 0.5) * 255).clip(0, 255))
    np.testing.assert_array_equal(labels, np.concatenate([part[1] for part in parts]))
    assert (np.sort(labels, axis=1)[:, 1] > 0).any()  # some are mixed
    assert names == ("cat", "dog", "owl")
