"""Resizes weights: position embeddings for other grids, patch kernels for other sizes."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.lazy_names import typed_names

if TYPE_CHECKING:
    from vit_keras.support.resizing.interpolation import (
        INTERPOLATIONS,
        Resizing,
        adapt_patch_kernel,
        change_channels,
        resample_patch_kernel,
        resize_axis_embeddings,
        resize_position_embeddings,
        resize_relative_table,
    )

__getattr__, __all__ = typed_names(__name__)
