"""Packs a data set into shards."""

import io
import json
import os
import pathlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tensorflow as tf

from vit_keras import extras
from vit_keras.data.dataset import Dataset
from vit_keras.data.pillow_images import SUFFIXES, pillow_image, read_encoded, unreadable_message
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.shards.manifest import FILE, Entry, Manifest
from vit_keras.data.shards.writers import WRITERS, Writer
from vit_keras.data.splits import Split
from vit_keras.files import replacing_folder, sha256

MEGABYTE = 10**6
AHEAD = 64  # pictures that are read in advance
QUALITY = 95  # of JPEGs that are written
HEADS = {  # the first bytes of pictures without a suffix
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
}


class Packed(NamedTuple):
    """A picture as it goes into a shard.

    Attributes:
        suffix: The suffix of such files, such as ".jpg".
        picture: The bytes of the file.
        label: The number of its class; None without one.
    """

    suffix: str
    picture: bytes
    label: int | None


def pack_shards(
    dataset: Dataset,
    folder: str | os.PathLike,
    *,
    format: str = "tar",
    image_size: int | None = None,
    shard_mb: int = 256,
    progress: Callable[[int], object] = lambda count: None,
) -> Manifest:
    """Writes all splits of a data set as shards, in their order, and `shards.json` beside them.

    Files are copied byte for byte, so a run on the shards sees the batches of a run on the data set
    itself. Pictures in memory become PNG.

    Args:
        dataset: A data set of classes, or without labels.
        folder: A new folder, which appears when it is complete.
        format: "tar", "parquet", "tfrecord", or "array_record".
        image_size: The shorter side of larger pictures in pixels, to which they are reduced; they
            become JPEG of quality 95. None copies all.
        shard_mb: The size in 10^6 bytes at which a shard ends.
        progress: Called with 1 after each picture.

    Returns:
        What `shards.json` says: the classes, and each shard's name, number of pictures, bytes and
        SHA-256 by split.

    Raises:
        ValueError: If the format is unknown, if the labels are no classes, if the folder holds
            anything, or if a picture that is to be reduced cannot be read.
        ImportError: If a package for the format is not installed.

    Example:
        >>> digits = data.load("digits", channels=1)
        >>> manifest = data.pack_shards(digits, "digits_in_shards", format="parquet")
        >>> manifest["splits"]["test"][0]["images"]
        360
    """
    _check(dataset, folder, format, image_size, shard_mb)
    manifest = Manifest(
        format=format, image_size=image_size, classes=list(dataset.class_names), splits={}
    )
    with replacing_folder(folder) as partial:
        for name, split in dataset.splits.items():
            pictures = _pictures(split, bool(dataset.class_names), image_size)
            of_split = _Shards(partial, name, manifest, shard_mb * MEGABYTE)
            for packed in pictures:
                of_split.add(packed)
                progress(1)
            manifest["splits"][name] = of_split.entries()
        text = json.dumps(manifest, indent=1, ensure_ascii=False)
        (partial / FILE).write_text(text, encoding="utf-8")
    return manifest


def _check(dataset, folder, format, image_size, shard_mb):
    """Raises ValueError for what `pack_shards` does not take."""
    if format not in WRITERS:
        names = ", ".join(map(repr, WRITERS))
        raise ValueError(f"`format` must be one of {names}. Received: format={format!r}")
    if min(shard_mb, image_size or 1) < 1:
        raise ValueError(
            "`shard_mb` and `image_size` must be at least 1. "
            f"Received: shard_mb={shard_mb}, image_size={image_size}"
        )
    if dataset.class_names and dataset.kind != "classes":
        raise ValueError(
            f"Shards hold pictures of classes. Received: {dataset.name!r}, whose labels are "
            f"{dataset.kind}. Train from the data set itself"
        )
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ValueError(
            f"`folder` must be a new or an empty folder. Received: {os.fspath(folder)!r}. Remove "
            "it, or give another name"
        )


class _Shards:
    """The shards of a split, of which the last one is open."""

    def __init__(self, folder: pathlib.Path, split, manifest: Manifest, most_bytes):
        self.folder, self.split, self.manifest = folder, split, manifest
        self.most_bytes, self.counts = most_bytes, list[int]()
        self.writer: Writer | None = None
        self.bytes = 0

    def add(self, packed: Packed) -> None:
        writer = self.writer
        if writer is None or self.bytes + len(packed.picture) > self.most_bytes:
            writer = self._begin()
        number = sum(self.counts)
        writer.write(f"{number:08}{packed.suffix}", packed.picture, packed.label)
        self.counts[-1] += 1
        self.bytes += len(packed.picture)

    def entries(self) -> list[Entry]:
        """Closes the last shard, and describes all."""
        if self.writer is not None:
            self.writer.close()
        return [self._entry(*numbered) for numbered in enumerate(self.counts)]

    def _begin(self) -> Writer:
        if self.writer is not None:
            self.writer.close()
        path = self.folder / self._file(len(self.counts))
        self.writer = WRITERS[self.manifest["format"]](str(path), self.manifest["classes"])
        self.counts.append(0)
        self.bytes = 0
        return self.writer

    def _file(self, number):
        return f"{self.split}-{number:05}.{self.manifest['format']}"

    def _entry(self, number, count):
        path = self.folder / self._file(number)
        size = path.stat().st_size
        return Entry(file=path.name, images=count, bytes=size, sha256=sha256(path))


def _pictures(split: Split, has_classes: bool, image_size) -> Iterator[Packed]:
    def read(i):
        encoded = split.encoded(i)
        if encoded is None:
            picture, label = _as_png(split.read(tf.constant(i)).numpy()), split.labels[i]
        else:
            picture, label = encoded
        name = split.name(i) if split.name else f"picture {i}"
        suffix = os.path.splitext(name)[1].lower()
        if image_size is not None:
            picture, suffix = _reduced(name, picture, suffix, image_size)
        if suffix not in SUFFIXES:
            suffix = next((HEADS[head] for head in HEADS if picture.startswith(head)), ".jpg")
        return Packed(suffix, picture, int(label) if has_classes else None)

    return read_ahead(read, range(len(split)), AHEAD)


def _as_png(pixels):
    image = pillow_image("Writing pictures").fromarray(
        pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    )
    return _encoded(image, format="png")


def _reduced(name, picture, suffix, side):
    """A picture whose shorter side is `side` pixels at most, and its suffix."""
    try:
        pixels = read_encoded(picture, 3)
    except ValueError as error:
        raise ValueError(unreadable_message(repr(name), str(error))) from error
    height, width = pixels.shape[:2]
    scale = side / min(height, width)
    if scale >= 1:
        return picture, suffix
    size = tuple(max(side, round(length * scale)) for length in (width, height))
    filters = extras.require("PIL.Image", extra="data", purpose="Writing pictures").Resampling
    image = pillow_image("Writing pictures").fromarray(pixels).resize(size, filters.BICUBIC)
    return _encoded(image, format="jpeg", quality=QUALITY, subsampling=0), ".jpg"


def _encoded(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()
