"""The depth and channels of pictures: levels, bands, and how to view them."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.support import extras
from vit_keras.support.preprocessing import as_numbers

Picture = Any  # a `PIL.Image.Image` or an array `(H, W, C)`
Bands = Sequence[int]  # channels of a file in a model's order, counted from 1; empty for all
WHOLE = {"uint8": 255, "uint16": 65535}  # integer types and their highest level
LEAST_OF_16 = 4096  # the first level above 12 bits
GRAY = (0.299, 0.587, 0.114)  # shares of red, green, and blue in a gray level, as in Pillow


def pillow(module: str = "Image") -> Any:
    """Imports a module of Pillow; without it, an ImportError names the extra to install."""
    return extras.require(f"PIL.{module}")


def as_picture(pixels: np.ndarray) -> Picture:
    """Returns pixels `(H, W, C)` as a picture."""
    if pixels.dtype != np.uint8 or pixels.shape[-1] not in (1, 3):
        return pixels
    return pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)


def as_array(picture: Picture) -> np.ndarray:
    """Returns the pixels of a picture, `(H, W, C)`."""
    pixels = np.asarray(picture)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def choose_channels(
    pixels: np.ndarray, colors: int, channels: int | None, bands: Bands = ()
) -> np.ndarray:
    """Returns the channels of a picture that a model takes.

    Args:
        pixels: `(H, W, C)`.
        colors: The number of leading channels that are colors, not transparency.
        channels: The number of channels of the model; None for all colors.
        bands: The channels of the file in the model's order, counted from 1 as in GDAL; empty for
            all of them.

    Raises:
        ValueError: If the picture does not have these channels. Gray becomes RGB, RGB becomes
            gray, and transparency is dropped, but nothing else is guessed.
    """
    count = pixels.shape[-1]
    if bands:
        if max(bands) > count:
            raise ValueError(
                f"it has {count} channels, but `data.bands` asks for band {max(bands)}"
            )
        pixels = pixels[..., np.array(bands) - 1]
        count = colors = len(bands)
    if channels == count:
        return pixels
    pixels = pixels[..., :colors]
    if channels in (None, colors):
        return pixels
    if (colors, channels) == (1, 3):
        return pixels.repeat(3, axis=-1)
    if (colors, channels) == (3, 1):
        gray = (pixels @ np.array(GRAY))[..., None]
        return (gray if pixels.dtype == np.float32 else np.rint(gray)).astype(pixels.dtype)
    raise ValueError(
        f"it has {count} channels, but the model takes {channels}. Set model.channels to {count}, "
        f"or choose some, as with --data.bands {' '.join(map(str, range(1, (channels or 1) + 1)))}"
    )


def at_levels(picture: Picture, levels: float | None) -> Picture:
    """Brings a picture to the levels of a model.

    8-bit pictures are scaled so that white stays white. 16-bit levels are kept for a model of 12 or
    16 bits, and scaled for a model of 8 bits or floats. Floats are kept.

    Args:
        picture: A picture, or an array of any shape.
        levels: The level of white, as in `Preprocessing`; None keeps all levels.

    Returns:
        The picture itself, or an array: uint8 for 255 levels, uint16 for more, float32 for fewer.

    Raises:
        ValueError: If a level is above `levels`, or if 16-bit pixels may hold only 12 bits.
    """
    kind = str(picture.dtype) if isinstance(picture, np.ndarray) else "uint8"
    if levels is None or WHOLE.get(kind) == levels:
        return picture
    if kind not in WHOLE:
        warn_of_range(picture, levels)
        return picture
    pixels = as_array(picture)
    if kind == "uint16":
        highest = int(pixels.max(initial=0))
        is_deep = levels > WHOLE["uint8"]
        if highest > levels if is_deep else 0 < highest < LEAST_OF_16:
            raise ValueError(
                f"its 16-bit levels reach {highest}, too low (12 bits, perhaps) or too high for "
                f"white at {levels:g}. Scale them, or train with --data.levels 4095 or 65535"
            )
        if is_deep:
            return pixels
    scaled = pixels * np.float64(levels / WHOLE[kind])
    return scaled.astype("float32") if levels < 255 else to_levels(scaled, levels)


def known_type(pixels):
    """Returns pixels as uint8, uint16, or finite float32; wider integers become uint16."""
    if pixels.dtype.kind == "f":
        with np.errstate(over="ignore"):
            pixels = pixels.astype("float32")
    pixels = as_numbers(pixels, "its values")
    if pixels.dtype.kind == "f":
        return pixels
    if pixels.dtype.itemsize == 1 and pixels.dtype.kind != "i":
        return pixels.astype("uint8") * (255 if pixels.dtype.kind == "b" else 1)
    low, high = int(pixels.min(initial=0)), int(pixels.max(initial=0))
    if low < 0 or high > 65535:
        raise ValueError(
            f"levels must be from 0 to 65535, not {low} to {high}; save them as float32"
        )
    return pixels.astype("uint16")


def check_axes(images: Any, channels: int | None = None) -> None:
    """Checks that pixels `(..., H, W, C)` have their channels last.

    Args:
        images: An array or tensor. A partly unknown shape passes.
        channels: The number of channels, if known. If not, pixels with one, three or four rows and
            more than four channels are taken to have their channels first.

    Raises:
        ValueError: If the channels are not last, or if a picture is empty.
    """
    shape = getattr(images, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None or None in (shape := tuple(shape)):
        return
    first, last = (shape[-3], shape[-1]) if len(shape) > 2 else (0, 0)
    is_first = 4 < last != channels and first in ((1, 3, 4) if channels is None else (channels,))
    has_none = len(shape) < 3 or (len(shape) == 3 and 4 < last == shape[-2])
    is_wrong = 0 in shape[-3:] or (channels and last not in (1, channels))
    if is_first or has_none or is_wrong:
        raise ValueError(
            "Pixels must have the axes (height, width, channels), after a batch axis if any, and "
            f"{channels or 'some'} channels. Received: shape {shape}. np.moveaxis(images, -3, -1) "
            "moves the channels to the last axis, and images[..., None] adds a channel axis"
        )


def pixels_at(images: Any, levels: float, is_resized: bool = False) -> Any:
    """Returns the pixels of an array or list at the levels of a model; a tensor is unchanged.

    Args:
        images: `(..., H, W, C)`. Floats and integers up to 255 are taken to have the model's
            levels; bool, uint8, and larger integers are brought to these levels.
        levels: The level of white, as in `Preprocessing`.
        is_resized: As in `warn_of_range`.

    Raises:
        ValueError: If these are not pixels, or if their level of white is unknown.
    """
    pixels = as_numbers(images)
    if not isinstance(pixels, np.ndarray) or pixels.dtype.kind == "f":
        warn_of_range(pixels, levels, is_resized)
        return pixels
    is_wide = pixels.dtype.kind != "b" and str(pixels.dtype) not in WHOLE
    if is_wide and pixels.min(initial=0) >= 0 and pixels.max(initial=0) <= levels == 255:
        return pixels.astype("uint8")
    return at_levels(known_type(pixels), levels)


def to_levels(images, levels: float) -> np.ndarray:
    """Rounds pixels to whole levels, uint8 for 255 and uint16 for more; fewer stay float32."""
    if levels < WHOLE["uint8"]:
        return np.asarray(images, "float32")
    kind = "uint8" if levels == WHOLE["uint8"] else "uint16"
    return np.clip(np.round(images), 0, levels).astype(kind)


def warn_of_range(pixels, levels: float, is_resized: bool = False) -> None:
    """Warns of pixels in 0..1 that should reach `levels`, of the reverse, and of pixels below 0.

    Integers, such as the pixels of a black picture, are left alone, and so are the symbolic tensors
    of a compiled function.

    Args:
        pixels: An array or tensor of any shape.
        levels: The level of white.
        is_resized: Whether floats with whole values may be a picture of integers.
    """
    try:
        values = pixels if hasattr(pixels, "min") else np.asarray(pixels)
        low, high, kind = float(values.min()), float(values.max()), str(values.dtype)
        is_small = "float" in kind and high <= 1 < levels and (low < 0 or high > 0)
        is_small = is_small and not (is_resized and bool((values == values.round()).all()))
    except Exception:  # of any backend
        return
    is_input = "float" in kind and low < -levels / 255  # normalized already
    is_shallow = kind.endswith("uint8") and levels > WHOLE["uint8"]
    if is_small or is_input or is_shallow or high > levels + 1:
        warnings.warn(
            f"Pixels must lie in [0, {levels:g}]. Received: {kind} from {low:g} to {high:g}. Scale "
            "them, or leave out this step if a model takes them as they are",
            stacklevel=2,
        )


def viewable(pixels: np.ndarray) -> np.ndarray:
    """Returns a viewable picture: 8-bit gray or RGB.

    If there are more than three channels, the first three are shown; if there are two, the first.
    Types other than uint8 are stretched from their lowest value to their highest.

    Args:
        pixels: `(..., H, W, C)`; each picture is stretched separately.

    Returns:
        `(..., H, W, 1 or 3)` uint8.
    """
    shown = pixels[..., : 3 if pixels.shape[-1] >= 3 else 1]
    if shown.dtype == np.uint8:
        return shown
    low, high = (f(shown, axis=(-3, -2, -1), keepdims=True) for f in (np.min, np.max))
    return np.rint((shown - low) * (255 / np.maximum(high - low, 1e-30))).astype("uint8")
