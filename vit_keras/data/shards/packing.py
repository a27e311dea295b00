"""Packs a data set into shards."""

import contextlib
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from vit_keras.data import picture_files
from vit_keras.data.cropping import sides_of
from vit_keras.data.dataset import Dataset, Split
from vit_keras.data.depth import as_picture, pillow
from vit_keras.data.shards import FILE, Entry, Manifest
from vit_keras.data.shards.formats import FORMATS
from vit_keras.support.checks import check_choice, with_checksums
from vit_keras.support.files import check_new, replacing_folder, sha256
from vit_keras.support.machine import read_ahead

MEGABYTE = 10**6
AHEAD = 64  # pictures to read in advance
QUALITY = 95  # of written JPEGs

# A picture for a shard: the suffix of such files, the bytes, and its class if any.
Packed = tuple[str, bytes, int | None]


def pack_shards(
    dataset: Dataset,
    folder: str | os.PathLike,
    *,
    format: str = "tar",
    image_size: int | None = None,
    shard_mb: int = 256,
    progress: Callable[[int], object] = lambda count: None,
) -> Manifest:
    """Writes all splits of a data set as shards, in order, with `shards.json` beside them.

    Files are copied byte for byte, so a run on the shards sees the same batches as a run on the
    data set. Pictures in memory become PNG.

    Args:
        dataset: A data set of classes, or without labels.
        folder: A new folder, which appears once it is complete.
        format: "tar", "parquet", "tfrecord", or "array_record".
        image_size: The shorter side in pixels to which larger pictures are reduced; they become
            JPEG of quality 95. None copies all pictures.
        shard_mb: The size in 10^6 bytes at which a shard ends.
        progress: Called with 1 after each picture.

    Returns:
        The content of `shards.json`: the classes, and by split each shard's name, number of
        pictures, bytes and SHA-256.

    Raises:
        ValueError: If the format is unknown, if the labels are not classes, if the folder is not
            empty, or if a picture to reduce cannot be read.
        ImportError: If a package for the format is not installed.

    Example:
        >>> digits = data.load("digits", channels=1)
        >>> manifest = data.pack_shards(digits, "digits_in_shards", format="parquet")
        >>> manifest["splits"]["test"][0]["images"]
        360
    """
    check_choice(format, FORMATS, "format")
    if dataset.class_names and dataset.kind != "classes":
        raise ValueError(
            f"Shards hold pictures with classes. Received: {dataset.name!r}, whose labels are "
            f"{dataset.kind}. Train on the data set itself"
        )
    check_new(folder)
    classes = list(dataset.class_names)
    manifest = Manifest(format=format, image_size=image_size, classes=classes, splits={})
    with replacing_folder(folder) as partial:
        for name, split in dataset.splits.items():
            entries = manifest["splits"].setdefault(name, [])
            pictures = _numbered(_pictures(split, bool(classes), image_size), shard_mb * MEGABYTE)
            for shard, in_shard in itertools.groupby(pictures, key=lambda numbered: numbered[0]):
                path = partial / f"{name}-{shard:05}.{format}"
                count = 0
                with FORMATS[format].writer(str(path), classes) as write:
                    for _, number, (suffix, picture, label) in in_shard:
                        write(f"{number:08}{suffix}", picture, label)
                        count += 1
                        progress(1)
                size, digest = path.stat().st_size, sha256(path)
                entries.append(Entry(file=path.name, images=count, bytes=size, sha256=digest))
        text = json.dumps(with_checksums({**manifest}), indent=1, ensure_ascii=False)
        (partial / FILE).write_text(text, encoding="utf-8")
    return manifest


def _numbered(pictures: Iterable[Packed], most_bytes) -> Iterator[tuple[int, int, Packed]]:
    """Yields the number of each picture's shard, the picture's number, and the picture."""
    shard, size = 0, 0
    for number, packed in enumerate(pictures):
        length = len(packed[1])
        if size and size + length > most_bytes:
            shard, size = shard + 1, 0
        size += length
        yield shard, number, packed


def _pictures(split: Split, has_classes: bool, image_size) -> Iterator[Packed]:
    def read(i):
        picture, name = split.encoded(i), split.name(i)
        if isinstance(picture, np.ndarray):
            picture = _as_file(picture)
        suffix = os.path.splitext(name)[1].lower()
        if image_size is not None:
            picture, suffix = _reduced(name, picture, suffix, image_size)
        if suffix not in picture_files.SUFFIXES:
            suffix = _suffix_of(picture)
        return suffix, picture, int(split.labels[i]) if has_classes else None

    return read_ahead(read, range(len(split)), AHEAD)


def _suffix_of(picture):
    """Returns the suffix of a picture's format; that of JPEG if it is unreadable."""
    with contextlib.suppress(ValueError), picture_files.open_encoded(picture) as opened:
        return f".{opened.format.lower()}"
    return ".npy" if picture.startswith(picture_files.NPY) else ".jpg"


def _as_file(pixels):
    """Encodes pixels as PNG, or as `.npy` unless they are 8-bit gray or RGB."""
    picture = as_picture(pixels)
    if not isinstance(picture, np.ndarray):
        return _encoded(picture, format="png")
    file = io.BytesIO()
    np.save(file, picture, allow_pickle=False)
    return file.getvalue()


def _reduced(name, picture, suffix, side):
    """Returns a picture whose shorter side has at most `side` pixels, and its suffix."""
    try:
        image = picture_files.decode(picture, None)
    except ValueError as error:
        raise ValueError(picture_files.unreadable_message(repr(name), str(error))) from error
    height, width = sides_of(image)
    scale = side / min(height, width)
    if scale >= 1:
        return picture, suffix
    size = tuple(max(side, round(length * scale)) for length in (width, height))
    if isinstance(image, np.ndarray):
        raise ValueError(
            "Only 8-bit gray and RGB pictures can be reduced. Received: "
            f"{name!r} of {image.dtype} with {image.shape[-1]} channels. Leave out --image_size"
        )
    image = image.convert("RGB").resize(size, pillow().Resampling.BICUBIC)
    return _encoded(image, format="jpeg", quality=QUALITY, subsampling=0), ".jpg"


def _encoded(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()
