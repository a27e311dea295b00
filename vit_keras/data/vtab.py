"""The 19 tasks of VTAB-1k (Zhai et al. 2019, arXiv 1910.04867), with 1000 training images each.

Data sets, splits, and labels follow google-research/task_adaptation (data/*.py). BiT's
Supplementary F (arXiv 1912.11370) says which tasks may be cropped and mirrored.
"""

import dataclasses
from typing import Any

from vit_keras.config import DataConfig
from vit_keras.data import tfds
from vit_keras.data.dataset import Dataset
from vit_keras.data.labels import CLOSEST_OBJECT, CLOSEST_VEHICLE, COUNT, Label, feature, grouped
from vit_keras.data.splits import joined

NATURAL, SPECIALIZED, STRUCTURED = GROUPS = ("natural", "specialized", "structured")


@dataclasses.dataclass(frozen=True)
class Task:
    """A task of VTAB-1k.

    Attributes:
        dataset: The name and version in TensorFlow Datasets.
        group: Natural, specialized, or structured.
        num_classes: The number of classes.
        val200: The 200 images for the choice of hyperparameters, with `train800` to train on.
        test: The images that the result is measured on.
        label: Computes the class of an example; None if it is the data set's label.
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

    train800 = "train[:800]"


_CLEVR: dict[str, Any] = {"val200": "train[63000:63200]", "test": "validation", "crop": False}
_DSPRITES: dict[str, Any] = {"val200": "train[589824:590024]", "test": "train[663552:]"}
_DSPRITES |= {"small": True, "pixel_scale": 255, "flip": False}
_NORB: dict[str, Any] = {"val200": "test[:200]", "test": "test[50%:]"}

TASKS = {
    "caltech101": Task("caltech101:3.*.*", NATURAL, 102, "train[2754:2954]"),
    "cifar100": Task("cifar100:3.*.*", NATURAL, 100, "train[45000:45200]", small=True),
    "dtd": Task("dtd:3.*.*", NATURAL, 47),
    "oxford_flowers102": Task("oxford_flowers102:2.*.*", NATURAL, 102),
    # Published with 3.*.*, which can no longer be downloaded.
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
    # Published with 3.1.0, which can no longer be prepared; 3.3.0 adds labels for `occluded`.
    "kitti_distance": Task("kitti:3.*.*", STRUCTURED, 4, label=CLOSEST_VEHICLE, crop=False),
    "dsprites_location": Task(
        "dsprites:2.*.*",
        STRUCTURED,
        16,
        label=grouped("label_x_position", 32, 16),
        crop=False,
        **_DSPRITES,
    ),
    "dsprites_orientation": Task(
        "dsprites:2.*.*", STRUCTURED, 16, label=grouped("label_orientation", 40, 16), **_DSPRITES
    ),
    "smallnorb_azimuth": Task(
        "smallnorb:2.*.*", STRUCTURED, 18, label=feature("label_azimuth"), flip=False, **_NORB
    ),
    "smallnorb_elevation": Task(
        "smallnorb:2.*.*", STRUCTURED, 9, label=feature("label_elevation"), **_NORB
    ),
}


def load(name: str, channels: int, config: DataConfig) -> Dataset:
    """Opens a task.

    Returns:
        A data set with the splits "train800", "val200", both together as "train", and "test".

    Raises:
        ValueError: If the task is unknown, or if `tfds.load` cannot open its data set.
    """
    if name not in TASKS:
        raise ValueError(
            f"`vtab:` must be followed by one of {', '.join(TASKS)}. "
            f"Received: dataset={f'vtab:{name}'!r}"
        )
    task = TASKS[name]
    whole = tfds.load(task.dataset, channels, config, task.label)
    slices = {"train800": task.train800, "val200": task.val200, "test": task.test}
    splits = {key: _scaled(whole.split(part), task.pixel_scale) for key, part in slices.items()}
    splits["train"] = joined(splits["train800"], splits["val200"])
    names = whole.class_names if task.label is None else tuple(map(str, range(task.num_classes)))
    return Dataset(f"vtab:{name}", splits, names, whole.unreadable)


def _scaled(split, factor):
    origin = dataclasses.replace(split.origin, pixel_scale=factor)
    return split.with_origin(origin)
