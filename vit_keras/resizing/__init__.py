"""Resizes weights: position embeddings to other grids, patch kernels to other sizes."""

from vit_keras.resizing.interpolation import INTERPOLATIONS
from vit_keras.resizing.patch_kernels import (
    adapt_patch_kernel,
    change_channels,
    resample_patch_kernel,
)
from vit_keras.resizing.positions import (
    resize_axis_embeddings,
    resize_position_embeddings,
    resize_relative_table,
)
from vit_keras.resizing.rules import Resizing

__all__ = [
    "INTERPOLATIONS",
    "Resizing",
    "adapt_patch_kernel",
    "change_channels",
    "resample_patch_kernel",
    "resize_axis_embeddings",
    "resize_position_embeddings",
    "resize_relative_table",
]
