"""The contact sheet shows the training pipeline's own batches."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from vit_keras import data, experiments, weights
from vit_keras.config import (
    AugmentConfig,
    Config,
    ModelConfig,
    OptimizerConfig,
)
from vit_keras.data.review import place, scale_of
from vit_keras.models import Preprocessing, VisionTransformer

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


def test_weights_bring_their_size_and_preprocessing(config, tmp_path):
    model = VisionTransformer((24, 32), 8, 12, 1, 2, 16, 5, gelu="exact")
    model.preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    weights.save(model, tmp_path / "model.keras")
    config = dataclasses.replace(config, model=ModelConfig(weights=str(tmp_path / "model.keras")))
    images, *_ = experiments.first_training_images(config, 8)
    feed = data.Feed(
        data.load(config.dataset, 3), config, (24, 32), Preprocessing()
    )  # whose pixels are the same, whatever normalization follows
    inputs, _ = next(iter(feed.training(0)))
    assert images.shape == (8, 24, 32, 3)
    expected = np.round((inputs * 0.5 + 0.5) * 255).clip(0, 255)
    assert np.abs(images - expected).max() <= 1


@pytest.mark.parametrize("shape", [(7, 16, 24, 3), (2, 130, 120, 3), (1, 8, 8, 1)])
def test_the_sheet_holds_every_pixel(rng, shape):
    images = rng.integers(0, 256, shape, dtype="uint8")
    captions = ["a class with a name that is much wider than the image of it"] * shape[0]
    sheet = np.asarray(data.draw_contact_sheet(images, captions))
    count, height, width = shape[:3]
    scale = scale_of(height, width)
    assert min(height, width) * scale >= 112 and (scale == 1 or min(height, width) < 112)
    drawn = sheet.copy()
    for i, image in enumerate(images):
        left, top = place(i, count, height, width)
        cell = (slice(top, top + height * scale), slice(left, left + width * scale))
        expected = np.broadcast_to(image, (height, width, 3)).repeat(scale, 0).repeat(scale, 1)
        np.testing.assert_array_equal(sheet[cell], expected)
        drawn[cell] = 255
        below = drawn[top + height * scale : top + height * scale + 18]
        assert (below[:, left : left + width * scale] < 128).any()  # the caption
        drawn[top + height * scale : top + height * scale + 18, left : left + width * scale] = 255
    assert (drawn == 255).all()  # captions keep to their images
