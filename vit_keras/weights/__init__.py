"""Weights in and out of models, in every project's format; the published ones by name."""

from vit_keras.weights.download import fetch, resolve
from vit_keras.weights.files import from_checkpoint, load, open_model
from vit_keras.weights.saving import save, save_model
from vit_keras.weights.table import lookup, names

__all__ = [
    "fetch",
    "from_checkpoint",
    "load",
    "lookup",
    "names",
    "open_model",
    "resolve",
    "save",
    "save_model",
]
