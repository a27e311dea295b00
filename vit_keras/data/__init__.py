"""Labeled images as `tf.data`, for every backend.

`read_image` needs Pillow, and `resize` and `normalize` need NumPy alone. All other names need
TensorFlow, and their modules are imported when the names are first used.
"""

from typing import TYPE_CHECKING

from vit_keras import extras
from vit_keras.data.fingerprints import check_unchanged, recorded_classes
from vit_keras.data.numpy_preprocess import normalize, resize, seen_part, to_uint8
from vit_keras.data.picture_paths import expand_pictures
from vit_keras.data.pillow_images import read_image
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.thumbnails import thumbnail
from vit_keras.lazy_names import lazy_names

if TYPE_CHECKING:
    from vit_keras.data.contact_sheet import captions_of, draw_contact_sheet, pixels_of
    from vit_keras.data.dataset import Dataset
    from vit_keras.data.datasets import DATASETS, load
    from vit_keras.data.duplicates import find_pairs
    from vit_keras.data.feature_batches import StoredFeatures
    from vit_keras.data.feed import Feed, learned_task
    from vit_keras.data.held_out import train_and_test
    from vit_keras.data.label_review import review_labels
    from vit_keras.data.layout import read_layout
    from vit_keras.data.masking import Masking
    from vit_keras.data.masks import holds_masks
    from vit_keras.data.pipeline import eval_batches, sample_images, train_batches
    from vit_keras.data.review import (
        Review,
        review_counts,
        review_files,
        review_pairs,
        review_pictures,
    )
    from vit_keras.data.shards.packing import pack_shards
    from vit_keras.data.splits import Split, from_arrays
    from vit_keras.data.summary import count_classes, describe_splits
    from vit_keras.data.survey import splits_of_run, survey_pictures
    from vit_keras.data.views import Views

MODULES = {  # where the names that need TensorFlow are defined
    "DATASETS": "datasets",
    "Dataset": "dataset",
    "Feed": "feed",
    "Masking": "masking",
    "Review": "review",
    "Split": "splits",
    "StoredFeatures": "feature_batches",
    "Views": "views",
    "captions_of": "contact_sheet",
    "count_classes": "summary",
    "describe_splits": "summary",
    "draw_contact_sheet": "contact_sheet",
    "eval_batches": "pipeline",
    "find_pairs": "duplicates",
    "from_arrays": "splits",
    "learned_task": "feed",
    "holds_masks": "masks",
    "load": "datasets",
    "pack_shards": "shards.packing",
    "pixels_of": "contact_sheet",
    "read_layout": "layout",
    "review_counts": "review",
    "review_files": "review",
    "review_labels": "label_review",
    "review_pairs": "review",
    "review_pictures": "review",
    "sample_images": "pipeline",
    "splits_of_run": "survey",
    "survey_pictures": "survey",
    "train_and_test": "held_out",
    "train_batches": "pipeline",
}

__all__ = [
    "DATASETS",
    "Dataset",
    "Feed",
    "Masking",
    "Review",
    "Split",
    "StoredFeatures",
    "Views",
    "captions_of",
    "check_unchanged",
    "count_classes",
    "describe_splits",
    "draw_contact_sheet",
    "eval_batches",
    "expand_pictures",
    "find_pairs",
    "from_arrays",
    "holds_masks",
    "learned_task",
    "load",
    "normalize",
    "pack_shards",
    "pixels_of",
    "read_ahead",
    "read_image",
    "read_layout",
    "recorded_classes",
    "resize",
    "review_counts",
    "review_files",
    "review_labels",
    "review_pairs",
    "review_pictures",
    "sample_images",
    "seen_part",
    "splits_of_run",
    "survey_pictures",
    "thumbnail",
    "to_uint8",
    "train_and_test",
    "train_batches",
]

_lazy_name = lazy_names(__name__, {k: f"{__name__}.{home}:{k}" for k, home in MODULES.items()})


def __getattr__(name: str):
    if name in MODULES:
        extras.check("tensorflow", extra="data", purpose=f"`vit_keras.data.{name}`")
    return _lazy_name(name)
