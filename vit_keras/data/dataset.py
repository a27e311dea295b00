"""Data sets: their splits by name, slices and sums of these, and the names of the classes."""

import dataclasses
import functools
import re
from typing import Any

import numpy as np

from vit_keras.data.origin import UnreadableImages
from vit_keras.data.splits import Split, joined

VALIDATION = ("validation", "val", "valid", "dev")  # names of one thing
HELD_OUT = ("test", *VALIDATION)  # "test" stands for the first that exists
OTHER_NAMES = {"training": "train", "trainset": "train", "testing": "test", "testset": "test"}
SLICE = re.compile(r"([^\[\]]+)(?:\[(-?[\d.]+%?)?:(-?[\d.]+%?)?\])?")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set of labeled images.

    Attributes:
        name: The name, as `load` takes it.
        splits: The splits by name, such as "train" and "test".
        class_names: The names of the classes, labels or numbers, in the order of the outputs.
        unreadable: Collects the images that cannot be read.
        held_out_by: Says how the held-out images were chosen, if not by the data set itself.
        kind: What the labels are: a name in `vit_keras.tasks.KINDS`.
        notes: What was found or guessed about the files, a sentence each.
        warnings: What may spoil a result, a sentence each.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> len(dataset.split("train[:90%]")), dataset.class_names[:3]
        (1293, ('0', '1', '2'))
    """

    name: str
    splits: dict[str, Split]
    class_names: tuple[str, ...]
    unreadable: UnreadableImages = dataclasses.field(default_factory=UnreadableImages)
    held_out_by: str = ""
    kind: str = "classes"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def split(self, name: str) -> Split:
        """Returns a split, a slice of one, or a sum of several.

        Args:
            name: `train`, `train[:90%]`, `train[10%:]`, `train[5:20]`, or `train+validation`. In a
                data set without a split "test", `test` stands for "validation", "val", "valid", or
                "dev", and each of these four stands for the others.

        Raises:
            ValueError: If there is no such split, or if a slice holds no images.
        """
        if "+" in name:
            return functools.reduce(joined, map(self.split, name.split("+")))
        match = SLICE.fullmatch(name)
        base = match and base_split(match[1], self.splits)
        if match is None or base is None:
            raise ValueError(self._unknown_split(name, match))
        split, (start, stop) = self.splits[base], match.groups()[1:]
        if start is None and stop is None:
            return split
        indices = np.arange(len(split))[_bound(start, len(split)) : _bound(stop, len(split))]
        if len(indices) == 0:
            raise ValueError(
                f"A slice must hold images. Received: split={name!r} of {len(split)} images"
            )
        return split.part(indices)

    def _unknown_split(self, name, match):
        message = (
            f"`split` of {self.name!r} must be one of {', '.join(map(repr, self.splits))}, or a "
            f"slice such as train[:90%]. Received: split={name!r}"
        )
        if not match or match[1] not in HELD_OUT:
            return message
        held_out = [split for split in HELD_OUT if split in self.splits]
        if held_out:
            return f"{message}. Choose the held-out images with --data.test_split {held_out[0]}"
        return (
            f"{message}. This data set has no held-out images: set data.test_percent above 0, add "
            f"a split called {' or '.join(HELD_OUT)}, or hold out a slice with "
            "--data.train_split 'train[:90%]' --data.test_split 'train[90%:]'"
        )

    @property
    def fingerprint(self) -> dict[str, Any]:
        """A summary that shows whether the data have changed: see `fingerprints.fingerprint`."""
        from vit_keras.data.fingerprints import fingerprint

        return fingerprint(self)


def split_name(text: str) -> str:
    """A name of a split as it is used here, such as "train" for "Training"; others stay."""
    name = text.strip().casefold()
    name = OTHER_NAMES.get(name, name)
    return name if name in ("train", *HELD_OUT) else text


def base_split(name: str, splits) -> str | None:
    """Returns the one of `splits` that `name` means, or None."""
    names = HELD_OUT if name == "test" else VALIDATION if name in VALIDATION else ()
    return next((n for n in (name, *names) if n in splits), None)


def without_held_out(splits, test_split: str) -> bool:
    """Whether `splits` hold nothing to judge a run on: neither a held-out split nor `test_split`.

    A `test_split` that is a slice of the training images holds these out itself.
    """
    names = [part.split("[")[0] for part in test_split.split("+")]
    return not set(splits) & set(HELD_OUT) and not set(names) & set(splits)


def _bound(text, size):
    if text is None:
        return None
    return round(float(text[:-1]) * size / 100) if text.endswith("%") else int(text)
