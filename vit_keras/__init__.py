"""The Vision Transformer (arXiv 2010.11929) for Keras 3 on TensorFlow, JAX and PyTorch."""

from vit_keras import _command_line  # first: see there

if not _command_line.is_command():  # which imports them once it has work to do
    from vit_keras import applications, layers, models, training, variants, weights

__version__ = "0.1.0"

__all__ = ["applications", "layers", "models", "training", "variants", "weights"]
