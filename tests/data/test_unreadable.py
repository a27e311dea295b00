"""A truncated picture stops a run with its name, or the next picture replaces it."""

import pathlib

import keras
import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.models import Preprocessing

once = pytest.mark.once
PLAIN = {"image_size": (8, 8), "preprocessing": Preprocessing()}


@pytest.fixture
def root(tmp_path, rng):
    """Twelve pictures of two classes, two of them truncated."""
    for i in range(12):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = rng.integers(0, 256, (4, 4, 3), dtype="uint8")
        Image.fromarray(coarse).resize((64, 64)).save(path)
        if i in (3, 8):
            path.write_bytes(path.read_bytes()[:700])
    return tmp_path / "images"


def loaded(root, on_corrupt):
    return data.load(f"folder:{root}", 3, DataConfig(test_percent=0, on_corrupt=on_corrupt))


def train_batches(dataset, start_step=0, crop="resize"):
    return data.train_batches(
        dataset.split("train"),
        **PLAIN,
        batch=4,
        augment_config=AugmentConfig(crop=crop),
        seed=0,
        start_step=start_step,
        total_steps=9,
        num_classes=2,
    )


@once
@pytest.mark.parametrize("crop", ["resize", "inception"])
def test_the_next_readable_image_stands_in(root, tmp_path, crop):
    dataset = loaded(root, "skip")
    split = dataset.split("train")
    names = [split.name(i) for i in range(12)]
    bad = sorted(name for name in names if name.endswith(("/3.jpg", "/8.jpg")))
    for i in range(12):
        there = next(k % 12 for k in range(i, i + 12) if names[k % 12] not in bad)
        image, label = split.example(i)
        np.testing.assert_array_equal(image, data.read_image(names[there], 3))
        assert label == split.labels[there]
    log = tmp_path / "unreadable.txt"
    dataset = loaded(root, "skip")
    dataset.unreadable.record_in(log)
    whole = list(train_batches(dataset, crop=crop))
    assert dataset.unreadable.names == set(bad) == set(log.read_text().splitlines())
    assert len(log.read_text().splitlines()) == 2  # once each, though seen in every epoch
    assert dataset.unreadable.report() == f"2 unreadable images replaced: {', '.join(bad)}"
    resumed = loaded(root, "skip")
    resumed.unreadable.record_in(log)
    assert resumed.unreadable.report() == dataset.unreadable.report()
    for (images, labels), again in zip(whole[5:], train_batches(resumed, 5, crop), strict=True):
        np.testing.assert_array_equal(images, again[0])
        np.testing.assert_array_equal(labels, again[1])
    assert loaded(root, "skip").unreadable.report() == ""


def fit(batches, form):
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model.fit(
        batches if form == "itself" else batches.as_dataset(), shuffle=False, verbose=0
    )


FORMS = pytest.mark.parametrize("form", ["itself", "dataset"])


@FORMS
def test_fit_stops_with_the_path(root, form):
    dataset = loaded(root, "stop")
    message = r"^'.*[ab]/[38]\.jpg' cannot be read as an image .*Repair"
    with pytest.raises(UnreadableImageError, match=message), dataset.unreadable.reading():
        fit(train_batches(dataset), form)


@FORMS
def test_fit_replaces_what_is_skipped(root, form):
    dataset = loaded(root, "skip")
    assert np.isfinite(fit(train_batches(dataset), form).history["loss"]).all()
    assert dataset.unreadable.names == {str(root / "b" / "3.jpg"), str(root / "a" / "8.jpg")}


@once
def test_a_split_without_readable_images_ends(root):
    for path in root.glob("*/*.jpg"):
        path.write_bytes(b"\xff\xd8\xff")
    split = loaded(root, "skip").split("train")
    with pytest.raises(UnreadableImageError, match="None of 12 images can be read"):
        split.read(0)
    with pytest.raises(UnreadableImageError, match="^At least one image"), split.reading():
        list(data.eval_batches(split, **PLAIN, batch=4))


@once
@pytest.mark.parametrize("batch", [12, 5, 11])
def test_evaluation_names_a_picture_that_is_gone(root, batch):
    for broken in (root / "b" / "3.jpg", root / "a" / "8.jpg"):
        broken.write_bytes((root / "a" / "0.jpg").read_bytes())
    split = loaded(root, "stop").split("train")
    last = split.name(11)  # of a whole batch, or of one or two in the last
    pathlib.Path(last).unlink()
    with pytest.raises(UnreadableImageError, match=f"^'{last}' cannot"), split.reading():
        list(data.eval_batches(split, **PLAIN, batch=batch))
