"""Weights in and out of models."""

from vit_keras.weights.download import fetch, resolve
from vit_keras.weights.files import load
from vit_keras.weights.table import lookup, names

__all__ = ["fetch", "load", "lookup", "names", "resolve"]
