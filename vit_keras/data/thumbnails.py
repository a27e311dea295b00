"""Small copies of pictures."""

import numpy as np

from vit_keras.data.pillow_images import pillow_image


def thumbnail(picture: np.ndarray, side: int) -> np.ndarray:
    """Shrinks a picture until its longer side has `side` pixels; a smaller one stays as it is.

    Args:
        picture: Pixels as uint8, `(H, W, C)` with 1 or 3 channels, as `read_image` gives them.
        side: The most pixels of the longer side.

    Returns:
        The pixels as uint8, `(h, w, 3)`.

    Raises:
        ImportError: If Pillow is not installed.

    Example:
        >>> thumbnail(np.zeros((300, 400, 1), "uint8"), side=100).shape
        (75, 100, 3)
    """
    gray = picture.shape[-1] == 1
    image = pillow_image().fromarray(picture[..., 0] if gray else picture)
    image.thumbnail((side, side))
    return np.asarray(image.convert("RGB"))
