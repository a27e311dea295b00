"""`predict` of images in memory on torch."""

import keras
import numpy as np
import torch

from vit_keras.layers.kernels.array_batches import batches_of, joined


def predict_array(model, images, batch_size: int | None):
    """What `model.predict` returns for an array, or None where Keras has to predict."""
    batches = batches_of(images, batch_size)
    if not batches:
        return None
    if model.training:  # a torch module's own mode, which Keras sets too
        model.eval()
    model.make_predict_function()
    with torch.inference_mode():
        return joined([model.predict_function([(_tensor(batch),)]) for batch in batches])


def _tensor(images):
    """The images on the device of the model; torch warns of memory that cannot be written to."""
    images = np.require(images, requirements=["C", "W"])
    return keras.ops.convert_to_tensor(torch.from_numpy(images))
