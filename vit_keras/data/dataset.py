"""Data sets: labeled images by index, their splits by name, and the origin of the pictures."""

import contextlib
import dataclasses
import functools
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from vit_keras.data.cropping import Picture, as_array, sides_of
from vit_keras.data.labels import LABEL_KINDS, Labels
from vit_keras.data.picture_files import decode, unreadable_message


class UnreadableImageError(ValueError):
    """An image cannot be read and must not be replaced; the message names the image."""


class UnreachableError(OSError):
    """Repeated attempts to read a file failed; its pictures must not be replaced."""


class WholeFault(ValueError):
    """An image cannot be read; the message names it."""


class UnreadableImages:
    """Collects the pictures that cannot be read.

    Attributes:
        stop: Whether the first such picture stops the run.
        names: The names of the unreadable pictures; the next picture replaces each.
    """

    def __init__(self, stop: bool = True):
        self.stop = stop
        self.names: set[str] = set()
        self.error: UnreadableImageError | None = None

    def add(self, name: str, reason: str) -> None:
        """Adds a picture that cannot be read.

        Raises:
            UnreadableImageError: If the first such picture stops the run, with the reason.
        """
        if self.stop:
            self.fail(f"{reason}. Repair or remove it, or set data.on_corrupt to skip")
        self.names.add(name)

    def fail(self, message: str) -> NoReturn:
        """Raises an `UnreadableImageError` and keeps it for `reading`."""
        self.error = UnreadableImageError(message)
        raise self.error

    @contextlib.contextmanager
    def reading(self):
        """Raises the `UnreadableImageError` itself when `fit` reads batches inside the block.

        TensorFlow would raise its own error, with a traceback in the message.
        """
        self.error = None
        try:
            yield
        except Exception as error:
            if self.error is None or error is self.error:
                raise
            raise self.error from None

    def report(self) -> str:
        """Returns a line that counts and names the pictures."""
        printed = [name if name.isprintable() else json.dumps(name) for name in sorted(self.names)]
        return f"{len(printed)} unreadable images replaced: {', '.join(printed)}"


@dataclasses.dataclass(frozen=True)
class Source:
    """The N pictures of a data set, from a folder, a table, shards, a hub or memory.

    Attributes:
        name: The name of the data set, as `load` takes it.
        labels: The labels of the pictures.
        read: Returns the bytes of the picture at an index, or its pixels `(H, W, C)`.
        splits: The indices of each split's pictures, in order.
        name_of: Maps an index to the name of a picture, such as its path.
        label_of: Returns a mask or boxes at an index, given the picture's height and width; None
            if a label is a row of `labels.values`.
        files: Returns the names and the paths of the files that hold the pictures at some
            indices; None for pictures in memory.
        groups: The group of each picture, such as a patient, or an empty text; None without groups.
        sides: The height and width in pixels given in annotations, `(N, 2)`, with 0 for unknown
            ones; None without annotations.
        keys: Texts that decide which pictures are held out; None to use the pictures' numbers.
        notes: What was found or guessed, one sentence each.
        warnings: What may spoil a result, one sentence each.
    """

    name: str
    labels: Labels
    read: Callable[[int], Any]
    splits: dict[str, np.ndarray]
    name_of: Callable[[int], str] = "picture {}".format
    label_of: Callable[[int, tuple[int, int]], np.ndarray] | None = None
    files: Callable[[np.ndarray], list[tuple[str, str]]] | None = None
    groups: Sequence[str] | None = None
    sides: np.ndarray | None = None
    keys: Sequence[str] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @functools.cached_property
    def values(self) -> np.ndarray:
        """The values of the labels; for masks, the files are read on first use."""
        values = self.labels.values
        return values() if callable(values) else values


def in_sequence(name: str, sizes: dict[str, int]) -> dict[str, Any]:
    """Returns `splits` and `name_of` for a source whose splits follow one another."""
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist()))

    def name_of(index):
        split = [key for key, start in starts.items() if start <= index and sizes[key]][-1]
        return f"{name} {split}[{index - starts[split]}]"

    splits = {split: np.arange(start, start + sizes[split]) for split, start in starts.items()}
    return {"splits": splits, "name_of": name_of}


@dataclasses.dataclass(eq=False)
class Split:
    """Labeled images in a fixed order.

    Attributes:
        source: All pictures of a data set.
        indices: The indices of the split's pictures in the source, `(N,)`.
        channels: The number of channels of encoded pictures; None keeps all channels of each file.
        levels, bands: As in `read_as`.
        unreadable: Collects the images that cannot be read.

    Example:
        >>> split = data.load("digits", channels=1).split("test")
        >>> image, label = split.example(0)  # (8, 8, 1) and a scalar
        >>> len(split), len(split.part([5, 7, 9]))
        (360, 3)
    """

    source: Source
    indices: np.ndarray
    channels: int | None = None
    levels: float | None = None
    bands: tuple[int, ...] = ()
    unreadable: UnreadableImages = dataclasses.field(default_factory=UnreadableImages)

    def __len__(self):
        return len(self.indices)

    @functools.cached_property
    def labels(self) -> np.ndarray:
        """The class of each image, `(N,)` int32; or its labels or numbers, `(N, K)` float32.

        For masks and boxes, the classes in each picture, `(N, K)`.
        """
        return self.source.values[self.indices]

    @property
    def labels_are_known(self) -> bool:
        """Whether `labels` are known without reading the mask files."""
        return not callable(self.source.labels.values)

    @property
    def groups(self) -> list[str] | None:
        """The group of each image; a group is held out as a whole. None without groups."""
        groups = self.source.groups
        return [groups[i] for i in self.indices] if groups else None

    def name(self, index: int) -> str:
        """Returns the name of the picture at an index, such as its path."""
        return self.source.name_of(int(self.indices[index]))

    def read_as(self, levels: float | None, bands: Sequence[int] = ()) -> "Split":
        """Returns the same images with a model's levels and channels.

        Args:
            levels: The level of white, as in `Preprocessing`; None keeps the levels of each file.
            bands: The channels of a file in the model's order, counted from 1; empty keeps the
                earlier choice.
        """
        return dataclasses.replace(self, levels=levels, bands=tuple(bands) or self.bands)

    def read(self, index: int) -> np.ndarray:
        """Returns the image at an index, `(H, W, C)`."""
        return self.example(index)[0]

    def encoded(self, index: int) -> bytes | np.ndarray:
        """Returns the bytes of the picture at an index; for an image in memory, its pixels."""
        return self.source.read(int(self.indices[index]))

    def label(self, index: int, sides: tuple[int, int]) -> np.ndarray:
        """Returns the label of the picture at an index, given the picture's height and width."""
        number, label_of = int(self.indices[index]), self.source.label_of
        return label_of(number, sides) if label_of else self.source.values[number]

    def example(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns an image and its label; the next readable image replaces an unreadable one.

        Returns:
            The image, `(H, W, C)` of uint8, uint16, or float32, and the label: a scalar int32,
            `(K,)` float32, a mask `(H, W)` uint8, or boxes `(M, 6)` float32: see `with_boxes`.

        Raises:
            UnreadableImageError: If an unreadable image stops the run, or if none is readable.
        """
        picture, label = self.picture(index)
        return as_array(picture), label

    def picture(self, index: int) -> tuple[Picture, np.ndarray]:
        """Does what `example` does, but returns the image as `cropping` describes it."""
        for step in range(len(self)):
            place = (index + step) % len(self) if step else index
            try:
                return self.decoded(place)
            except (ImportError, MemoryError):
                raise
            except UnreachableError as error:  # no other picture may replace it
                self.unreadable.fail(str(error))
            except Exception as error:  # file libraries raise their own errors
                self.unreadable.add(self.name(place), self.fault(place, error))
        self.unreadable.fail(
            f"At least one image must be readable. Received: {len(self)} unreadable images, such "
            f"as {self.name(index)}"
        )

    def replacement(self, index: int) -> int:
        """Returns the index of the picture that was read: the next one if one was unreadable."""
        order = ((index + step) % len(self) for step in range(len(self)))
        return next((i for i in order if self.name(i) not in self.unreadable.names), index)

    def decoded(self, index: int) -> tuple[Picture, np.ndarray]:
        """Does what `picture` does, but raises errors for unreadable images."""
        picture = decode(self.encoded(index), self.channels, self.levels, self.bands)
        return picture, self.label(index, sides_of(picture))

    def part(self, indices: Sequence[int] | np.ndarray) -> "Split":
        """Returns the images at `indices`, in that order, without copying."""
        return dataclasses.replace(self, indices=self.indices[np.asarray(indices, "int64")])

    def fault(self, index: int, error: Exception) -> str:
        """Says which image cannot be read, and why."""
        if isinstance(error, WholeFault):
            return str(error)
        return unreadable_message(repr(self.name(index)), str(error) or type(error).__name__)


def as_labels(labels) -> np.ndarray:
    """Returns classes `(N,)` as int32, and labels or numbers `(N, K)` as float32."""
    labels = np.asarray(labels)
    return labels.astype("int32" if labels.ndim == 1 else "float32")


def from_arrays(images: np.ndarray, labels: np.ndarray) -> Split:
    """Makes a split of images in memory.

    Args:
        images: `(N, H, W, C)` of uint8, uint16, or floats.
        labels: `(N,)` integers, or `(N, K)` floats.

    Example:
        >>> images = np.zeros((6, 32, 32, 3), "uint8")
        >>> from_arrays(images, [0, 1, 0, 1, 0, 1]).part([1, 2]).labels
        array([1, 0], dtype=int32)
    """
    known = Labels("classes", (), as_labels(labels))
    source = Source("arrays", known, lambda i: np.asarray(images[i]), {})
    return Split(source, np.arange(len(labels)))


VALIDATION = ("validation", "val", "valid", "dev")  # names of the same split
HELD_OUT = ("test", *VALIDATION)  # "test" means the first that exists
SPLITS = ("train", *HELD_OUT)
OTHER_NAMES = {"training": "train", "trainset": "train", "testing": "test", "testset": "test"}
BOUND = r"(-?\d+(?:(?:\.\d+)?%)?)?"  # a number of images, or a percentage, perhaps with decimals
SLICE = re.compile(rf"([^\[\]]+)(?:\[{BOUND}:{BOUND}\])?")


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A data set of labeled images.

    Attributes:
        name: The name, as `load` takes it.
        splits: The splits by name, such as "train" and "test".
        class_names: The names of the classes, labels or numbers, in the order of the outputs.
        unreadable: Collects the images that cannot be read.
        kind: What the labels are: a name in `vit_keras.support.tasks.KINDS`.
        notes: How images were held out, if not by the data set itself, and what was found or
            guessed about the files, one sentence each.
        warnings: What may spoil a result, one sentence each.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> len(dataset.split("train[:90%]")), dataset.class_names[:3]
        (1293, ('0', '1', '2'))
    """

    name: str
    splits: dict[str, Split]
    class_names: tuple[str, ...]
    unreadable: UnreadableImages = dataclasses.field(default_factory=UnreadableImages)
    kind: str = "classes"
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def split(self, name: str) -> Split:
        """Returns a split, a slice of one, or a sum of several.

        Args:
            name: `train`, `train[:90%]`, `train[10%:]`, `train[5:20]`, or `train+validation`. In a
                data set without a "test" split, `test` stands for "validation", "val", "valid", or
                "dev", and each of these four names for the other three.

        Raises:
            ValueError: If there is no such split, or if a slice contains no images.
        """
        if "+" in name:
            splits = [*map(self.split, name.split("+"))]
            indices = np.concatenate([split.indices for split in splits])
            return dataclasses.replace(splits[0], indices=indices)
        if (match := SLICE.fullmatch(name)) and (base := base_split(match[1], self.splits)):
            split = self.splits[base]
            start, stop = (_bound(text, len(split)) for text in match.groups()[1:])
            if len(part := split.part(np.arange(len(split))[start:stop])):
                return part
        raise ValueError(
            f"`split` of {self.name!r} must be one of {', '.join(map(repr, self.splits))}, or a "
            f"slice with images, such as train[:90%]. Received: split={name!r}. Name the held-out "
            "pictures in data.test_split, such as 'train[90%:]', or set data.test_percent"
        )


def count_classes(dataset: Dataset, splits: dict[str, Split]) -> dict[str, dict[str, int]]:
    """Returns the number of pictures by split and class.

    Example:
        >>> dataset = data.load("digits", channels=1)
        >>> count_classes(dataset, dataset.splits)["test"]["7"]
        36
    """
    count, classes = LABEL_KINDS[dataset.kind].counts, dataset.class_names
    counts = {name: count(split.labels, len(classes)) for name, split in splits.items()}
    return {name: dict(zip(classes, of_split.tolist())) for name, of_split in counts.items()}


def split_name(text: str) -> str:
    """Returns a split's name as used here, such as "train" for "Training"; others are unchanged."""
    name = text.strip().casefold()
    name = OTHER_NAMES.get(name, name)
    return name if name in SPLITS else text


def split_in(text: str, default: str = "train") -> str:
    """Returns the first split that a path names, such as "train" for "train2017"."""
    words = map(split_name, re.split(r"[\W_\d]+", text))
    return next((word for word in words if word in SPLITS), default)


def base_split(name: str, splits) -> str | None:
    """Returns the name among `splits` that `name` refers to, or None."""
    names = HELD_OUT if name == "test" else VALIDATION if name in VALIDATION else ()
    return next((n for n in (name, *names) if n in splits), None)


def without_held_out(splits, test_split: str) -> bool:
    """Whether `splits` have nothing to judge a run on: no held-out split and no `test_split`.

    A `test_split` that is a slice of the training images holds that slice out.
    """
    names = [part.split("[")[0] for part in test_split.split("+")]
    return not set(splits) & set(HELD_OUT) and not set(names) & set(splits)


def _bound(text, size):
    if text is None:
        return None
    return round(float(text[:-1]) * size / 100) if text.endswith("%") else int(text)
