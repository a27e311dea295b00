"""`predict` of images in memory on torch, without Keras' loader and callbacks around each batch.

For one small image these take as long as a twentieth of the model.
"""

import keras
import numpy as np
import torch


def predict_array(model, images, batch_size: int | None):
    """What `model.predict` returns for an array of images, batch by batch.

    Args:
        model: The model.
        images: The images.
        batch_size: The images of a batch; None for Keras' 32.

    Returns:
        Arrays in the structure of the model's output, or None where `images` are not a float32
        array, or a distribution over devices is set, so that Keras has to predict.
    """
    size = 32 if batch_size is None else batch_size
    is_plain = isinstance(images, np.ndarray) and images.dtype == np.float32
    if not is_plain or not len(images) or size < 1 or keras.distribution.distribution() is not None:
        return None
    if model.training:  # a torch module's own mode, which Keras sets too
        model.eval()
    model.make_predict_function()
    with torch.inference_mode():
        outputs = [
            model.predict_function([(_tensor(images[start : start + size]),)])
            for start in range(0, len(images), size)
        ]
    return keras.tree.map_structure(_joined, *outputs)


def _tensor(images):
    """The images on the device of the model; torch warns of memory that cannot be written to."""
    return keras.ops.convert_to_tensor(
        torch.from_numpy(np.require(images, requirements=["C", "W"]))
    )


def _joined(*batches):
    return np.concatenate([keras.ops.convert_to_numpy(batch) for batch in batches])
