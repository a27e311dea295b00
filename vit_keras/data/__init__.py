"""Images and labels as `tf.data`, for every backend."""

from vit_keras.data.datasets import DATASETS, Dataset, Split, load
from vit_keras.data.pipeline import eval_batches, one_hot, sample_images, train_batches
from vit_keras.data.preprocess import normalise, read_image, resize

__all__ = [
    "DATASETS",
    "Dataset",
    "Split",
    "eval_batches",
    "load",
    "normalise",
    "one_hot",
    "read_image",
    "resize",
    "sample_images",
    "train_batches",
]
