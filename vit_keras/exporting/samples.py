"""Real pictures to compare on where no data set is given."""

import dataclasses

import numpy as np


def photographs(shape: tuple[int, int, int], count: int = 128) -> np.ndarray:
    """`count` crops of scikit-learn's two photographs, `(N, H, W, C)` uint8, the same each time."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    rng = np.random.default_rng(0)
    height, width, channels = shape
    pictures = [Image.fromarray(picture) for picture in load_sample_images().images]
    crops = []
    for i in range(count):
        picture = pictures[i % len(pictures)].convert({1: "L", 4: "RGBA"}.get(channels, "RGB"))
        side = rng.integers(64, min(picture.size) + 1)
        left, top = (rng.integers(0, length - side + 1) for length in picture.size)
        box = (left, top, left + side, top + side)
        crops.append(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box)))
    return np.stack(crops).reshape(count, *shape)


def labelled(name: str, shape, preprocessing, count: int, config, train: bool = False):
    """The first `count` held-out images of a data set, `(N, H, W, C)` uint8, and labels `(N,)`.

    With `train` those that are trained on; `config`, a `DataConfig`, says which these are.
    """
    from vit_keras import data

    split = config.train_split if train else config.test_split
    config = dataclasses.replace(config, test_split=split)
    images = data.sample_images(name, shape, preprocessing, count, config)
    labels = data.load(name, shape[-1], config).split(split).labels
    return images, np.asarray(labels[: len(images)])
