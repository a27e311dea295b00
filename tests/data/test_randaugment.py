"""RandAugment of KerasCV follows from a generator alone, in any thread."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from vit_keras.data.batches import generator
from vit_keras.data.policies import keras_cv

pytestmark = pytest.mark.nightly_on("jax")  # beside TensorFlow, torch shows what Keras' layers do


def test_no_operation_keeps_a_state():
    """A resumed run therefore sees the same images."""
    specs = tf.TensorSpec((16, 12, 3)), tf.TensorSpec((2,), tf.int64)
    (apply,) = (c.cell_contents for c in keras_cv(2, 15).__closure__ if callable(c.cell_contents))
    graph = apply.get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    random = {node.op for node in nodes if "Random" in node.op or "Variable" in node.op}
    assert random and all(op.startswith("Stateless") for op in random)


def test_images_are_the_same_in_any_order_and_thread(rng):
    image = rng.uniform(0, 255, (16, 12, 3)).astype("float32")
    one, other = (keras_cv(1, 15) for _ in range(2))
    expected = [one(image, generator(5, i)) for i in range(40)]
    with ThreadPoolExecutor(4) as threads:  # which all wait for the first trace
        actual = list(threads.map(lambda i: other(image, generator(5, i)), range(40)))
    np.testing.assert_array_equal(actual, expected)
    assert np.min(actual) >= 0 and np.max(actual) <= 255
    assert len({x.tobytes() for x in actual}) > 20
    assert actual[0].dtype == np.float32
    actual[0] += 1  # it may be changed
