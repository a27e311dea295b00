"""How the class of a TFDS example is found, where it is computed from the features."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Label:
    """How the class of a TFDS example is found.

    Attributes:
        reads: the features that it is computed from, as TFDS' `PartialDecoding` takes them.
        derive: the decoded features -> a scalar integer.
    """

    reads: dict
    derive: Callable[[dict], tf.Tensor]


def feature(name: str = "label") -> Label:
    """The class is a feature of its own."""
    return Label({name: True}, lambda example: example[name])


def grouped(name: str, classes: int, groups: int) -> Label:
    """Neighbouring classes become one: floor(class · groups / classes)."""
    return Label({name: True}, lambda example: tf.cast(example[name], tf.int32) * groups // classes)


def _count(example):
    return tf.size(example["objects"]["size"]) - 3  # 3 to 10 objects


def _closest_object(example):
    return interval(
        tf.reduce_min(example["objects"]["pixel_coords"][:, 2]), (0, 8, 8.5, 9, 9.5, 10, 100)
    )


def _closest_vehicle(example):
    """Cars, vans and trucks are types 0 to 2; the last class is no vehicle."""
    objects = example["objects"]
    distances = tf.boolean_mask(objects["location"][:, 2], objects["type"] < 3)
    nearest = tf.reduce_min(tf.concat([distances, [1000.0]], axis=0))
    return interval(nearest, (-100, 8, 20, 999))


def interval(value: tf.Tensor, bounds: tuple[float, ...]) -> tf.Tensor:
    """The index of the last of the ascending `bounds` that `value` lies above."""
    above = tf.constant(bounds, tf.float32) < tf.cast(value, tf.float32)
    return tf.reduce_sum(tf.cast(above, tf.int32)) - 1


COUNT = Label({"objects": {"size": True}}, _count)
CLOSEST_OBJECT = Label({"objects": {"pixel_coords": True}}, _closest_object)
CLOSEST_VEHICLE = Label({"objects": {"location": True, "type": True}}, _closest_vehicle)
