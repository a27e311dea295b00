"""Results keep their order, few are kept, and threads end with the reader."""

import itertools
import threading

import pytest

from vit_keras.support import machine
from vit_keras.support.machine import read_ahead

pytestmark = pytest.mark.once


@pytest.fixture(autouse=True)
def two_cores(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 2)


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("read_ahead")]


def test_results_come_in_order_though_a_later_one_is_ready_first():
    second_is_done = threading.Event()

    def function(item):
        if item == 0:
            assert second_is_done.wait(60)
        if item == 1:
            second_is_done.set()
        return item**2

    assert list(read_ahead(function, range(30), ahead=4)) == [k**2 for k in range(30)]
    assert list(read_ahead(function, [], ahead=4)) == []
    assert threads() == []


def test_few_items_are_taken_in_advance():
    taken = []
    results = read_ahead(str, (taken.append(k) or k for k in itertools.count()), ahead=5)
    assert taken == []
    for done in range(1, 20):
        assert next(results) == str(done - 1) and len(taken) <= done + 5
    results.close()
    assert threads() == []


def test_an_error_comes_in_its_place():
    def function(item):
        if item == 3:
            raise ValueError("item 3")
        return item

    results = read_ahead(function, itertools.count(), ahead=8)
    assert list(itertools.islice(results, 3)) == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(results)
    assert threads() == []
