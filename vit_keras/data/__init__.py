"""Images and labels as `tf.data`, for every backend."""

from vit_keras.data.datasets import DATASETS, load
from vit_keras.data.feed import Feed
from vit_keras.data.fingerprints import check_unchanged
from vit_keras.data.held_out import train_and_test
from vit_keras.data.masking import Masking
from vit_keras.data.pipeline import eval_batches, sample_images, train_batches
from vit_keras.data.preprocess import normalise, resize
from vit_keras.data.splits import Dataset, Split, from_arrays
from vit_keras.data.tf_images import read_image

__all__ = [
    "DATASETS",
    "Dataset",
    "Feed",
    "Masking",
    "Split",
    "check_unchanged",
    "eval_batches",
    "from_arrays",
    "load",
    "normalise",
    "read_image",
    "resize",
    "sample_images",
    "train_and_test",
    "train_batches",
]
