"""The names that the blocks of a page take for granted, such as `model` and `images`."""

import importlib

import numpy as np

from vit_keras import models


def _inspection():
    model = models.VisionTransformer(64, 16, 24, 3, 2, 48, num_classes=2)
    images = np.random.default_rng(0).normal(size=(4, 64, 64, 3)).astype("float32")
    pictures = np.zeros((4, 64, 64, 3), "uint8")
    layer = model.get_layer("encoderblock_0")
    return {"model": model, "images": images, "pictures": pictures, "layer": layer}


def _labeled():
    return {"images": np.zeros((4, 224, 224, 3), "float32"), "labels": np.arange(4)}


def _small():
    model = models.VisionTransformer(32, 16, 24, 2, 2, 48, num_classes=4, dropout_rate=0.1)
    images = np.random.default_rng(0).normal(size=(4, 32, 32, 3)).astype("float32")
    return {"model": model, "images": images, "labels": np.arange(4)}


def _with_timm():
    importlib.import_module("benchmarks.torchvision_operators")  # before timm
    return _small()


def of_page(page: str) -> dict:
    """A namespace with the names of a page."""
    return {"__name__": "__main__", **(PRESENT[page]() if page in PRESENT else {})}


PRESENT = {
    "docs/inspection.md": _inspection,
    "docs/export.md": lambda: {"images": np.zeros((2, 64, 64, 3), "uint8")},
    "docs/finetuning.md": _labeled,
    "docs/without_keras.md": _with_timm,
    "docs/small_batches.md": _small,
    "docs/neighbors.md": _labeled,
}
