"""Labels that are computed from the features of a TensorFlow Datasets example."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Label:
    """A rule that computes the class of an example.

    Attributes:
        reads: The features that the rule needs, as `tfds.decode.PartialDecoding` takes them.
        derive: Maps the decoded features to a scalar integer.
    """

    reads: dict
    derive: Callable[[dict], tf.Tensor]


def feature(name: str = "label") -> Label:
    """Takes a feature as the class."""
    return Label({name: True}, lambda example: example[name])


def grouped(name: str, classes: int, groups: int) -> Label:
    """Merges neighboring classes: floor(class · groups / classes)."""
    return Label({name: True}, lambda example: tf.cast(example[name], tf.int32) * groups // classes)


def _count(example):
    return tf.size(example["objects"]["size"]) - 3  # there are 3 to 10 objects


def _closest_object(example):
    return interval(
        tf.reduce_min(example["objects"]["pixel_coords"][:, 2]), (0, 8, 8.5, 9, 9.5, 10, 100)
    )


def _closest_vehicle(example):
    """Types 0 to 2 are cars, vans, and trucks; the last class means that there is no vehicle."""
    objects = example["objects"]
    distances = tf.boolean_mask(objects["location"][:, 2], objects["type"] < 3)
    nearest = tf.reduce_min(tf.concat([distances, [1000.0]], axis=0))
    return interval(nearest, (-100, 8, 20, 999))


def interval(value: tf.Tensor, bounds: tuple[float, ...]) -> tf.Tensor:
    """Returns the index of the last of the ascending `bounds` that is below `value`."""
    above = tf.constant(bounds, tf.float32) < tf.cast(value, tf.float32)
    return tf.reduce_sum(tf.cast(above, tf.int32)) - 1


COUNT = Label({"objects": {"size": True}}, _count)
CLOSEST_OBJECT = Label({"objects": {"pixel_coords": True}}, _closest_object)
CLOSEST_VEHICLE = Label({"objects": {"location": True, "type": True}}, _closest_vehicle)
