"""Models to export, and what a reader makes of their answers."""

import numpy as np

from tests.helpers import randomise
from vit_keras import exporting
from vit_keras.models import VisionTransformer


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def small(rng, **given):
    return randomise(VisionTransformer((8, 12), 4, 12, 2, 3, 20, 5, **given), rng)


def files(model, folder, images, **given):
    """A row for each of its three files in float32, exported into `folder`."""
    return exporting.export(
        model,
        folder,
        images=images,
        formats=["savedmodel", "litert", "onnx"],
        precisions=["fp32"],
        threads=(),
        **given,
    )
