"""Patch kernels for other channels and other patch sizes, in NumPy."""

import numpy as np

from vit_keras.resizing.interpolation import INTERPOLATIONS


def adapt_patch_kernel(
    kernel: np.ndarray, patch_size: tuple[int, int], channels: int, interpolation: str
) -> np.ndarray:
    """`(p_h, p_w, C, D)` as a kernel of another `patch_size` and number of `channels`."""
    return resample_patch_kernel(change_channels(kernel, channels), patch_size, interpolation)


def change_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """The kernel for another number of input channels, as timm does.

    One channel takes the sum of all, so that grey pictures give what their RGB copies gave;
    more take the old ones in turn, scaled by old / new to keep the size of the sum.
    """
    old = kernel.shape[2]
    if channels == old:
        return kernel
    if channels == 1:
        return kernel.sum(axis=2, keepdims=True, dtype="float64").astype(kernel.dtype)
    repeated = np.take(kernel, np.arange(channels) % old, axis=2)
    return (repeated * (old / channels)).astype(kernel.dtype)


def resample_patch_kernel(
    kernel: np.ndarray, patch_size: tuple[int, int], interpolation: str = "bilinear_half_pixel"
) -> np.ndarray:
    """The kernel for another patch size by FlexiViT's pseudo-inverse (arXiv 2212.08013, Eq. 4).

    With B the matrix that resizes a patch, `pinv(Bᵀ) w` gives resized patches, where they are
    larger, the embeddings that `w` gave the old ones.
    """
    if kernel.shape[:2] == tuple(patch_size):
        return kernel
    matrix = INTERPOLATIONS[interpolation]
    rows, columns = (
        np.linalg.pinv(matrix(old, new).T) for old, new in zip(kernel.shape[:2], patch_size)
    )  # (new, old) each: B is their Kronecker product
    resampled = np.einsum("ah,bw,hwcd->abcd", rows, columns, kernel.astype("float64"))
    return resampled.astype(kernel.dtype)
