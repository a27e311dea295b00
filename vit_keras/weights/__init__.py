"""Weights in and out of models."""

from vit_keras.weights.files import load, open_model, save_model

__all__ = ["load", "open_model", "save_model"]
