"""Labeled images and batches of them for `fit`, read with Pillow and NumPy on every backend.

A module is imported when one of its names is first used.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.data.batches import feature_batches, write_features
    from vit_keras.data.boxes import holds_boxes
    from vit_keras.data.cropping import normalize, pixels_of, resize, seen_part, to_uint8
    from vit_keras.data.dataset import Dataset, Split, count_classes, from_arrays
    from vit_keras.data.files import read_layout
    from vit_keras.data.held_out import train_dev_test
    from vit_keras.data.labels import captions_of
    from vit_keras.data.masks import holds_masks
    from vit_keras.data.picture_files import read_image, thumbnail
    from vit_keras.data.picture_paths import expand_pictures
    from vit_keras.data.pipeline import Feed, eval_batches, learned_task, train_batches, with_texts
    from vit_keras.data.pretext import Masking, Views
    from vit_keras.data.review import (
        Review,
        describe_splits,
        find_pairs,
        splits_of_run,
        survey_pictures,
    )
    from vit_keras.data.shards import pack_shards
    from vit_keras.data.sources import (
        SOURCES,
        check_unchanged,
        complete_levels,
        load,
        recorded_classes,
    )

__getattr__, __all__ = typed_names(__name__)
