"""Models whose weights have shapes but no values."""

import concurrent.futures
import random
from collections.abc import Callable

import keras


def build_without_values(build: Callable[[], keras.Model]) -> keras.Model:
    """Calls `build` such that the weights of its model have shapes but no values.

    Neither the names that Keras gives next nor the seeds that it draws next depend on this call.

    Args:
        build: A function without arguments that returns a model.

    Returns:
        The model, which takes no memory for weights and computes nothing.
    """

    def without_values():
        with keras.StatelessScope(initialize_variables=False):
            return build()

    # Keras keeps a list of variables without values for each thread, and gives them values at the
    # end of the thread's next stateless scope. The thread that ends here has no next scope.
    state = random.getstate()  # of which Keras draws the seeds of layers
    try:
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            return thread.submit(without_values).result()
    finally:
        random.setstate(state)
