"""Weights in and out of models."""

from vit_keras.weights.files import load

__all__ = ["load"]
