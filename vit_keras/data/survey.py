"""Examines every picture of a data set: readability, levels, and near-duplicates."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, Split, base_split
from vit_keras.data.deep_images import type_in_header
from vit_keras.data.depth import LEAST_OF_16, as_array, as_picture, at_levels, viewable
from vit_keras.data.held_out import train_and_test
from vit_keras.data.labels import LABEL_KINDS
from vit_keras.data.pillow_images import SUFFIXES, decode, open_encoded, pillow_image
from vit_keras.data.threads import read_ahead
from vit_keras.support import extras

AHEAD = 256  # pictures to examine in advance


HASHED = 128  # pixels: pictures are reduced to one or two times this side before they are hashed


BITS, SIDE = 64, 32  # of a phash, and pixels of the picture that it is computed from


SMALLEST = 32  # pixels, the smallest side for a phash: smaller pictures merely look alike


COLOR_DISTANCE = 16  # levels that a quarter's mean color may differ by in a copy


DEPTHS = {"uint8": "8 bits", "uint16": "16 bits", "float32": "floats"}


MODES = {  # by Pillow's modes; all others have palettes
    **dict.fromkeys(("1", "L"), "grayscale"),
    **dict.fromkeys(("RGB", "YCbCr"), "RGB"),
    **dict.fromkeys(("RGBA", "LA", "PA", "RGBa", "La"), "with transparency"),
    "CMYK": "CMYK",
}


DEEP = (".png", ".tif", ".tiff", ".npy")  # pictures that may have more than 8 bits


SAMPLE = 64  # pictures to look at in a split without telling file names


class Picture(NamedTuple):
    """What is known about a picture.

    Attributes:
        name: Its path, or its position in the data set.
        split: The split that it belongs to.
        class_name: Its class.
        error: Why training cannot read it, or None.
        width: The upright width in pixels.
        height: The upright height in pixels.
        kind: A description such as "RGB", "grayscale", "with transparency", or "16 bits of 6
            channels".
        digest: The SHA-256 of its bytes.
        phash: The 64 bits of the perceptual hash.
        colors: The mean RGB levels of each quarter.
        levels: The lowest and the highest level of its file.
    """

    name: str
    split: str
    class_name: str
    error: str | None = None
    width: int = 0
    height: int = 0
    kind: str = ""
    digest: str = ""
    phash: int = 0
    colors: tuple[int, ...] = (0,) * 12
    levels: tuple[float, float] = (0, 0)


def splits_of_run(dataset: Dataset, config: DataConfig) -> dict[str, Split]:
    """Returns the splits that a run uses, by name, and for most kinds of data sets the others.

    Raises:
        ValueError: If a split of the run does not exist.
    """
    names = [
        base_split(name, dataset.splits) or name for name in (config.train_split, config.test_split)
    ]
    if config.dev_percent:
        names[1] = f"{config.dev_percent:g} % of {names[0]}"
    chosen = dict(zip(names, train_and_test(dataset, config)))
    if not dataset.name.startswith(("folder:", "table:", "shards:", "hf:")):
        return chosen
    used = {part.split("[")[0] for name in names for part in name.split("+")}
    return chosen | {name: split for name, split in dataset.splits.items() if name not in used}


def survey_pictures(dataset: Dataset, splits: dict[str, Split]) -> Iterator[Picture]:
    """Reads every picture of some splits as training does, on all cores.

    Args:
        dataset: The data set.
        splits: The splits to look at, by name.

    Returns:
        An iterator of one `Picture` for each picture, in the order of the splits. It never raises
        for an unreadable picture, but sets its `error`.

    Raises:
        ImportError: If a package of the extra `data` is not installed.
    """
    jobs = ((name, split, i) for name, split in splits.items() for i in range(len(split)))
    text = LABEL_KINDS[dataset.kind].text
    return read_ahead(
        lambda job: _look(*job, lambda label: text(label, dataset.class_names)), jobs, AHEAD
    )


def _look(split_name, split, index, text):
    name = split.name(index) if split.name else f"{split_name}[{index}]"
    try:
        pixels, data, label = _read(split, index)
        at_levels(pixels, split.levels)
        kind = _kind(data, pixels) if isinstance(data, bytes) else "in memory"
    except ImportError:
        raise
    except Exception as error:  # libraries for files raise errors of their own
        return Picture(name, split_name, text(split.labels[index]), split.fault(index, error))
    (height, width), digest = pixels.shape[:2], hashlib.sha256(data).hexdigest()
    levels = pixels.min().item(), pixels.max().item()
    known = (name, split_name, text(label), None, width, height, kind, digest)
    return Picture(*known, *hashes(pixels), levels)


def _read(split, index):
    """Returns the pixels `(H, W, C)` of a file, its bytes, and the label."""
    encoded = split.encoded(index)
    if encoded is None:
        image = split.read(index)
        return image, image, split.labels[index]
    data, label = encoded
    if split.has_masks:
        label = split.decoded(index)[1]
    channels = split.channels
    if channels == 1 and not split.bands:
        channels = 3  # to compare colors
    return as_array(decode(data, channels, None, split.bands)), data, label


def _kind(data, pixels):
    if pixels.dtype == np.uint8:
        with contextlib.suppress(ValueError), open_encoded(data) as picture:
            if "transparency" in picture.info:
                return MODES["RGBA"]
            return MODES.get(picture.mode, "with a palette")
    count = as_array(decode(data, None)).shape[-1]
    color = {1: "gray", 3: "RGB"}.get(count, f"{count} channels")
    return f"{DEPTHS[str(pixels.dtype)]} of {color}"


def hashes(pixels: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """Returns the perceptual hash and the mean colors of the quarters of pixels `(H, W, C)`.

    The hash has a bit for each of the 8 by 8 lowest frequencies of the cosine transform: whether it
    is above their median. The package imagehash computes the same (`phash`), but brings PyWavelets.
    The picture is reduced by an integer factor first, which changes few bits and saves time.
    """
    dctn = extras.require("scipy.fft", extra="data", purpose="Comparing pictures").dctn
    picture = as_picture(viewable(pixels)).convert("RGB")
    picture = picture.reduce(max(1, min(picture.size) // HASHED))
    resampling = pillow_image("Comparing pictures").Resampling
    gray = picture.convert("L").resize((SIDE, SIDE), resampling.LANCZOS)
    lowest = dctn(np.asarray(gray, "float64"))[:8, :8]
    bits = np.packbits(lowest > np.median(lowest)).tobytes()
    quarters = np.asarray(picture.resize((2, 2), resampling.BOX))
    return int.from_bytes(bits, "big"), tuple(quarters.ravel().tolist())


class Pair(NamedTuple):
    """Two pictures that look alike, the earlier one first.

    Attributes:
        distance: The number of bits in which their perceptual hashes differ, 0 to 64.
    """

    first: Picture
    second: Picture
    distance: int

    @property
    def is_exact(self) -> bool:
        """Whether both have the same bytes."""
        return self.first.digest == self.second.digest

    @property
    def leaks(self) -> bool:
        """Whether they lie in two splits."""
        return self.first.split != self.second.split

    @property
    def conflicts(self) -> bool:
        """Whether they have two labels."""
        return self.first.class_name != self.second.class_name


def find_pairs(pictures: Sequence[Picture], distance: int = 4) -> list[Pair]:
    """Finds near-duplicates; with sides below 32 pixels, only identical files count.

    Each picture is paired with the most similar earlier one of the same split and class, of another
    split, of another class, and of another split and class. A picture that occurs n times thus
    gives n - 1 pairs, not n²/2.

    Args:
        pictures: From `survey_pictures`, the training images first.
        distance: The largest number of bits of the hash, 0 to 16, in which a pair differs.

    Returns:
        The pairs, the most similar first.

    Raises:
        ValueError: If `distance` is out of range.
    """
    if not 0 <= distance <= 16:
        raise ValueError(f"`distance` must be 0 to 16 of 64 bits. Received: distance={distance}")
    readable = [picture for picture in pictures if picture.error is None]
    rows = np.array([_hashes(picture) for picture in readable], "uint64").reshape(-1, 13)
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    colors = unique[:, 1:].astype("int64")
    alike = collections.defaultdict(list)  # by row of `unique`, the similar rows
    for first, second, bits in near_hashes(unique[:, 0], distance):
        if abs(colors[first] - colors[second]).max() <= COLOR_DISTANCE:
            alike[first].append((bits, second))
            alike[second].append((bits, first))
    earliest: dict[int, dict[tuple, int]] = {}  # by row of `unique`, and by split and class
    pairs = []
    for place, (picture, row) in enumerate(zip(readable, inverse.ravel().tolist())):
        best: dict[tuple, tuple[int, int]] = {}
        for bits, other in [(0, row), *alike.get(row, ())]:
            for group, first in earliest.get(other, {}).items():
                kind = group[0] == picture.split, group[1] == picture.class_name
                best[kind] = min(best.get(kind, (BITS, 0)), (bits, first))
        pairs += [Pair(readable[first], picture, bits) for bits, first in best.values()]
        earliest.setdefault(row, {}).setdefault((picture.split, picture.class_name), place)
    return sorted(pairs, key=lambda pair: pair.distance)


def _hashes(picture):
    if min(picture.width, picture.height) < SMALLEST:
        return int(picture.digest[:16], 16), *Picture._field_defaults["colors"]
    return picture.phash, *picture.colors


def near_hashes(hashes: np.ndarray, distance: int) -> list[tuple[int, int, int]]:
    """Finds all pairs of 64-bit hashes `(N,)` that differ in at most `distance` bits.

    If two hashes differ in d bits, at least one of d + 1 bands of bits is the same in both. So
    hashes are sorted by each band and compared only within equal bands.

    Returns:
        The pairs as (first index, second index, bits), each once.
    """
    hashes, pairs = np.asarray(hashes, "uint64"), set[tuple[int, int, int]]()
    edges = np.linspace(0, BITS, distance + 2).astype(int).tolist()
    for low, high in itertools.pairwise(edges):
        bands = (hashes >> np.uint64(low)) & np.uint64(2 ** (high - low) - 1)
        order = np.argsort(bands, kind="stable")
        places, step = np.arange(len(order) - 1), 1
        while len(places):
            one, two = order[places], order[places + step]
            bits = np.bitwise_count(hashes[one] ^ hashes[two])
            near = bits <= distance
            ends = np.sort([one[near], two[near]], axis=0).tolist()
            pairs.update(zip(*ends, bits[near].tolist()))
            step += 1
            places = places[(bands[one] == bands[two]) & (places + step < len(order))]
    return list(pairs)


def complete_levels(config: DataConfig, dataset: Dataset) -> DataConfig:
    """Replaces "auto" in `config.levels` by the levels of the whole data set.

    The value is float if any picture has floats. If any has more than 8 bits, it is 4095, or 65535
    if a level is above 4095; 16-bit pictures are read until one has such a level. Otherwise, it is
    255.

    Some file names imply 8 bits, such as those of JPEGs; headers give the depth of other files. In
    shards and other data sets without file names, 64 evenly spaced pictures of each split are
    examined. Unreadable pictures are left out.

    Args:
        config: The configuration of the data.
        dataset: The data set.

    Example:
        >>> data.complete_levels(DataConfig(), data.load("digits", 1)).levels
        255
    """
    return (
        dataclasses.replace(config, levels=_levels_of(dataset)) if config.white is None else config
    )


def _levels_of(dataset) -> Any:
    jobs = [(split, i) for split in dataset.splits.values() for i in _candidates(split)]
    kinds = read_ahead(lambda job: _type(*job), jobs, AHEAD)
    deep = [(kind, job) for kind, job in zip(kinds, jobs) if kind != "uint8"]
    if any(kind == "float32" for kind, _ in deep):
        return "float"
    if not deep:
        return 255
    highest = read_ahead(lambda row: _highest(*row[1]), deep, AHEAD)
    return 65535 if any(level >= LEAST_OF_16 for level in highest) else 4095


def _candidates(split):
    """Returns the indices of the pictures whose depth is examined."""
    suffix = lambda i: os.path.splitext(split.name(i))[1].lower() if split.name else ""
    if len(split) and suffix(0) in SUFFIXES:
        return [i for i in range(len(split)) if suffix(i) in DEEP]
    return range(0, len(split), -(-len(split) // SAMPLE) or 1)


def _type(split, index):
    """Returns the type of a picture's pixels, from its header."""
    try:
        name = split.name(index) if split.name else ""
        if name.lower().endswith(".png") and os.path.isfile(name):
            with open(name, "rb") as file:
                return type_in_header(file.read(32))  # enough to know the depth
        if (data := split.encoded(index)) is not None:
            return type_in_header(data[0])
        kind = split.read(index).dtype
        return "float32" if kind.kind == "f" else "uint8" if kind.itemsize == 1 else "uint16"
    except Exception:  # the run reports that, or takes another picture
        return "uint8"


def _highest(split, index):
    try:
        return int(as_array(split.read_as(None).decoded(index)[0]).max())
    except Exception:  # as above
        return 0
