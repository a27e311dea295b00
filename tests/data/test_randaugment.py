"""RandAugment of Keras and KerasCV follows from a generator alone, in any thread."""

import sys
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

from vit_keras.data.batches import generator
from vit_keras.data.randaugment import LIBRARIES, Equalization, on_tensorflow, randaugment

pytestmark = pytest.mark.nightly_on("jax")  # beside TensorFlow, torch shows what Keras' layers do


@pytest.mark.parametrize("library", LIBRARIES)
def test_no_operation_keeps_a_state(library):
    """A resumed run therefore sees the same images."""
    specs = tf.TensorSpec((16, 12, 3)), tf.TensorSpec((2,), tf.int64)
    made = tf.function(LIBRARIES[library](2, 0.5), autograph=False)
    graph = made.get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    random = {node.op for node in nodes if "Random" in node.op or "Variable" in node.op}
    assert random and all(op.startswith("Stateless") for op in random)


@pytest.mark.parametrize("library", LIBRARIES)
def test_images_are_the_same_in_any_order_and_thread(rng, library):
    image = rng.uniform(0, 255, (16, 12, 3)).astype("float32")
    one, other = (randaugment(library, 1, 15) for _ in range(2))
    expected = [one(image, generator(5, i)) for i in range(40)]
    with ThreadPoolExecutor(4) as threads:  # which all wait for the first trace
        actual = list(threads.map(lambda i: other(image, generator(5, i)), range(40)))
    np.testing.assert_array_equal(actual, expected)
    assert np.min(actual) >= 0 and np.max(actual) <= 255
    assert len({x.tobytes() for x in actual}) > 20
    assert actual[0].dtype == np.float32
    actual[0] += 1  # it may be changed


def test_equalization_is_keras_own(rng):
    image = tf.constant(rng.integers(30, 200, (1, 9, 7, 3)).astype("float32"))
    ours, theirs = Equalization((0, 255)), keras.layers.Equalization((0, 255))
    with on_tensorflow(ours):
        actual = tf.function(lambda x: ours.transform_images(x, None), autograph=False)(image)
    np.testing.assert_array_equal(actual, keras.ops.convert_to_numpy(theirs(image.numpy())))


@pytest.mark.parametrize(
    ("library", "package", "message"),
    [
        ("keras_cv", "keras_cv", r"`augment.library: keras_cv` needs keras-cv: .*\[keras-cv\]"),
        ("keras_cv", "tensorflow", r"keras or keras_cv needs tensorflow: .*\[tensorflow\]"),
        ("keras", "tensorflow", r"keras or keras_cv needs tensorflow: .*\[tensorflow\]"),
    ],
)
def test_missing_packages_are_named_with_their_extra(monkeypatch, library, package, message):
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=message):
        randaugment(library, 2, 10)
