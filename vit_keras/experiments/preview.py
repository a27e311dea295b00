"""The images that a run would train on first."""

import dataclasses

import numpy as np

from vit_keras import data
from vit_keras.config import Config, PretextConfig
from vit_keras.experiments.starting_point import complete_model, initial_model


def first_training_images(
    config: Config, dataset: data.Dataset, count: int = 36
) -> tuple[np.ndarray, np.ndarray]:
    """Makes the first images of a run by its own pipeline, augmented, and turns them to pixels.

    Args:
        config: The run. Patches that its pretext task masks are shown.
        dataset: The run's data set.
        count: The number of images, even; fewer if there are fewer to train on.

    Returns:
        The images, `(N, H, W, C)` uint8, and their labels, one-hot or mixed, `(N, K)`.

    Raises:
        ValueError: If the configuration does not suit the data set, or if an image cannot be read.
    """
    train, _ = data.train_and_test(dataset, config.data)
    config = complete_model(config).count_steps(len(train))
    model = initial_model(config, dataset.class_names)
    count = min(count, max(2, len(train) // 2 * 2))  # whole pairs, which are mixed
    whole_batches = dataclasses.replace(config.optimizer, accumulation_steps=1)
    few = dataclasses.replace(config, batch=count, optimizer=whole_batches, pretext=PretextConfig())
    feed = data.Feed(dataset, few, model.input_shape[1:3], model.preprocessing)
    with train.reading():
        images, labels = next(iter(feed.training(0)))
    return data.pixels_of(images.numpy(), model.preprocessing), labels.numpy()
