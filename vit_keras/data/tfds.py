"""TensorFlow Datasets by random access, and the 19 tasks of VTAB-1k made from them.

Tasks, splits and labels follow Zhai et al. 2019 (arXiv 1910.04867) and google-research's
task_adaptation (data/*.py). Supplement F of BiT (arXiv 1912.11370) says which tasks allow crops
and mirrored images.
"""

import bisect
import dataclasses
import functools
import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, Source, Split
from vit_keras.data.depth import as_array
from vit_keras.data.picture_files import decode
from vit_keras.data.shards import Shard, Shards, shard_source, size_and_stamp
from vit_keras.data.shards.formats import FORMATS, scan_tfrecord
from vit_keras.support import extras
from vit_keras.support.checks import check_choice

# The feature that decides the class, and a function that maps its value to the class.
Label = tuple[str, Callable[[Any], int]]


def _closest_object(objects):
    nearest = min(place[2] for place in objects["pixel_coords"])
    return bisect.bisect_left((0, 8, 8.5, 9, 9.5, 10, 100), nearest) - 1


def _closest_vehicle(objects):
    """Types 0 to 2 are cars, vans, and trucks; the last class means that there is no vehicle."""
    depths = (place[2] for place, kind in zip(objects["location"], objects["type"]) if kind < 3)
    return bisect.bisect_left((-100, 8, 20, 999), min(depths, default=1000)) - 1


# There are 3 to 10 objects.
COUNT: Label = "objects", lambda objects: len(objects["size"]) - 3
CLOSEST_OBJECT: Label = "objects", _closest_object
CLOSEST_VEHICLE: Label = "objects", _closest_vehicle
# Neighboring classes are merged: 32 positions to 16, and 40 orientations to 16.
X_POSITION: Label = "label_x_position", lambda number: int(number) * 16 // 32
ORIENTATION: Label = "label_orientation", lambda number: int(number) * 16 // 40


def load(name: str, config: DataConfig, *_: Any, vtab: str | None = None) -> Source:
    """Opens a data set, and prepares it first if necessary. Its files are read like shards.

    Args:
        name: A name such as cifar10:3.0.2 or eurosat/rgb.
        config: Gives the location of the files.
        vtab: The VTAB task for which the data set is read.

    Raises:
        ValueError: If the name is unknown, if the data set cannot be prepared, or if it has no
            image or no label. The message gives similar names, the command that prepares the data
            set, or the features that it has.
        ImportError: If TensorFlow Datasets, Pillow, or a package that prepares the data set is not
            installed.
    """
    task, library = TASKS[vtab] if vtab else None, extras.require("tensorflow_datasets")
    info, label = _prepared(name, config).info, task and task.label
    kind = info.file_format.value
    check_choice(kind, ("tfrecord",), f"file_format of tfds:{name}")
    preferred = info.supervised_keys or ("image", "label")
    keys = [*(key for key in preferred if key in info.features), *info.features]
    of_kind = lambda kind: [key for key in keys if type(info.features[key]) is kind]
    images, classes = of_kind(library.features.Image), of_kind(library.features.ClassLabel)
    if not images or not (label or classes):
        raise ValueError(
            "A classifier needs a feature of type Image and one of type ClassLabel. "
            f"Received: tfds:{name} with {info.features}. Choose another data set"
        )
    image, (key, class_of) = images[0], label or (classes[0], int)
    example = library.features.FeaturesDict({k: info.features[k] for k in (image, key)})

    def parse(number, record, column):
        decoders = {image: library.decode.SkipDecoding()}
        values = example.deserialize_example_np(record, decoders=decoders)
        known = int(class_of(values[key]))
        return values[image], None if known < 0 else known

    of_split = lambda info: zip(map(os.fspath, info.filepaths), info.shard_lengths, strict=True)
    files = {
        split: [Shard(path, *size_and_stamp(path), n) for path, n in of_split(of)]
        for split, of in info.splits.items()
        if of.num_examples
    }
    names = map(str, range(task.num_classes)) if task and label else info.features[key].names
    form = FORMATS[kind]._replace(scan=functools.partial(scan_tfrecord, parse=parse))
    shards = Shards(files, form, tuple(names))
    return shard_source(f"tfds:{name}", shards, f"{name} for {vtab}", config)


def _prepared(name, config):
    tfds = extras.require("tensorflow_datasets")
    try:
        builder = tfds.builder(name, data_dir=config.data_dir)
    except tfds.core.registered.DatasetNotFoundError as error:
        hint = " ".join(re.findall("Did you mean.*", str(error)))  # after a list of all names
        raise ValueError(f"TensorFlow Datasets has no {name!r}. {hint}") from error
    if builder.info.splits:
        return builder
    manual = tfds.download.DownloadConfig(manual_dir=config.manual_dir)
    try:
        builder.download_and_prepare(download_config=manual)
    except ImportError:  # a package for some data sets, such as cv2
        raise
    except Exception as error:  # each source raises its own errors
        folders = {"data_dir": config.data_dir, "manual_dir": config.manual_dir}
        options = "".join(f" --{key} {folder}" for key, folder in folders.items() if folder)
        raise ValueError(
            f"tfds:{name} is not prepared in {os.fspath(builder.data_dir)!r}, and preparing it "
            f"failed ({error!r:.300}). With internet access, run: tfds build {name}{options}"
        ) from error
    return builder


NATURAL, SPECIALIZED, STRUCTURED = GROUPS = ("natural", "specialized", "structured")


class Task(NamedTuple):
    """A task of VTAB-1k.

    Attributes:
        dataset: The name and version in TensorFlow Datasets.
        group: "natural", "specialized", or "structured".
        num_classes: The number of classes.
        val200: The 200 images for choosing hyperparameters, in addition to the 800 to train on.
        test: The images for the final result.
        label: What decides the class; None for the data set's own label.
        crop: Whether a crop of an image keeps its label.
        flip: Whether a mirrored image keeps its label.
        small: Whether images have fewer than 96x96 pixels.
        pixel_scale: The factor that brings the stored pixels to [0, 255].
    """

    dataset: str
    group: str
    num_classes: int
    val200: str = "validation[:200]"
    test: str = "test"
    label: Label | None = None
    crop: bool = True
    flip: bool = True
    small: bool = False
    pixel_scale: int = 1


_CLEVR: dict[str, Any] = {"val200": "train[63000:63200]", "test": "validation", "crop": False}
_DSPRITES: dict[str, Any] = {"val200": "train[589824:590024]", "test": "train[663552:]"}
_DSPRITES |= {"small": True, "pixel_scale": 255, "flip": False}
_NORB: dict[str, Any] = {"val200": "test[:200]", "test": "test[50%:]"}

TASKS = {
    "caltech101": Task("caltech101:3.*.*", NATURAL, 102, "train[2754:2954]"),
    "cifar100": Task("cifar100:3.*.*", NATURAL, 100, "train[45000:45200]", small=True),
    "dtd": Task("dtd:3.*.*", NATURAL, 47),
    "oxford_flowers102": Task("oxford_flowers102:2.*.*", NATURAL, 102),
    # The paper used 3.*.*, which can no longer be downloaded.
    "oxford_iiit_pet": Task("oxford_iiit_pet:4.*.*", NATURAL, 37, "train[2944:3144]"),
    "sun397": Task("sun397/tfds:4.*.*", NATURAL, 397),
    "svhn": Task("svhn_cropped:3.*.*", NATURAL, 10, "train[65931:66131]", small=True),
    "patch_camelyon": Task("patch_camelyon:2.*.*", SPECIALIZED, 2),
    "eurosat": Task(
        "eurosat/rgb:2.*.*", SPECIALIZED, 10, "train[16200:16400]", "train[21600:]", small=True
    ),
    "resisc45": Task("resisc45:3.*.*", SPECIALIZED, 45, "train[18900:19100]", "train[25200:]"),
    "diabetic_retinopathy": Task(
        "diabetic_retinopathy_detection/btgraham-300:3.*.*", SPECIALIZED, 5
    ),
    "clevr_count": Task("clevr:3.*.*", STRUCTURED, 8, label=COUNT, **_CLEVR),
    "clevr_distance": Task("clevr:3.*.*", STRUCTURED, 6, label=CLOSEST_OBJECT, **_CLEVR),
    "dmlab": Task("dmlab:2.*.*", STRUCTURED, 6, crop=False),
    # The paper used 3.1.0, which can no longer be prepared; 3.3.0 adds labels for `occluded`.
    "kitti_distance": Task("kitti:3.*.*", STRUCTURED, 4, label=CLOSEST_VEHICLE, crop=False),
    "dsprites_location": Task(
        "dsprites:2.*.*", STRUCTURED, 16, label=X_POSITION, crop=False, **_DSPRITES
    ),
    "dsprites_orientation": Task("dsprites:2.*.*", STRUCTURED, 16, label=ORIENTATION, **_DSPRITES),
    "smallnorb_azimuth": Task(
        "smallnorb:2.*.*", STRUCTURED, 18, label=("label_azimuth", int), flip=False, **_NORB
    ),
    "smallnorb_elevation": Task(
        "smallnorb:2.*.*", STRUCTURED, 9, label=("label_elevation", int), **_NORB
    ),
}


def load_vtab(name: str, config: DataConfig, *_: Any) -> Source:
    """Opens a task of VTAB-1k.

    Returns:
        Pictures with the splits "train800", "val200", "train" (both together), and "test".

    Raises:
        ValueError: If the task is unknown, or if `load` cannot open its data set.
    """
    check_choice(name, TASKS, "vtab")
    task = TASKS[name]
    source = load(task.dataset, config, vtab=name)
    whole = Dataset(source.name, {key: Split(source, of) for key, of in source.splits.items()}, ())
    slices = {"train800": "train[:800]", "val200": task.val200, "test": task.test}
    slices["train"] = f"{slices['train800']}+{task.val200}"
    splits = {key: whole.split(part).indices for key, part in slices.items()}
    read = source.read
    if task.pixel_scale != 1:
        read = lambda i: as_array(decode(source.read(i), None)) * task.pixel_scale
    return dataclasses.replace(source, name=f"vtab:{name}", splits=splits, read=read)
