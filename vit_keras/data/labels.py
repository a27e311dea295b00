"""Labels that are computed from the features of a TensorFlow Datasets example."""

import dataclasses
from collections.abc import Callable

import numpy as np


@dataclasses.dataclass(frozen=True)
class Label:
    """A rule that computes the class of an example.

    Attributes:
        reads: The features that the rule needs, as `tfds.decode.PartialDecoding` takes them.
        derive: Maps the decoded features to a scalar integer.
    """

    reads: dict
    derive: Callable[[dict], int]


def feature(name: str = "label") -> Label:
    """Takes a feature as the class."""
    return Label({name: True}, lambda example: example[name])


def grouped(name: str, classes: int, groups: int) -> Label:
    """Merges neighboring classes: floor(class · groups / classes)."""
    return Label({name: True}, lambda example: int(example[name]) * groups // classes)


def _count(example):
    return len(example["objects"]["size"]) - 3  # there are 3 to 10 objects


def _closest_object(example):
    nearest = min(place[2] for place in example["objects"]["pixel_coords"])
    return interval(nearest, (0, 8, 8.5, 9, 9.5, 10, 100))


def _closest_vehicle(example):
    """Types 0 to 2 are cars, vans, and trucks; the last class means that there is no vehicle."""
    objects = zip(example["objects"]["location"], example["objects"]["type"])
    nearest = min([1000.0, *(place[2] for place, kind in objects if kind < 3)])
    return interval(nearest, (-100, 8, 20, 999))


def interval(value: float, bounds: tuple[float, ...]) -> int:
    """Returns the index of the last of the ascending `bounds` that is below `value`."""
    return int(np.sum(np.asarray(bounds, "float32") < value)) - 1


COUNT = Label({"objects": {"size": True}}, _count)
CLOSEST_OBJECT = Label({"objects": {"pixel_coords": True}}, _closest_object)
CLOSEST_VEHICLE = Label({"objects": {"location": True, "type": True}}, _closest_vehicle)
