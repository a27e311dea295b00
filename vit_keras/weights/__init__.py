"""Weights in and out of models, in our format and in other projects'."""

from vit_keras.weights.files import from_checkpoint, load, open_model
from vit_keras.weights.saving import save, save_model

__all__ = ["from_checkpoint", "load", "open_model", "save", "save_model"]
