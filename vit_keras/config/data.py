"""The images of a run, and how they are changed for training."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the images lie and which are used.

    Attributes:
        data_dir: folder of TensorFlow Datasets; null for its own default
        manual_dir: folder of archives that TensorFlow Datasets cannot download by itself
        train_split: name of the training split, or a slice of it such as train[:90%]
        test_split: name of the split that is held out, or a slice
        test_percent: held out of image folders and tables without a split of their own
        split_seed: decides which images those are
        dev_percent: of the training images, held out in the stead of the test split
        on_corrupt: what an unreadable image does: stop the run, or be replaced by the next one,
            counted and named at the end
    """

    data_dir: str | None = None
    manual_dir: str | None = None
    train_split: str = "train"
    test_split: str = "test"
    test_percent: float = 10.0
    split_seed: int = 0
    dev_percent: float = 0.0
    on_corrupt: Literal["stop", "skip"] = "stop"

    def __post_init__(self):
        for name in ("test_percent", "dev_percent"):
            percent = getattr(self, name)
            if not 0 <= percent < 100:
                raise ValueError(f"`{name}` must lie in [0, 100). Received: {percent}")


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """Random changes of the training images, drawn anew for each.

    Attributes:
        rotation_degrees: turned by up to this much either way
        scale: sides scaled by up to this fraction either way
        shift: moved by up to this fraction of the side either way, on each axis
        flip: mirrored left to right half of the time
        crop: resize the whole picture; cut out an inception crop, of 5 to 100 % of the area and
            a ratio of sides from 3/4 to 4/3; or resize and crop by the BiT-HyperRule
        randaugment_layers: operations of RandAugment an image; 0 for none
        randaugment_magnitude: their strength, 0 to 30 as published
        mixup_alpha: of MixUp's Beta(alpha, alpha); 0 for none
        cutmix_alpha: of CutMix' Beta(alpha, alpha); 0 for none
        library: whose RandAugment; MixUp and CutMix are Keras' (KerasCV's would not resume)
    """

    rotation_degrees: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    flip: bool = False
    crop: Literal["resize", "inception", "bit"] = "resize"
    randaugment_layers: int = 0
    randaugment_magnitude: float = 10.0
    mixup_alpha: float = 0.0
    cutmix_alpha: float = 0.0
    library: Literal["keras", "keras_cv"] = "keras"

    def __post_init__(self):
        if not 0 <= self.randaugment_magnitude <= 30:
            raise ValueError(
                "`randaugment_magnitude` must lie in [0, 30]. Received: "
                f"{self.randaugment_magnitude}"
            )
        for name in ("randaugment_layers", "mixup_alpha", "cutmix_alpha"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {getattr(self, name)}")
        if self.library == "keras_cv" and (self.mixup_alpha or self.cutmix_alpha):
            raise ValueError(
                "MixUp and CutMix of keras_cv shuffle by tf.random.shuffle, which takes no key, so "
                "that a resumed run would mix other images. Use library: keras. Received: "
                f"library='keras_cv', mixup_alpha={self.mixup_alpha}, "
                f"cutmix_alpha={self.cutmix_alpha}"
            )
