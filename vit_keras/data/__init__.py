"""Labeled images as `tf.data`, for every backend.

`read_image` needs Pillow, and `resize` and `normalize` need NumPy alone. All other names need
TensorFlow, and their modules are imported when the names are first used.
"""

import importlib
from typing import TYPE_CHECKING

from vit_keras import extras
from vit_keras.data.fingerprints import check_unchanged
from vit_keras.data.numpy_preprocess import normalize, resize, seen_part
from vit_keras.data.picture_paths import expand_pictures
from vit_keras.data.pillow_images import read_image
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.thumbnails import thumbnail

if TYPE_CHECKING:
    from vit_keras.data.dataset import Dataset
    from vit_keras.data.datasets import DATASETS, load
    from vit_keras.data.feed import Feed
    from vit_keras.data.held_out import train_and_test
    from vit_keras.data.masking import Masking
    from vit_keras.data.pipeline import eval_batches, sample_images, train_batches
    from vit_keras.data.splits import Split, from_arrays
    from vit_keras.data.summary import describe_splits

MODULES = {  # where the names that need TensorFlow are defined
    "DATASETS": "datasets",
    "Dataset": "dataset",
    "Feed": "feed",
    "Masking": "masking",
    "Split": "splits",
    "describe_splits": "summary",
    "eval_batches": "pipeline",
    "from_arrays": "splits",
    "load": "datasets",
    "sample_images": "pipeline",
    "train_and_test": "held_out",
    "train_batches": "pipeline",
}

__all__ = [
    "DATASETS",
    "Dataset",
    "Feed",
    "Masking",
    "Split",
    "check_unchanged",
    "describe_splits",
    "eval_batches",
    "expand_pictures",
    "from_arrays",
    "load",
    "normalize",
    "read_ahead",
    "read_image",
    "resize",
    "sample_images",
    "seen_part",
    "thumbnail",
    "train_and_test",
    "train_batches",
]


def __getattr__(name: str):
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extras.check("tensorflow", extra="data", purpose=f"`vit_keras.data.{name}`")
    return getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)
