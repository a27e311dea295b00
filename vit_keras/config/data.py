"""The configuration of a run's images and their augmentation."""

import dataclasses
import re
from typing import Annotated, Literal

from vit_keras.config.base import Count, Fraction, NotNegative, Percent, Range, Section
from vit_keras.support.checks import ONE_OF_TWO, needs


@dataclasses.dataclass(frozen=True)
class DataConfig(Section, name="data"):
    """The images of a run: where they are, their format, and which ones to use.

    Attributes:
        data_dir: folder of TensorFlow Datasets; null for its default
        manual_dir: folder of archives that TensorFlow Datasets cannot download by itself
        train_split: training split, or a slice of it such as train[:90%]
        test_split: held-out split, or a slice of it
        test_percent: percentage to hold out of image folders and tables without a held-out split
        split_seed: seed that decides which images to hold out
        dev_percent: percentage of the training images to hold out instead of the test split; with
            `fold`, percentage of the images outside the fold on which to choose weights,
            temperature and thresholds
        fold: fold of the training images to hold out instead of the test split, such as [0, 5] for
            the first of five; null for none
        path_column: column of a table that names the pictures; null to detect it
        separator: text between the columns of a CSV table, or tab; null to detect it
        encoding: encoding of a CSV table, such as cp1252; null to detect it
        group_column: column of a table that tells which pictures belong together, such as those of
            one patient; groups are never split
        label_columns: columns of a table that hold the labels, as a list or separated by commas;
            empty for the label column
        label_separator: text between several labels in one cell of a table
        label_pattern: regular expression whose first group is the class in each picture's name,
            such as '^(.+)_[0-9]+'
        unknown: cells of a table that mean unknown, such as -1, as a list or separated by commas
        mask_values: level of each class in masks, such as 0,255, as a list or separated by commas
        mask_colors: color of each class in masks, such as '#000000,#ff0000', in the same form
        on_corrupt: stop the run at an unreadable image, or skip it; at its end, the run counts and
            names the images that it skipped
        workers: threads that read and augment the pictures; null for one per core
        levels: level of white, to which pictures of other depths are scaled: 255, 4095, 65535, or
            float for unchanged values in 0..1; auto to follow the whole data set: float if any
            picture has floats; else, if any has more than 8 bits, 4095, or 65535 for higher
            levels; else 255
        bands: channels of the pictures in the model's order, counted from 1, such as 4 3 2; empty
            for all
        shard_cache_gb: gigabytes on this machine for copies of shards from servers and object
            stores; 0 to read every picture remotely
    """

    data_dir: str | None = None
    manual_dir: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    test_percent: Percent = 10.0
    split_seed: int = 0
    dev_percent: Percent = 0.0
    fold: tuple[int, int] | None = None
    path_column: str | None = None
    separator: str | None = None
    encoding: str | None = None
    group_column: str | None = None
    label_columns: tuple[str, ...] | str = ()
    label_separator: str = "|"
    label_pattern: str | None = None
    unknown: tuple[str, ...] | str | int = ()
    mask_values: tuple[int, ...] | str = ()
    mask_colors: tuple[str, ...] | str = ()
    on_corrupt: Literal["stop", "skip"] = "stop"
    workers: Count | None = None
    levels: Literal["auto", 255, 4095, 65535, "float"] = "auto"
    bands: Annotated[tuple[int, ...], Range(1)] = ()
    shard_cache_gb: NotNegative = 20.0

    RULES = (
        ("mask_values", lambda x: re.fullmatch("[(, 0-9)]*", str(x)), "levels, such as 0,255"),
        (("mask_values", "mask_colors"), *ONE_OF_TWO),
        ("fold", lambda fold: 0 <= fold[0] < fold[1], "[i, k] with i from 0 to k - 1, or null"),
    )

    def __post_init__(self):
        super().__post_init__()
        types = {"label_columns": str, "unknown": str, "mask_colors": str, "mask_values": int}
        for field, kind in types.items():
            if isinstance(value := getattr(self, field), str | int):
                texts = map(str.strip, str(value).split(","))
                object.__setattr__(self, field, tuple(kind(part) for part in texts if part))

    @property
    def white(self) -> float | None:
        """The level of white, as in `Preprocessing.levels`; None while it is unknown."""
        return {"auto": None, "float": 1.0}.get(str(self.levels), self.levels)  # type: ignore


@dataclasses.dataclass(frozen=True)
class AugmentConfig(Section, name="augment"):
    """Random augmentations of the training images, drawn anew for each image.

    Attributes:
        rotation_degrees: largest rotation in either direction
        scale: largest change in the length of the sides, as a fraction
        shift: largest shift along each axis, as a fraction of the side
        flip: mirror half of the images left to right
        crop: resize the whole picture; crop 5 to 100% of the area with a ratio of sides from 3/4
            to 4/3 (inception); resize and crop by the BiT-HyperRule (bit); or crop so that an
            object's IoU with the crop is at least a random number, as in SSD (objects)
        randaugment_layers: number of RandAugment operations per image; 0 for none
        randaugment_magnitude: strength of these operations, 0 to 30 as published
        policy: AutoAugment's policy for ImageNet, in place of RandAugment
        color_jitter: largest change in brightness, contrast, and saturation, as a fraction
        erasing: share of the images in which a random box is replaced with noise
        mixup_alpha: alpha of MixUp's Beta(alpha, alpha); 0 for none
        cutmix_alpha: alpha of CutMix's Beta(alpha, alpha); 0 for none
        library: library for RandAugment: the published operations with Pillow, or those of KerasCV
    """

    rotation_degrees: NotNegative = 0.0
    scale: NotNegative = 0.0
    shift: NotNegative = 0.0
    flip: bool = False
    crop: Literal["resize", "inception", "bit", "objects"] = "resize"
    randaugment_layers: Count = 0
    randaugment_magnitude: Annotated[float, Range(0, 30)] = 10.0
    policy: Literal["none", "autoaugment"] = "none"
    color_jitter: NotNegative = 0.0
    erasing: Fraction = 0.0
    mixup_alpha: NotNegative = 0.0
    cutmix_alpha: NotNegative = 0.0
    library: Literal["pillow", "keras_cv"] = "pillow"

    RULES = (
        needs("randaugment_layers", "policy", "none"),
        needs("mixup_alpha", "library", "pillow"),  # KerasCV would mix other images after a restart
        needs("cutmix_alpha", "library", "pillow"),
    )
