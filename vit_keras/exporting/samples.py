"""Real images to compare exported files on."""

import numpy as np

from vit_keras.data.depth import as_array, at_levels, to_levels
from vit_keras.models import preprocessing_of, task_of
from vit_keras.support import extras


def photographs(shape: tuple[int, int, int], count: int = 128) -> np.ndarray:
    """Returns fixed crops of scikit-learn's two photographs, `(count, H, W, C)` uint8.

    Args:
        shape: (H, W, C) of the crops.
        count: The number of crops.

    Raises:
        ImportError: If scikit-learn or Pillow is not installed.
    """
    datasets = extras.require("sklearn.datasets")
    Image = extras.require("PIL.Image")

    rng = np.random.default_rng(0)
    height, width, channels = shape
    pictures = [Image.fromarray(picture) for picture in datasets.load_sample_images().images]
    crops = []
    for i in range(count):
        picture = pictures[i % len(pictures)].convert("L" if channels == 1 else "RGB")
        side = rng.integers(64, min(picture.size) + 1)
        left, top = (rng.integers(0, length - side + 1) for length in picture.size)
        box = (left, top, left + side, top + side)
        crops.append(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box)))
    return np.stack(crops).reshape(count, height, width, -1)[..., np.arange(channels) % 3]


def photographs_for(model) -> np.ndarray:
    """Returns the crops of `photographs` with a model's size, channels, and levels."""
    pictures = photographs(model.input_shape[1:])
    return as_array(at_levels(pictures, preprocessing_of(model).levels))


def from_dataset(name: str, model, count: int, config, train: bool = False):
    """Returns images of a data set, `(count, H, W, C)` in the model's depth, and their labels.

    Args:
        name: The data set's name.
        model: The model, whose size and preprocessing the images get.
        count: The number of images for `spread` to draw.
        config: A `DataConfig` that defines the splits.
        train: Whether to draw from the training split instead of the test split.
    """
    from vit_keras import data

    *size, channels = model.input_shape[1:]
    preprocessing = preprocessing_of(model)
    split = data.load(name, channels, config, task_of(model).kind).split(
        config.train_split if train else config.test_split
    )
    batches = data.eval_batches(
        split.part(spread(split, count)),
        image_size=tuple(size),
        preprocessing=preprocessing.unscaled(),
        batch=64,
    )
    images, labels = map(np.concatenate, zip(*batches))
    return to_levels(images, preprocessing.levels), labels


def spread(split, count: int) -> np.ndarray:
    """Returns sorted indices of `count` images, drawn from the whole split.

    The first images would not be representative, because files are mostly sorted by class.
    """
    return np.sort(np.random.default_rng(0).permutation(len(split))[:count])
