"""Reads ahead in threads, in order and in constant memory."""

import collections
import itertools
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from vit_keras.support import machine

Item = TypeVar("Item")
Result = TypeVar("Result")
MOST_THREADS = 8  # each may hold a large photograph


def read_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], ahead: int
) -> Generator[Result, None, None]:
    """Yields `function(item)` for each item in order, computed in threads before it is needed.

    Args:
        function: What the threads call. An exception is raised here, in place of the result.
        items: The arguments, taken one by one.
        ahead: The number of results to compute in advance, and the most to keep.

    Example:
        ```python
        for picture in read_ahead(read, paths, ahead=64):
            ...
        ```
    """
    items = iter(items)
    threads = ThreadPoolExecutor(min(machine.cores(), MOST_THREADS), "read_ahead")
    waiting: collections.deque[Future[Result]] = collections.deque()
    begin = lambda count: waiting.extend(
        threads.submit(function, item) for item in itertools.islice(items, count)
    )
    try:
        begin(ahead)
        while waiting:
            result = waiting.popleft().result()
            begin(1)
            yield result
    finally:
        threads.shutdown(cancel_futures=True)
