"""Random numbers and orders of images follow from keys alone, and are spread evenly."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from vit_keras.data.batches import EXAMPLE, PAIR, balanced, generator, shuffled

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((5, EXAMPLE, 1), (5, PAIR, 1)),
        ((5, 0, 1), (5, 2**32)),  # whose words of 32 bits are the same
        ((5,), (5, 0)),
        ((), (0,)),
        ((1, 2), (2, 1)),
        ((-1,), (2**32 - 1,)),
        ((-1, 3), (2**63 - 1, 3)),
    ],
)
def test_other_keys_have_other_streams(one, other):
    draw = lambda key: generator(*key).random(2000)
    np.testing.assert_array_equal(draw(one), draw(np.array(one, "int64")))
    assert abs(np.corrcoef(draw(one), draw(other))[0, 1]) < 5 / np.sqrt(2000)


@pytest.mark.parametrize("size", [1, 7, 300])
def test_epochs_are_orders_of_their_own_however_they_are_read(size):
    index, numbers = shuffled(size, seed=-3), range(5 * size)
    epochs = np.array([index(i) for i in numbers]).reshape(5, size)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), [range(size)] * 5)
    assert len(np.unique(epochs, axis=0)) == (1 if size == 1 else 5)
    assert size == 1 or [shuffled(size, seed=4)(i) for i in numbers] != epochs.ravel().tolist()
    again = shuffled(size, seed=-3)
    mixed = np.random.default_rng(0).permutation(5 * size)
    with ThreadPoolExecutor(4) as threads:
        np.testing.assert_array_equal(list(threads.map(again, mixed)), epochs.ravel()[mixed])


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


def test_orders_of_many_epochs_take_no_more_memory_than_those_of_two():
    index = balanced([0] * 5000 + [1] * 3000, seed=0)
    ends = [index(i) for i in (0, 1, 10_000, 10_001)]
    tracemalloc.start()
    ends += [index(i * 10_000 + k) for i in range(40) for k in (0, 1)]
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(ends)) > 20 and largest < 8 * 8000
