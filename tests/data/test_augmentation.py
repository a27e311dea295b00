"""Crops and RandAugment agree with formulas, and batches are the same in parts and as a whole."""

import collections

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.data.drawing import drawn
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data import from_arrays, tf_preprocess
from vit_keras.data.randaugment import Equalization, on_tensorflow, randaugment
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.nightly_on("jax")  # beside TensorFlow, torch shows what Keras' layers do

SIZE = (24, 20)
CHANGES = {
    "affine": {"rotation_degrees": 20, "scale": 0.3, "shift": 0.2},
    "inception and flip": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit"},
    "pillow": {"randaugment_layers": 2, "mixup_alpha": 0.4, "cutmix_alpha": 1.0},
    "jitter and erasing": {"policy": "trivialaugment", "color_jitter": 0.4, "erasing": 0.8},
    "keras": {"randaugment_layers": 2, "library": "keras"},
    "keras_cv": {"randaugment_layers": 2, "library": "keras_cv"},
}


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(5)
    return from_arrays(rng.integers(0, 256, (10, 30, 26, 3), dtype="uint8"), np.arange(10) % 4)


def batches(split, config, batch=8, steps=(0, 3), shard=(0, 1), seed=3):
    made = data.train_batches(
        split,
        image_size=SIZE,
        preprocessing=Preprocessing(),
        batch=batch,
        augment_config=config,
        seed=seed,
        start_step=steps[0],
        total_steps=steps[1],
        num_classes=4,
        shard=shard,
    )
    return [np.concatenate(tensors) for tensors in zip(*made.as_numpy_iterator())]


@pytest.mark.parametrize("change", CHANGES)
def test_examples_are_the_same_resumed_in_parts_and_over_processes(split, change):
    config = AugmentConfig(**CHANGES[change])
    whole = batches(split, config)
    parts = batches(split, config, batch=4, steps=(2, 6))  # from the second batch, in two parts
    for tensor, expected in zip(parts, whole):
        np.testing.assert_array_equal(tensor, expected[8:])
    second = batches(split, config, shard=(1, 2))
    for tensor, expected in zip(second, whole):
        rows = expected.reshape(3, 2, 4, *expected.shape[1:])[:, 1]
        np.testing.assert_array_equal(tensor, rows.reshape(tensor.shape))
    plain = batches(split, AugmentConfig())
    changed = np.abs(whole[0] - plain[0]).max(axis=(1, 2, 3)) > 0.05
    assert changed.mean() > 0.6  # RandAugment may draw what does nothing
    if change == "affine":
        assert not np.array_equal(whole[0], batches(split, config, seed=4)[0])


@pytest.fixture(scope="module")
def windows():
    """Five thousand inception crops of 300x400 pixels, `(N, 4)`."""
    shape = tf.constant([300, 400, 3])
    return drawn(lambda key: tf_preprocess.inception_window(shape, key), 5000).numpy()


def test_inception_crops_are_spread_as_published(windows):
    top, left, height, width = windows.T
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= 300).all() and (left + width <= 400).all()
    area, ratio = height * width / (300 * 400), width / height
    assert 0.048 < area.min() < 0.07 and 0.9 < area.max() <= 1
    assert 0.74 < ratio.min() < 0.78 and 1.29 < ratio.max() < 1.35
    # Plain formulas: the ratio is uniform, and then the height is uniform within the range of
    # areas; both are drawn again if the crop does not fit.
    rng, accepted = np.random.default_rng(0), []
    while len(accepted) < 20000:
        r = rng.uniform(0.75, 1.33)
        low, high = np.sqrt(0.05 * 120000 / r), min(np.sqrt(120000 / r), 300, 400 / r)
        h = rng.uniform(low, high)
        accepted.append((h * h * r / 120000, r))
    for actual, expected in zip((area, ratio), np.transpose(accepted)):
        quantiles = np.linspace(0.1, 0.9, 9)
        difference = np.quantile(actual, quantiles) - np.quantile(expected, quantiles)
        assert np.abs(difference).max() < 0.04
    free = 300 - height
    assert np.mean(top[free > 20] / free[free > 20]) == pytest.approx(0.5, abs=0.02)


def test_an_inception_crop_is_a_part_at_the_size_of_the_model(split):
    key = tf.constant([3, 0], tf.int64)
    window = lambda shape: tf_preprocess.inception_window(shape, key)
    part, label = split.example(tf.constant(4), window)
    top, left, height, width = window(tf.constant([30, 26, 3])).numpy()
    whole = split.read(tf.constant(4)).numpy()
    np.testing.assert_array_equal(part, whole[top : top + height, left : left + width])
    assert label == split.labels[4]


@pytest.mark.parametrize(("side", "larger"), [(95, (30, 25)), (97, (26, 21))])
def test_bit_crops_lie_in_a_larger_picture(side, larger):
    """160/128 of 24x20 is 30x25, and 512/480 is 26x21; the corner shows where the part lies."""
    y, x = np.mgrid[:side, :side].astype("float32")
    places, pixels = [], Preprocessing(rounding="none")
    for i in range(60):
        picture = tf.constant(np.stack([y, x], axis=-1))
        actual = tf_preprocess.bit_crop(picture, SIZE, pixels, [1, i]).numpy()
        whole = tf.image.resize(picture, larger, antialias=True).numpy()
        differences = {
            (top, left): np.abs(whole[top : top + 24, left : left + 20] - actual).max()
            for top in range(larger[0] - 23)
            for left in range(larger[1] - 19)
        }
        place = min(differences, key=differences.get)
        assert differences[place] == 0
        places.append(place)
    seen = collections.Counter(places)
    assert len(seen) > 0.7 * min(60, len(differences)) and max(seen.values()) < 45


def test_half_of_the_images_are_mirrored(split):
    image = split.read(tf.constant(0))
    mirrored = 0
    for i in range(200):
        actual = tf_preprocess.flip(image, [2, i]).numpy()
        is_mirrored = not np.array_equal(actual, image)
        np.testing.assert_array_equal(actual, image[:, ::-1] if is_mirrored else image)
        mirrored += is_mirrored
    assert 70 < mirrored < 130


@pytest.mark.parametrize("library", ["keras", "keras_cv"])
def test_randaugment_draws_nothing_but_by_its_key(library):
    """No operation of the graph keeps a state, so a resumed run sees the same images."""
    change = randaugment(library, 2, 15)
    specs = tf.TensorSpec((16, 12, 3)), tf.TensorSpec((2,), tf.int64)
    made = tf.function(change, autograph=False).get_concrete_function(*specs)
    graph = made.graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    random = {node.op for node in nodes if "Random" in node.op or "Variable" in node.op}
    assert random and all(op.startswith("Stateless") for op in random)
    image = tf.random.stateless_uniform((16, 12, 3), [0, 1], 0, 255)
    actual = [made(image, tf.constant([5, i], tf.int64)).numpy() for i in range(20)]
    assert min(x.min() for x in actual) >= 0 and max(x.max() for x in actual) <= 255
    assert len({x.tobytes() for x in actual}) > 15


def test_equalization_is_keras_own(rng):
    image = tf.constant(rng.integers(30, 200, (1, 9, 7, 3)).astype("float32"))
    ours, theirs = Equalization((0, 255)), keras.layers.Equalization((0, 255))
    with on_tensorflow(ours):
        actual = tf.function(lambda x: ours.transform_images(x, None), autograph=False)(image)
    np.testing.assert_array_equal(actual, keras.ops.convert_to_numpy(theirs(image.numpy())))


def test_wrong_augmentation_is_named(split):
    for field, value, message in (
        (
            "randaugment_magnitude",
            31,
            r"`augment.randaugment_magnitude` must be from 0 to 30",
        ),
        ("mixup_alpha", -1, "`augment.mixup_alpha` must be at least 0. Received: -1"),
        ("color_jitter", -1, "`augment.color_jitter` must be at least 0. Received: -1"),
        ("erasing", 2, "`augment.erasing` must be from 0 to 1. Received: 2"),
    ):
        with pytest.raises(ValueError, match=message):
            AugmentConfig(**{field: value})
    with pytest.raises(ValueError, match="of keras_cv shuffle by tf.random.shuffle.*keras_cv"):
        AugmentConfig(library="keras_cv", mixup_alpha=0.1)
    with pytest.raises(ValueError, match=r"Only one of `augment.policy`.*: autoaugment and 2"):
        AugmentConfig(policy="autoaugment", randaugment_layers=2)
    gray = from_arrays(np.zeros((4, 8, 8, 1), "uint8"), np.arange(4))
    with pytest.raises(ValueError, match="RandAugment, .* need 3 channels. Received: 1"):
        batches(gray, AugmentConfig(randaugment_layers=1))
