"""The images that a run would train on first."""

import dataclasses

import numpy as np

from vit_keras import data
from vit_keras.config import Config, PretextConfig
from vit_keras.experiments.starting_point import complete_model, initial_model
from vit_keras.tasks import Task


def first_training_images(
    config: Config, count: int = 36
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...], Task]:
    """Makes the first images of a run by its own pipeline, augmented, and turns them to pixels.

    Args:
        config: The run. Patches that its pretext task masks are shown; of DINO's views, the first.
        count: The number of images, even; fewer if there are fewer to train on.

    Returns:
        The images, `(N, H, W, C)` uint8, or float32 of more than 8 bits; what the model learns of
        them, `(N, K)`, such as one-hot or mixed classes; the names of the outputs; and the task.

    Raises:
        ValueError: If the configuration does not suit the data set, or if an image cannot be read.
        OSError: If the data set or the weights cannot be read.

    Example:
        ```python
        config = vit_keras.config.read_config("digits")
        images, *described = experiments.first_training_images(config, count=16)
        data.draw_contact_sheet(images, data.captions_of(*described)).save("sheet.png")
        ```
    """
    config = complete_model(config)
    dataset = data.load(config.dataset, config.model.channels, config.data, config.task)
    config = dataclasses.replace(config, data=data.complete_levels(config.data, dataset))
    train, *_ = data.train_dev_test(dataset, config.data)
    task = data.learned_task(dataset, train, config)
    model = initial_model(config, dataset.class_names, task)
    count = min(count, max(2, len(train) // 2 * 2))  # whole pairs, which are mixed
    one_batch = dataclasses.replace(
        config,
        batch=count,
        epochs=None,
        total_steps=1,
        steps_per_execution=1,
        optimizer=dataclasses.replace(config.optimizer, accumulation_steps=1),
        pretext=PretextConfig(),
    )
    images_of = (model.input_shape[1:3], model.preprocessing)
    feed = lambda run: data.Feed(dataset, run, *images_of, task=task)
    with dataset.unreadable.reading():
        ((images, labels),) = feed(one_batch).training(0)
        if config.pretext.is_dino:  # the views of the same images
            one_batch = dataclasses.replace(one_batch, pretext=config.pretext)
            (((views, _), _),) = feed(one_batch).training(0)
            images = views[:, 0]
    pixels = data.pixels_of(images, model.preprocessing)
    return pixels, labels, dataset.class_names, task
