"""The Vision Transformer (arXiv 2010.11929) for Keras 3 on TensorFlow, JAX and PyTorch."""

from vit_keras import _command_line  # noqa: F401 - first: see there

from vit_keras import applications, layers, models, training, variants, weights  # isort: skip

__version__ = "0.1.0"

__all__ = ["applications", "layers", "models", "training", "variants", "weights"]
