"""Images and batches beside plain NumPy; truncated pictures stop a run or are replaced."""

import dataclasses

import keras
import numpy as np
import pytest
from PIL import Image

from tests.helpers import assert_close, run_script, write_picture
from tests.training.small import SHARED, SIZES
from vit_keras import data, experiments
from vit_keras.config import AugmentConfig, Config, DataConfig, ModelConfig, OptimizerConfig
from vit_keras.data import from_arrays
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.models import Preprocessing

once = pytest.mark.once
PLAIN = {"image_size": (6, 5), "preprocessing": Preprocessing()}


@pytest.fixture
def split(rng):
    """Ten images; every pixel of an image is 20 times its number."""
    images = np.broadcast_to(np.arange(10, dtype="uint8")[:, None, None, None] * 20, (10, 6, 5, 1))
    return from_arrays(np.array(images), np.arange(10))


@once
def test_two_splits_are_joined(split):
    dataset = data.Dataset("x", {"train": split, "test": split.part([3, 1])}, ("a", "b"))
    both = dataset.split("test+train[:2]")
    assert [int(both.read(i).max()) for i in range(len(both))] == [60, 20, 0, 20]
    assert both.labels.tolist() == [3, 1, 0, 1] == [both.example(i)[1] for i in range(4)]


@once
def test_a_class_beyond_the_outputs_is_refused(split):
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 9"):
        list(data.eval_batches(split, **PLAIN, batch=10, num_classes=9))


@once
def test_padded_batches_are_whole_and_weigh_what_was_added_with_nothing(split):
    """Processes share the rows of each batch."""
    options = {**PLAIN, "batch": 4, "num_classes": 10, "pad": True}
    made = data.eval_batches(split, **options)
    images, labels, weights = map(np.concatenate, zip(*made))
    assert len(made) == 3 and {len(images) for images, *_ in made} == {4}
    numbers = [*range(10), 9, 9]
    np.testing.assert_array_equal(labels, np.eye(10)[numbers])
    assert_close(images[:, 0, 0, 0], np.array(numbers) * 20 / 127.5 - 1, rtol=1e-6)
    assert_close(weights, [1.2] * 10 + [0, 0], rtol=1e-6)  # 1 on average
    parts = [list(data.eval_batches(split, **options, shard=(rank, 2))) for rank in range(2)]
    for batch, *shared in zip(made, *parts, strict=True):
        for tensor, *pieces in zip(batch, *shared, strict=True):
            np.testing.assert_array_equal(np.concatenate(pieces), tensor)


@once
def test_the_sheet_shows_the_first_batches_of_the_run():
    sizes = {"image_size": (16, 24), "patch_size": 8, "hidden_size": 12, "num_heads": 2}
    changes = {"crop": "inception", "flip": True, "rotation_degrees": 20, "mixup_alpha": 0.5}
    fields = {"dataset": "digits", "batch": 16, "seed": 5, "total_steps": None, "epochs": 2.0}
    config = Config(
        **fields,
        model=ModelConfig(None, channels=1, num_layers=1, mlp_dim=16, **sizes),
        augment=AugmentConfig(**changes),
        optimizer=OptimizerConfig(accumulation_steps=2),
    )
    images, labels, names, _ = experiments.first_training_images(config, 16)
    config = dataclasses.replace(config, total_steps=4, epochs=None)
    feed = data.Feed(data.load("digits", 1), config, (16, 24), Preprocessing())
    parts = [feed.training(0)[number] for number in (0, 1)]  # of one update
    expected = np.concatenate([part[0] for part in parts])
    np.testing.assert_array_equal(images, np.round((expected * 0.5 + 0.5) * 255).clip(0, 255))
    np.testing.assert_array_equal(labels, np.concatenate([part[1] for part in parts]))
    assert (np.sort(labels, axis=1)[:, -2] > 0).any()  # some are mixed
    assert names == tuple("0123456789")


OPTIONS = {"image_size": (8, 8), "preprocessing": Preprocessing()}


@pytest.fixture
def root(tmp_path, rng):
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
    options = {"augment_config": AugmentConfig(crop=crop), "seed": 0, "num_classes": 2, "batch": 4}
    steps = {"start_step": start_step, "total_steps": 9}
    return data.train_batches(dataset.split("train"), **OPTIONS, **options, **steps)


@once
@pytest.mark.parametrize("crop", ["resize", "inception"])
def test_the_next_readable_image_stands_in(root, crop):
    dataset = loaded(root, "skip")
    split = dataset.split("train")
    names = [split.name(i) for i in range(12)]
    bad = sorted(name for name in names if name.endswith(("/3.jpg", "/8.jpg")))
    for i in range(12):
        there = next(k % 12 for k in range(i, i + 12) if names[k % 12] not in bad)
        image, label = split.example(i)
        np.testing.assert_array_equal(image, data.read_image(names[there], 3))
        assert label == split.labels[there]
    dataset = loaded(root, "skip")
    whole = list(train_batches(dataset, crop=crop))
    assert dataset.unreadable.report() == f"2 unreadable images replaced: {', '.join(bad)}"
    resumed = loaded(root, "skip")
    for (images, labels), again in zip(whole[5:], train_batches(resumed, 5, crop), strict=True):
        np.testing.assert_array_equal(images, again[0])
        np.testing.assert_array_equal(labels, again[1])
    assert not loaded(root, "skip").unreadable.names


@once
def test_pictures_that_were_all_unreadable_for_a_moment_have_no_replacement(root):
    split = loaded(root, "skip").split("train")
    split.unreadable.names |= {split.name(i) for i in range(11)}
    assert split.replacement(5) == 11
    split.unreadable.names.add(split.name(11))
    assert split.replacement(5) == 5


def fit(made, form):
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    made = made if form == "itself" else made.as_dataset()
    return model.fit(made, shuffle=False, verbose=0)


FORMS = pytest.mark.parametrize("form", ["itself", "dataset"])


@FORMS
def test_fit_stops_with_the_path_or_replaces_what_is_skipped(root, form):
    dataset = loaded(root, "stop")
    message = r"^'.*[ab]/[38]\.jpg' cannot be read as an image .*Repair"
    with pytest.raises(UnreadableImageError, match=message), dataset.unreadable.reading():
        fit(train_batches(dataset), form)
    dataset = loaded(root, "skip")
    assert np.isfinite(fit(train_batches(dataset), form).history["loss"]).all()
    assert dataset.unreadable.names == {str(root / "b" / "3.jpg"), str(root / "a" / "8.jpg")}


@pytest.mark.nightly_on("tensorflow", "torch")
def test_an_unreadable_picture_ends_the_process_in_one_line(tmp_path, rng):
    """While other threads read pictures, which must not keep the process alive."""
    pictures = tmp_path / "pictures"
    for i in range(150):
        write_picture(pictures / "ab"[i % 2] / f"{i}.jpg", rng, (64, 64))
    torn = pictures / "a" / "70.jpg"
    torn.write_bytes(torn.read_bytes()[:400])  # in the middle of its tables
    fields = {"dataset": f"folder:{pictures}", "workdir": tmp_path / "run", "total_steps": 60}
    fields = {**SHARED, **SIZES, **fields, "model.image_size": 8, "augment.crop": "inception"}
    inherited = {"TF_CPP_MIN_LOG_LEVEL": "1"}  # as from a process that has imported JAX
    command = ("-m", "vit_keras", "train", *(f"--{name}={x}" for name, x in fields.items()))
    done = run_script(*command, check=False, timeout=100, **inherited)
    assert done.returncode == 1, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"vit-keras train: error: '{pictures}/a/70.jpg' cannot be read")
    assert "Traceback" not in done.stderr and sum("error" in line.lower() for line in lines) == 1


@once
def test_a_split_without_readable_images_ends(root):
    for path in root.glob("*/*.jpg"):
        path.write_bytes(b"\xff\xd8\xff")
    split = loaded(root, "skip").split("train")
    with pytest.raises(UnreadableImageError, match="Received: 12 unreadable images"):
        split.read(0)
    with pytest.raises(UnreadableImageError, match="^At least one image"):
        list(data.eval_batches(split, **OPTIONS, batch=4))
