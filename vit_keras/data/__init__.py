"""Labeled images, and batches of them for `fit`, by Pillow and NumPy on every backend.

The modules of most names are imported when the names are first used.
"""

from typing import TYPE_CHECKING

from vit_keras.data.fingerprints import check_unchanged, recorded_classes
from vit_keras.data.picture_paths import expand_pictures
from vit_keras.data.pillow_images import read_image, thumbnail
from vit_keras.data.read_ahead import read_ahead
from vit_keras.data.transforms import normalize, pixels_of, resize, seen_part, to_uint8
from vit_keras.lazy_names import lazy_names

if TYPE_CHECKING:
    from vit_keras.data.dataset import Dataset
    from vit_keras.data.datasets import DATASETS, load
    from vit_keras.data.feature_batches import StoredFeatures
    from vit_keras.data.feed import Feed, learned_task
    from vit_keras.data.folder import read_layout
    from vit_keras.data.held_out import train_and_test, train_dev_test
    from vit_keras.data.levels import complete_levels
    from vit_keras.data.masking import Masking
    from vit_keras.data.masks import holds_masks
    from vit_keras.data.pipeline import eval_batches, sample_images, train_batches
    from vit_keras.data.review import (
        Review,
        captions_of,
        count_classes,
        describe_splits,
        draw_contact_sheet,
        review_counts,
        review_files,
        review_labels,
        review_pairs,
        review_pictures,
    )
    from vit_keras.data.shards.packing import pack_shards
    from vit_keras.data.splits import Split, from_arrays
    from vit_keras.data.survey import find_pairs, splits_of_run, survey_pictures
    from vit_keras.data.views import Views

MODULES = {  # where these names are defined
    "DATASETS": "datasets",
    "Dataset": "dataset",
    "Feed": "feed",
    "Masking": "masking",
    "Review": "review",
    "Split": "splits",
    "StoredFeatures": "feature_batches",
    "Views": "views",
    "captions_of": "review",
    "complete_levels": "levels",
    "count_classes": "review",
    "describe_splits": "review",
    "draw_contact_sheet": "review",
    "eval_batches": "pipeline",
    "find_pairs": "survey",
    "from_arrays": "splits",
    "learned_task": "feed",
    "holds_masks": "masks",
    "load": "datasets",
    "pack_shards": "shards.packing",
    "read_layout": "folder",
    "review_counts": "review",
    "review_files": "review",
    "review_labels": "review",
    "review_pairs": "review",
    "review_pictures": "review",
    "sample_images": "pipeline",
    "splits_of_run": "survey",
    "survey_pictures": "survey",
    "train_and_test": "held_out",
    "train_dev_test": "held_out",
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
    "complete_levels",
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
    "train_dev_test",
]

__getattr__ = lazy_names(__name__, {k: f"{__name__}.{home}:{k}" for k, home in MODULES.items()})
