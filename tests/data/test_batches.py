"""Batches by number and their order: which are computed and kept, and when threads end."""

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

from tests.helpers import to_numpy
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data.augment import Augmentation
from vit_keras.data.batches import AHEAD, Batches, balanced, generator, shuffled
from vit_keras.data.cropping import as_picture
from vit_keras.models import Preprocessing

once = pytest.mark.once
THREADS = pytest.mark.parametrize("threads", [0, 4])


def numbers(number, each):
    """A batch that tells its number, whose examples are computed by `each`."""
    return np.array([*each(lambda i: 10 * number + i, range(3))]), np.full(3, number)


@once
@THREADS
def test_every_order_gives_the_batch_of_each_number(rng, threads):
    batches = Batches(numbers, 12, threads)
    assert len(batches) == 12
    for number in [*range(12), *rng.integers(0, 12, 60), 0, 1, 0, 11, 5, 6, 5]:
        examples, same = batches[number]
        np.testing.assert_array_equal(examples, 10 * number + np.arange(3))
        np.testing.assert_array_equal(same, [number] * 3)
    with pytest.raises(IndexError, match=r"must lie in .0, 12.. Received: 12"):
        batches[12]


@once
@THREADS
def test_a_pass_computes_each_batch_once_and_keeps_few(threads):
    made, alive, most = [], [], 0

    def make(number, each):
        batch, same = numbers(number, each)
        made.append(number)
        alive.append(weakref.ref(batch))
        return batch, same

    batches = Batches(make, 50, threads)
    for passes in (1, 2, 3):
        for number, (_, same) in enumerate(batches):
            assert same[0] == number
            most = max(most, sum(reference() is not None for reference in alive))
        assert sorted(made) == sorted([*range(50)] * passes)
    assert most <= (2 + AHEAD if threads else 2)  # the last one, this one, and those ahead
    made.clear()
    for number in (8, 2, 5, 0):  # out of order, nothing is read ahead until the next one follows
        batches[number]
    assert {*made} <= {8, 2, 5, 0, 1}


def assert_threads_end():
    for _ in range(100):
        gc.collect()
        names = [thread.name for thread in threading.enumerate()]
        if not (left := [name for name in names if name.startswith(("batches", "examples"))]):
            return
        time.sleep(0.05)
    raise AssertionError(f"threads are left: {left}")


@pytest.mark.parametrize("way", ["iterator", "dataset", "cycle", "error", "fit"])
def test_threads_end_with_what_uses_them(way):
    assert_threads_end()

    def make(number, each):
        if way == "error" and number == 3:
            raise KeyError("three")
        return tuple(np.float32(x)[:, None] for x in numbers(number, each))

    batches = Batches(make, 40, threads=3)
    if way == "fit":
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(batches.as_dataset(), validation_data=batches.as_dataset(), verbose=0)
        del model
    elif way == "error":
        with pytest.raises(KeyError, match="three"):
            list(batches)
    else:
        kept = [iter(batches.as_dataset() if way == "dataset" else batches)]
        next(kept[0])
        if way == "cycle":
            kept.append(kept)
        del kept
    del batches
    assert_threads_end()


@once
@THREADS
def test_an_error_comes_in_its_turn_and_may_pass(threads):
    failing = {3}

    def make(number, each):
        [*each(lambda i: 1 // (number not in failing), range(2))]
        return numbers(number, each)

    batches = Batches(make, 6, threads)
    iterator = iter(batches)
    assert [int(next(iterator)[1][0]) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    failing.clear()
    assert [int(same[0]) for _, same in batches] == [*range(6)]


@pytest.mark.on("tensorflow")
@pytest.mark.parametrize("sizes", [(4, 4, 4), (4, 4, 1)])
def test_a_dataset_of_tensorflow_has_the_batches_and_their_number(sizes):
    def make(number, each):
        images = np.full((sizes[number], 2, 3), number, "float32")
        return (images, {"source": images[:, 0].astype("int32")}), images[:, 0, 0]

    size = 4 if sizes[-1] == 4 else None
    dataset = Batches(make, 3, 2, whole=size is not None).as_dataset()
    assert dataset.cardinality() == 3
    assert dataset.element_spec[0][0].shape.as_list() == [size, 2, 3]
    for _ in range(2):
        for number, batch in enumerate(dataset.as_numpy_iterator()):
            keras.tree.map_structure(np.testing.assert_array_equal, batch, make(number, map))
        assert number == 2


@pytest.mark.on("torch")
def test_fit_gets_tensors_with_the_types_and_numbers_of_keras(rng):
    types = ("float32", "float64", "int64", "int32", "uint8", "uint16", "bool")
    arrays = tuple(rng.integers(0, 200, (4, 3)).astype(name) for name in types)
    (placed,) = Batches(lambda number, each: arrays, 1).as_dataset()
    for array, tensor in zip(arrays, map(keras.ops.convert_to_tensor, placed)):
        expected = keras.ops.convert_to_tensor(array)
        assert tensor.dtype == expected.dtype and tensor.device == expected.device
        np.testing.assert_array_equal(to_numpy(tensor), array)


@once
@pytest.mark.parametrize("size", [1, 300])
def test_epochs_are_orders_of_their_own_however_they_are_read(size):
    index, numbers = shuffled(size, seed=-3), range(5 * size)
    epochs = np.array([index(i) for i in numbers]).reshape(5, size)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), [range(size)] * 5)
    assert len(np.unique(epochs, axis=0)) == min(size, 5)
    assert size == 1 or [shuffled(size, seed=4)(i) for i in numbers] != epochs.ravel().tolist()
    mixed = np.random.default_rng(0).permutation(5 * size)
    with ThreadPoolExecutor(4) as threads:
        again = [*threads.map(shuffled(size, seed=-3), mixed)]
    np.testing.assert_array_equal(again, epochs.ravel()[mixed])


@once
def test_balanced_order_draws_all_classes_equally_often():
    strata = ["b"] * 50 + ["a"] * 7 + ["c"]
    index, mixed = balanced(strata, seed=3), np.random.default_rng(0).permutation(150)
    drawn = np.array([index(i) for i in range(3 * 50)])
    with ThreadPoolExecutor(4) as threads:
        np.testing.assert_array_equal(list(threads.map(balanced(strata, 3), mixed)), drawn[mixed])
    classes = np.array(strata)[drawn].reshape(-1, 3)
    np.testing.assert_array_equal(np.sort(classes, axis=1), [["a", "b", "c"]] * 50)
    assert len({tuple(row) for row in classes}) == 6  # in orders of their own
    often = drawn[np.array(strata)[drawn] == "b"]
    assert sorted(often) == list(range(50))  # an epoch of the largest class
    rare = drawn[np.array(strata)[drawn] == "a"][:49].reshape(7, 7)
    np.testing.assert_array_equal(np.sort(rare, axis=1), [list(range(50, 57))] * 7)
    assert len(np.unique(rare, axis=0)) == 7


SIZE = {"image_size": (3, 3), "preprocessing": Preprocessing()}
COUNT, CLASSES = 23, 4


@pytest.fixture
def split(rng):
    images = rng.integers(0, 256, (COUNT, 3, 3, 1), dtype="uint8")
    return data.from_arrays(images, rng.integers(0, CLASSES, COUNT))


def flat(images):
    return np.reshape(images, (len(images), -1))


def assert_equal(batches, expected):
    for (features, targets), (images, labels) in zip(batches, expected, strict=True):
        np.testing.assert_array_equal(features, flat(images))
        np.testing.assert_array_equal(targets, labels)


@once
@pytest.mark.parametrize("start", [0, 7])
def test_batches_of_features_have_the_order_of_the_pictures(split, tmp_path, start):
    """Over several epochs, whose ends are within batches; held-out ones have each picture once."""
    sizes = []
    run = lambda images: sizes.append(len(images)) or flat(images)
    data.write_features(tmp_path, run, data.eval_batches(split, batch=5, **SIZE), COUNT)
    assert sizes == [5] * 5  # the last batch has 3 pictures, and is computed as the others are
    options = {"batch": 6, "seed": 3, "num_classes": CLASSES}
    steps = {"start_step": start, "total_steps": 13, "augment_config": AugmentConfig()}
    batches = data.feature_batches(tmp_path, start=start, stop=13, **options)
    assert batches[0][0].shape == (6, 9)  # one shape to compile for
    assert_equal(batches, data.train_batches(split, **steps, **SIZE, **options))
    pictures = data.eval_batches(split, batch=10, num_classes=CLASSES, **SIZE)
    assert_equal(data.feature_batches(tmp_path, batch=10, num_classes=CLASSES), pictures)


@once
def test_features_that_are_not_finite_are_refused(split, tmp_path):
    scales = iter((1.0, 0.0, 1.0))
    run = lambda images: flat(images) / next(scales)
    batches = data.eval_batches(split, batch=10, **SIZE)
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="pictures 10 to 19. C"):
        data.write_features(tmp_path, run, batches, COUNT)


@pytest.mark.nightly_on("jax")  # beside TensorFlow, torch shows what Keras' layers do
def test_images_of_keras_cv_are_the_same_in_any_order_and_thread(rng):
    image = rng.integers(0, 256, (16, 12, 3), dtype="uint8")
    options = {"randaugment_layers": 1, "randaugment_magnitude": 15, "library": "keras_cv"}
    pixels = Preprocessing(mean=(0.0,), std=(1 / 255,))
    change = Augmentation(AugmentConfig(**options), (16, 12), pixels)
    example = lambda i: change.example(as_picture(image), 0, generator(5, i))[0]
    with ThreadPoolExecutor(4) as threads:  # which all wait for the first trace
        actual = np.array([*threads.map(example, range(40))])
    np.testing.assert_array_equal(actual, [*map(example, range(40))])
    assert actual.min() >= 0 and actual.max() <= 255 and actual.dtype == np.float32
    assert len({x.tobytes() for x in actual}) > 20
