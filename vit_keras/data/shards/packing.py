"""Packs a data set into shards."""

import contextlib
import io
import itertools
import json
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from vit_keras.data.dataset import Dataset, Split
from vit_keras.data.depth import as_picture
from vit_keras.data.pillow_images import SUFFIXES, pillow_image, read_encoded, unreadable_message
from vit_keras.data.shards.formats import IMAGE, LABEL, NOTE, example_class, framed, require
from vit_keras.data.shards.source import FILE, Entry, Manifest
from vit_keras.data.threads import read_ahead
from vit_keras.support.files import replacing_folder, sha256
from vit_keras.support.json_files import with_checksums

MEGABYTE = 10**6
AHEAD = 64  # pictures to read in advance
QUALITY = 95  # of written JPEGs
ROWS_IN_GROUP = 16  # of Parquet; rows of a group are read together
HEADS = {  # the first bytes of pictures without a suffix
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"\x93NUMPY": ".npy",
}

# A picture for a shard: the suffix of such files, the bytes, and its class if any.
Packed = tuple[str, bytes, int | None]
# Adds a picture to a shard, given its name with the suffix.
Write = Callable[[str, bytes, int | None], object]


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
    _check(dataset, folder, format)
    classes = list(dataset.class_names)
    manifest = Manifest(format=format, image_size=image_size, classes=classes, splits={})
    with replacing_folder(folder) as partial:
        for name, split in dataset.splits.items():
            entries = manifest["splits"].setdefault(name, [])
            pictures = _numbered(_pictures(split, bool(classes), image_size), shard_mb * MEGABYTE)
            for shard, in_shard in itertools.groupby(pictures, key=lambda numbered: numbered[0]):
                path = partial / f"{name}-{shard:05}.{format}"
                count = 0
                with WRITERS[format](str(path), classes) as write:
                    for _, number, (suffix, picture, label) in in_shard:
                        write(f"{number:08}{suffix}", picture, label)
                        count += 1
                        progress(1)
                size, digest = path.stat().st_size, sha256(path)
                entries.append(Entry(file=path.name, images=count, bytes=size, sha256=digest))
        text = json.dumps(with_checksums({**manifest}), indent=1, ensure_ascii=False)
        (partial / FILE).write_text(text, encoding="utf-8")
    return manifest


def _check(dataset, folder, format):
    """Raises ValueError for arguments that `pack_shards` cannot take."""
    if format not in WRITERS:
        names = ", ".join(map(repr, WRITERS))
        raise ValueError(f"`format` must be one of {names}. Received: format={format!r}")
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
        picture, label = split.encoded(i) or (_as_file(split.read(i)), split.labels[i])
        name = split.name(i) if split.name else f"picture {i}"
        suffix = os.path.splitext(name)[1].lower()
        if image_size is not None:
            picture, suffix = _reduced(name, picture, suffix, image_size)
        if suffix not in SUFFIXES:
            suffix = next((HEADS[head] for head in HEADS if picture.startswith(head)), ".jpg")
        return suffix, picture, int(label) if has_classes else None

    return read_ahead(read, range(len(split)), AHEAD)


def _as_file(pixels):
    """Encodes pixels as PNG, or as `.npy` unless they are gray or RGB of 8 bits."""
    picture = as_picture(pixels)
    if not isinstance(picture, np.ndarray):
        return _encoded(picture, format="png")
    file = io.BytesIO()
    np.save(file, picture, allow_pickle=False)
    return file.getvalue()


def _reduced(name, picture, suffix, side):
    """Returns a picture whose shorter side has at most `side` pixels, and its suffix."""
    try:
        pixels = read_encoded(picture, None)
    except ValueError as error:
        raise ValueError(unreadable_message(repr(name), str(error))) from error
    height, width = pixels.shape[:2]
    scale = side / min(height, width)
    if scale >= 1:
        return picture, suffix
    size = tuple(max(side, round(length * scale)) for length in (width, height))
    if isinstance(as_picture(pixels), np.ndarray):
        raise ValueError(
            "Only gray and RGB pictures of 8 bits can be reduced. Received: "
            f"{name!r} of {pixels.dtype} with {pixels.shape[-1]} channels. Leave out --image_size"
        )
    filters = pillow_image("Writing pictures").Resampling
    image = as_picture(pixels).convert("RGB").resize(size, filters.BICUBIC)
    return _encoded(image, format="jpeg", quality=QUALITY, subsampling=0), ".jpg"


def _encoded(image, **options):
    file = io.BytesIO()
    image.save(file, **options)
    return file.getvalue()


@contextlib.contextmanager
def tar_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes WebDataset's layout: NAME.jpg and NAME.cls. Equal pictures give equal bytes."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:

        def add(name, content):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))

        def write(name, picture, label):
            add(name, picture)
            if label is not None:
                add(f"{name.partition('.')[0]}.cls", str(label).encode())

        yield write


@contextlib.contextmanager
def parquet_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes the layout of Hugging Face data sets: `image` with bytes and path, and `label`."""
    arrow, parquet = (require(name, extra="tables") for name in ("pyarrow", "pyarrow.parquet"))
    fields = [(IMAGE, arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())]))]
    features: dict[str, Any] = {IMAGE: {"_type": "Image"}}
    if classes:
        fields.append((LABEL, arrow.int64()))
        features[LABEL] = {"names": list(classes), "_type": "ClassLabel"}
    note = json.dumps({"info": {"features": features}})
    schema = arrow.schema(fields, metadata={NOTE: note})
    # Pictures are already compressed.
    options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    rows: list[dict[str, Any]] = []
    with parquet.ParquetWriter(path, schema, **options) as file:

        def flush():
            file.write_table(arrow.Table.from_pylist(rows, schema))
            rows.clear()

        def write(name, picture, label):
            rows.append({IMAGE: {"bytes": picture, "path": name}, LABEL: label})
            if len(rows) == ROWS_IN_GROUP:
                flush()

        yield write
        if rows:
            flush()


def _example(name, picture, label) -> bytes:
    """Returns `tf.train.Example` with the features of TensorFlow Datasets, `image` and `label`."""
    example = example_class()()
    example.features.feature[IMAGE].bytes_list.value.append(picture)
    if label is not None:
        example.features.feature[LABEL].int64_list.value.append(label)
    return example.SerializeToString(deterministic=True)


@contextlib.contextmanager
def tfrecord_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes examples as records with checksums. Equal pictures give equal bytes."""
    with open(path, "wb") as file:
        yield lambda *packed: file.write(framed(_example(*packed)))


@contextlib.contextmanager
def array_record_writer(path: str, classes: Sequence[str]) -> Iterator[Write]:
    """Writes examples as records, each of which can be read alone."""
    module = require("array_record.python.array_record_module", extra="tfds")
    file = module.ArrayRecordWriter(path, "group_size:1")
    yield lambda *packed: file.write(_example(*packed))
    file.close()


WRITERS: dict[str, Callable[[str, Sequence[str]], Any]] = {
    "tar": tar_writer,
    "parquet": parquet_writer,
    "tfrecord": tfrecord_writer,
    "array_record": array_record_writer,
}
