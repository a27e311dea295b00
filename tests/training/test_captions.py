"""A table of pictures and captions trains two towers, also from the middle of a training."""

import csv

import keras
import numpy as np
import pytest
from PIL import Image

from tests.helpers import weights_by_path
from vit_keras import data, models, training
from vit_keras.config import AugmentConfig

IDS = np.array([[1, 4, 2], [1, 5, 2], [1, 6, 2]])  # of the captions below, in sorted order
CAPTIONS = ("a dark picture", "a light picture", "a red picture")


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captions")
    colors = [(20, 20, 20), (230, 230, 230), (200, 20, 20)]
    with open(folder / "captions.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["picture", "caption", "split"])
        for number in range(9):
            Image.new("RGB", (20, 16), colors[number % 3]).save(folder / f"{number}.png")
            rows.writerow([f"{number}.png", CAPTIONS[number % 3], "train"])
    dataset = data.load(f"table:{folder / 'captions.csv'}", 3)
    assert dataset.class_names == CAPTIONS
    return dataset.split("train")


def batches(split, start=0, **augment):
    options = {"image_size": (16, 16), "preprocessing": models.Preprocessing(), "num_classes": 3}
    steps = {"batch": 4, "seed": 2, "start_step": start, "total_steps": 6}
    made = data.train_batches(split, augment_config=AugmentConfig(**augment), **options, **steps)
    return data.with_texts(made, IDS)


def towers():
    image = models.VisionTransformer(
        16, 8, 16, 1, 2, 24, num_classes=8, head_use_bias=False, seed=0
    )
    text = models.TextTransformer(7, 3, 16, 1, 2, 24, projection_dim=8, seed=1)
    return models.ImageText(models.with_unit_length(image), text, logit_scale=2.3)


@pytest.mark.once
def test_each_picture_comes_with_the_ids_of_its_caption(split):
    for (images, ids), classes in batches(split):
        colors = (images[:, 8, 8] + 1) * 127.5
        kinds = np.where(colors[:, 1] > 200, 1, np.where(colors[:, 0] > 100, 2, 0))
        np.testing.assert_array_equal(classes, kinds)
        np.testing.assert_array_equal(ids, IDS[kinds])
    with pytest.raises(ValueError, match="Texts need unmixed images"):
        list(batches(split, mixup_alpha=1.0))


@pytest.mark.nightly_on("tensorflow")
@pytest.mark.parametrize("frozen", [False, pytest.param(True, marks=pytest.mark.nightly_on("jax"))])
def test_training_goes_on_to_the_same_bits(split, frozen, tmp_path):
    """`frozen` is LiT (arXiv 2111.07991), whose image tower learns nothing."""

    def fit(model, start, stop):
        made = batches(split, start, flip=True)
        model.fit(made, steps_per_epoch=stop - start, shuffle=False, verbose=0)

    whole = towers()
    whole.image.trainable = not frozen
    model = models.contrastive_model(whole, seed=3)
    before = {path: np.array(value) for path, value in weights_by_path(whole.image).items()}
    model.compile(keras.optimizers.AdamW(1e-2), training.ContrastiveLoss())
    fit(model, 0, 6)
    stopped = towers()
    stopped.image.trainable = not frozen
    half = models.contrastive_model(stopped, seed=3)
    half.compile(keras.optimizers.AdamW(1e-2), training.ContrastiveLoss())
    fit(half, 0, 3)
    half.save(tmp_path / "half.keras")
    again = keras.saving.load_model(tmp_path / "half.keras")
    fit(again, 3, 6)
    expected = weights_by_path(model)
    for path, value in weights_by_path(again).items():
        np.testing.assert_array_equal(value, expected[path], path)
    after = weights_by_path(models.towers_of(model).image)
    same = [np.array_equal(after[path], value) for path, value in before.items()]
    assert all(same) == frozen
