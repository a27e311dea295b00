"""TensorFlow Datasets by random access, from ArrayRecord or TFRecord files."""

import difflib
import os
import re
from collections.abc import Callable

import numpy as np

from vit_keras import extras
from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset
from vit_keras.data.labels import Label, feature
from vit_keras.data.origin import Origin, UnreadableImages
from vit_keras.data.pillow_images import unreadable_message
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.splits import Split

AHEAD = 256  # records whose labels are read in advance
HEADER, FOOTER = 12, 4  # bytes around a TFRecord: length and its checksum; record's checksum


def load(name: str, channels: int, config: DataConfig, label: Label | None = None) -> Dataset:
    """Opens a data set, and prepares it first if necessary.

    Args:
        name: A name such as cifar10:3.0.2 or eurosat/rgb.
        channels: 1 for grayscale or 3 for RGB.
        config: Says where the files lie.
        label: Computes the class of an example; by default, the data set's label is the class.

    Raises:
        ValueError: If the name is unknown, if the data set cannot be prepared, or if it has no
            image or no label. The message gives similar names, the command that prepares the data
            set, or the features that it has.
        ImportError: If TensorFlow Datasets, Pillow, or what prepares the data set is not installed.
    """
    extras.check("PIL", extra="data", purpose="Reading pictures")
    builder = _prepared(name, config)
    image, label = _features(builder, label)
    unreadable = UnreadableImages(config.on_corrupt == "stop")
    splits = {
        split: _split(builder, split, image, label, channels, unreadable)
        for split, info in builder.info.splits.items()
        if info.num_examples
    }
    (key, *_) = label.reads
    names = tuple(getattr(builder.info.features[key], "names", ()))  # if a feature is the label
    return Dataset(f"tfds:{name}", splits, names, unreadable)


def _tfds():
    purpose = "Reading TensorFlow Datasets"
    return extras.require("tensorflow_datasets", extra="tfds", purpose=purpose)


def _prepared(name, config):
    tfds = _tfds()

    try:
        builder = tfds.builder(name, data_dir=config.data_dir)
    except tfds.core.registered.DatasetNotFoundError as error:
        known = tfds.list_builders(with_community_datasets=False)
        near = difflib.get_close_matches(re.split("[:/]", name)[0], known, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"TensorFlow Datasets has no {name!r}.{hint}") from error
    if builder.info.splits:
        return builder
    manual = tfds.download.DownloadConfig(manual_dir=config.manual_dir)
    try:
        builder.download_and_prepare(download_config=manual)
    except ImportError as error:  # of a package for some data sets, such as cv2
        missing = re.findall(r"No module named '(\w+)", str(error)) or [str(error)]
        package = extras.DISTRIBUTIONS.get(missing[0], missing[0].replace("_", "-"))
        raise ImportError(f"tfds:{name} needs {package}: pip install {package}") from error
    except Exception as error:  # each source raises its own
        where = os.fspath(builder.data_dir)
        root = config.data_dir or where[: where.index(os.sep + builder.name + os.sep)]
        by_hand = f" --manual_dir {config.manual_dir}" if config.manual_dir else ""
        raise ValueError(
            f"tfds:{name} is not prepared in {root!r}, and preparing it failed "
            f"({type(error).__name__}: {str(error).strip()[:300]}). Where there is internet, run: "
            f"tfds build {name} --data_dir {root}{by_hand}"
        ) from error
    return builder


def _features(builder, label):
    """Returns the name of the image feature, and the label."""
    tfds = _tfds()

    features, kinds = builder.info.features, {}
    for kind in (tfds.features.Image, tfds.features.ClassLabel):
        preferred = builder.info.supervised_keys or ("image", "label")
        candidates = [key for key in features if type(features[key]) is kind]
        kinds[kind] = next((key for key in (*preferred, *candidates) if key in candidates), None)
    if label is None and (key := kinds[tfds.features.ClassLabel]):
        label = feature(key)
    if None in (kinds[tfds.features.Image], label):
        has = {key: type(feature).__name__ for key, feature in features.items()}
        raise ValueError(
            f"A data set for classification needs an Image and a ClassLabel. Received: "
            f"tfds:{builder.name} with {has}"
        )
    return kinds[tfds.features.Image], label


def _split(builder, split, image, label, channels, unreadable):
    tfds = _tfds()

    info = builder.info.splits[split]
    get = _reader(builder, split)
    skip = {image: tfds.decode.SkipDecoding()}
    read = {key: builder.info.features[key] for key in (image, *label.reads)}
    features = tfds.features.FeaturesDict(read)

    def encoded(index):
        example = features.deserialize_example_np(get(index), decoders=skip)
        return example[image], np.int32(label.derive(example))

    def labels():
        classes: list[int] = []
        try:
            classes.extend(read_ahead(lambda i: encoded(i)[1], range(info.num_examples), AHEAD))
        except Exception as error:  # protobuf's own, and TensorFlow Datasets'
            unreadable.fail(unreadable_message(repr(name(len(classes))), str(error)))
        return np.array(classes, "int32")

    name = lambda index: f"tfds:{builder.name} {split}[{index}]"
    origin = Origin(
        files=lambda: [(file.name, file) for file in info.filepaths],
        name=name,
        channels=channels,
        unreadable=unreadable,
    )
    return Split(labels, encoded=encoded, origin=origin, size=info.num_examples)


def _reader(builder, split) -> Callable[[np.ndarray], bytes]:
    """Returns a function from an index to a record's bytes."""
    tfds = _tfds()

    form = builder.info.file_format
    if form == tfds.core.FileFormat.TFRECORD:
        info = builder.info.splits[split]
        return Records([os.fspath(path) for path in info.filepaths], info.shard_lengths)
    raw = tfds.decode.DeserializeMethod.RAW_BYTES
    try:
        source = builder.as_data_source(split, deserialize_method=raw)
    except NotImplementedError as error:
        raise ValueError(
            f"Data sets must be prepared as array_record or tfrecord to be read by index. "
            f"Received: tfds:{builder.name} as {form.value}"
        ) from error
    return lambda index: source[int(index)]


class Records:
    """Reads the records of TFRecord files by index; at first, it reads only their lengths.

    Args:
        paths: The files.
        lengths: The number of records that each file should hold.

    Raises:
        ValueError: If a file holds another number of records.
    """

    def __init__(self, paths: list[str], lengths: list[int]):
        self.paths, places = paths, []
        for number, (path, length) in enumerate(zip(paths, lengths, strict=True)):
            records = record_offsets(path)
            if len(records) != length:
                raise ValueError(
                    f"{path!r} must hold {length} records. Received: {len(records)}. Prepare the "
                    "data set again"
                )
            places += [(number, offset, size) for offset, size in records]
        self.places = np.array(places, "int64").reshape(-1, 3)

    def __call__(self, index) -> bytes:
        number, offset, size = self.places[index]
        with open(self.paths[number], "rb", buffering=0) as file:  # ImageNet has 1024 files
            return os.pread(file.fileno(), size, offset)

    def __len__(self):
        return len(self.places)


def record_offsets(path: str) -> list[tuple[int, int]]:
    """Returns the offset and the size in bytes of each whole record of a TFRecord file."""
    records, place, end = [], 0, os.path.getsize(path)
    with open(path, "rb", buffering=0) as file:
        while place + HEADER <= end:
            size = int.from_bytes(os.pread(file.fileno(), 8, place), "little")
            place += HEADER + size + FOOTER
            if place > end:
                break
            records.append((place - FOOTER - size, size))
    return records
