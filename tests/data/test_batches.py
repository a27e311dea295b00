"""Batches by number: which are computed, which are kept, and when their threads end."""

import gc
import threading
import time
import weakref

import keras
import numpy as np
import pytest

from tests.helpers import to_numpy
from vit_keras.data.batches import AHEAD, Batches

THREADS = pytest.mark.parametrize("threads", [0, 1, 4])
once = pytest.mark.once


def numbers(number, each):
    """A batch that tells its number, whose examples are computed by `each`."""
    return np.array([*each(lambda i: 10 * number + i, range(3))]), np.full(3, number)


@once
@THREADS
def test_every_order_gives_the_batch_of_each_number(rng, threads):
    batches = Batches(numbers, 12, threads)
    for number in [*range(12), *rng.integers(0, 12, 60), 0, 1, 0, 11, 5, 6, 5]:
        examples, same = batches[number]
        np.testing.assert_array_equal(examples, 10 * number + np.arange(3))
        np.testing.assert_array_equal(same, [number] * 3)
    assert len(batches) == 12
    for outside in (-1, 12):
        with pytest.raises(IndexError, match=f"There are 12 batches. Received: number {outside}"):
            batches[outside]


@once
@THREADS
def test_a_pass_computes_each_batch_once(threads):
    made = []
    batches = Batches(
        lambda number, each: (made.append(number), numbers(number, each))[1], 9, threads
    )
    for passes in (1, 2, 3):
        assert [int(same[0]) for _, same in batches] == [*range(9)]
        assert sorted(made) == sorted([*range(9)] * passes)
    some = [8, 2, 5, 0]  # out of order, nothing is read ahead until the next number follows
    made.clear()
    for number in some:
        batches[number]
    assert set(made) <= {*some, 1, 2}


@once
@THREADS
def test_few_batches_are_in_memory(threads):
    alive = []

    def make(number, each):
        batch = np.concatenate([*each(lambda i: np.full(1000, i), range(4))])
        alive.append(weakref.ref(batch))
        return (batch,)

    most = 0
    for _ in Batches(make, 50, threads):
        most = max(most, sum(reference() is not None for reference in alive))
    assert len(alive) == 50
    assert most <= (2 + AHEAD if threads else 2)  # the last one, this one, and those ahead


def our_threads():
    names = ("batches", "examples")
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]


def assert_threads_end():
    for _ in range(100):
        gc.collect()
        if not our_threads():
            return
        time.sleep(0.05)
    raise AssertionError(f"threads are left: {our_threads()}")


@pytest.mark.parametrize("way", ["iterator", "dataset", "cycle", "error", "fit"])
def test_threads_end_with_what_uses_them(way):
    assert_threads_end()

    def make(number, each):
        if way == "error" and number == 3:
            raise KeyError("three")
        return tuple(map(np.float32, numbers(number, each)))

    batches = Batches(make, 40, threads=3)
    if way == "fit":
        model = keras.Sequential([keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        columns = Batches(lambda n, each: tuple(x[:, None] for x in make(n, each)), 40, threads=3)
        model.fit(columns.as_dataset(), validation_data=columns.as_dataset(), verbose=0)
        del model, columns
    elif way == "dataset":
        iterator = iter(batches.as_dataset())
        next(iterator)
        del iterator
    elif way == "error":
        with pytest.raises(KeyError, match="three"):
            list(batches)
    else:
        cycle = [iter(batches)]
        next(cycle[0])
        if way == "cycle":
            cycle.append(cycle)
        del cycle
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
@pytest.mark.parametrize("whole", [True, False])
def test_a_dataset_of_tensorflow_has_the_batches_and_their_number(whole):
    import tensorflow as tf

    sizes = [4, 4, 4] if whole else [4, 4, 1]

    def make(number, each):
        images = np.full((sizes[number], 2, 3), number, "float32")
        return (images, {"source": images[:, 0].astype("int32")}), images[:, 0, 0]

    batches = Batches(make, 3, 2, whole=whole)
    dataset = batches.as_dataset()
    assert isinstance(dataset, tf.data.Dataset) and dataset.cardinality() == 3
    size = 4 if whole else None
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
