"""Small models to export, and their files."""

import numpy as np

from tests.helpers import randomise
from vit_keras import exporting
from vit_keras.models import VisionTransformer


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def small_model(rng, **arguments):
    """A Vision Transformer with random weights, for images (8, 12, 3) and 5 classes."""
    return randomise(VisionTransformer((8, 12), 4, 12, 2, 3, 20, 5, **arguments), rng)


def export_files(model, folder, images, **options):
    """Exports a SavedModel, a TFLite and an ONNX file in float32; returns their rows."""
    return exporting.export(
        model,
        folder,
        images=images,
        formats=["savedmodel", "litert", "onnx"],
        precisions=["fp32"],
        threads=(),
        **options,
    )
