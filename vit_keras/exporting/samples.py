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
    """`count` held-out images of a data set, `(N, H, W, C)` uint8, and their labels `(N,)`.

    They are drawn by `spread`. With `train` they are of those that are trained on; `config`, a
    `DataConfig`, says which these are.
    """
    from vit_keras import data

    parts = config.train_split if train else config.test_split
    split = data.load(name, shape[-1], config).split(parts)
    batches = data.eval_batches(
        split.part(spread(split, count)),
        image_size=tuple(shape[:2]),
        preprocessing=dataclasses.replace(preprocessing, mean=(0.0,), std=(1 / 255,)),  # pixels
        batch=64,
    )
    images, labels = (np.concatenate(parts) for parts in zip(*batches.as_numpy_iterator()))
    return np.clip(np.round(images), 0, 255).astype("uint8"), labels


def spread(split, count: int, seed: int = 0) -> np.ndarray:
    """Indices of `count` images of a split, in order: each class by its share, else at random.

    Files mostly lie sorted by class, where the first ones are of one. Labels that lie beside the
    images, as in TFRecords, are not read for this: there the draw is plain.
    """
    order = np.random.default_rng(seed).permutation(len(split))
    if split.labels_are_known:
        _, classes, sizes = np.unique(split.labels[order], return_inverse=True, return_counts=True)
        by_class = np.argsort(classes, kind="stable")
        rank = np.empty(len(split))
        rank[by_class] = np.arange(len(split)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        order = order[np.argsort((rank + 0.5) / sizes[classes], kind="stable")]
    return np.sort(order[:count])
