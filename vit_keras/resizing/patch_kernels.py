"""Patch kernels for other numbers of channels and other patch sizes, in NumPy."""

import numpy as np

from vit_keras.resizing.interpolation import interpolation_rule


def adapt_patch_kernel(
    kernel: np.ndarray, patch_size: tuple[int, int], channels: int, interpolation: str
) -> np.ndarray:
    """Adapts a kernel to a patch size and a number of channels.

    Args:
        kernel: `(p_h, p_w, C, D)`.
        patch_size: The new height and width in pixels.
        channels: The new number of channels.
        interpolation: The name of a rule in `INTERPOLATIONS`.

    Returns:
        `(*patch_size, channels, D)`.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> kernel = np.ones((16, 16, 3, 768), "float32")
        >>> adapt_patch_kernel(kernel, (32, 32), 1, "bicubic").shape  # for gray pictures
        (32, 32, 1, 768)
    """
    return resample_patch_kernel(change_channels(kernel, channels), patch_size, interpolation)


def change_channels(kernel: np.ndarray, channels: int) -> np.ndarray:
    """Changes the number of input channels of a kernel `(p_h, p_w, C, D)`, as timm does.

    One channel takes the sum of all channels, so that gray pictures give what their RGB copies
    gave. More channels take the old ones in turn, scaled by old / new to keep the size of the sum.

    Example:
        >>> change_channels(np.array([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1), 1).ravel()
        array([6.])
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
    """Resamples a kernel to another patch size by FlexiViT's pseudo-inverse.

    Let B be the matrix that resizes a patch. The kernel `pinv(Bᵀ) w` then gives resized patches,
    if they are larger, the embeddings that `w` gave the old patches (arXiv 2212.08013, Eq. 4).

    Args:
        kernel: `(p_h, p_w, C, D)`.
        patch_size: The new height and width in pixels.
        interpolation: The name of the rule that resizes patches, in `INTERPOLATIONS`.

    Returns:
        `(*patch_size, C, D)`.

    Raises:
        ValueError: If there is no such rule.

    Example:
        >>> resample_patch_kernel(np.ones((1, 1, 1, 1)), (2, 2)).ravel()
        array([0.25, 0.25, 0.25, 0.25])
    """
    rule = interpolation_rule(interpolation)
    if kernel.shape[:2] == tuple(patch_size):
        return kernel
    rows, columns = (
        np.linalg.pinv(rule(old, new).T) for old, new in zip(kernel.shape[:2], patch_size)
    )  # (new, old) each: B is their Kronecker product
    resampled = np.einsum("ah,bw,hwcd->abcd", rows, columns, kernel.astype("float64"))
    return resampled.astype(kernel.dtype)
