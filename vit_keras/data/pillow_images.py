"""Reads picture files with Pillow."""

import contextlib
import io
import os
import re
from collections.abc import Sequence

import numpy as np

from vit_keras.data import deep_images
from vit_keras.data.depth import as_array, as_picture, at_levels, choose_channels, pillow, viewable
from vit_keras.support import extras

SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".gif", ".webp", ".bmp"),
    *(".tif", ".tiff", ".avif", ".heic", ".heif", ".npy"),
)
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF")  # Pillow's names
TURNED_BY_PILLOW = ("TIFF", "AVIF", "HEIF")  # formats that store orientation outside EXIF too
GRAY_MODES, ALPHA_MODES = ("1", "L", "LA", "La"), ("LA", "La", "PA", "RGBA", "RGBa")
BOX_MARK = b"ftyp"  # at byte 4 of AVIF and HEIF files
ORIENTATION = 0x0112  # the EXIF tag; 1 means upright, and 2 to 8 are turned or mirrored
TURNS = (0, 3, 1, 5, 4, 6, 2)  # Pillow's transpositions for orientations 2 to 8


def read_image(
    path: str | os.PathLike,
    channels: int | None,
    *,
    levels: float | None = None,
    bands: Sequence[int] = (),
) -> np.ndarray:
    """Reads a picture and turns it upright by its EXIF orientation.

    Reads JPEG, PNG, GIF (the first frame), WebP, BMP, TIFF (the first page, or pages that are
    channels), AVIF, HEIC, and NumPy's `.npy`, `(H, W)` or `(H, W, C)`.

    Args:
        path: The file.
        channels: 1 for grayscale, 3 for RGB, or the file's number of channels. Transparency is
            dropped unless it counts among them. None for all colors of the file.
        levels: The level of white, as in `Preprocessing`, to which pictures of other depths are
            scaled; None keeps the file's levels.
        bands: The channels of the file in their new order, counted from 1; empty for all.

    Returns:
        The pixels, `(H, W, channels)`: uint8 for 8 bits, uint16 for up to 16, and float32 for
        floats.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is not a whole picture, or has more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`; the message names it.
        ImportError: If Pillow or, for HEIC, pillow-heif is not installed.

    Example:
        ```python
        picture = data.read_image("cat.jpg", channels=3)
        pixels = data.resize(picture, (224, 224), model.preprocessing)
        images = data.normalize(pixels, model.preprocessing)[None]  # (1, 224, 224, 3)
        ```
    """
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no image at {os.fspath(path)!r}.")
    with open(path, "rb") as file:
        data = file.read()
    try:
        return read_encoded(data, channels, levels, bands)
    except ValueError as error:
        reason = str(error) if data else "the file is empty"
        raise ValueError(unreadable_message(repr(os.fspath(path)), reason)) from error


def read_encoded(
    data: bytes, channels: int | None, levels: float | None = None, bands: Sequence[int] = ()
) -> np.ndarray:
    """Reads the bytes of a picture file as `read_image` reads the file.

    Raises:
        ValueError: If the bytes are not a whole picture, or ask for too much.
        ImportError: As for `read_image`.
    """
    return np.array(as_array(decode(data, channels, levels, bands)))


def decode(
    data: bytes | np.ndarray,
    channels: int | None,
    levels: float | None = None,
    bands: Sequence[int] = (),
):
    """Decodes a picture file to an upright picture as `cropping` describes it.

    Args:
        data: The bytes of the file, or pixels `(H, W, C)`.
        channels: As for `read_image`; None for all colors.
        levels: As for `read_image`.
        bands: As for `read_image`.

    Raises:
        ValueError: If the bytes are not a whole picture, or ask for too much.
        ImportError: As for `read_image`.
    """
    with _as_value_errors():
        if deep := deep_images.read_deep(data):
            picture = choose_channels(*deep, channels, bands)
        else:
            picture = _decode_by_pillow(data, channels, bands)
        picture = at_levels(picture, levels)
    return as_picture(picture) if isinstance(picture, np.ndarray) else picture


def _decode_by_pillow(data, channels, bands):
    with open_encoded(data) as picture:
        if picture.format == "PNG":
            deep_images.check_png_rows(data)
        if deep_images.is_deep_png(data):
            samples = deep_images.read_png(data, picture, _exif_orientation(picture))
            return choose_channels(*samples, channels, bands)
        picture.load()  # this turns a TIFF or HEIF upright, and sets the orientation of an AVIF
        orientation = _exif_orientation(picture)
        turned = picture if orientation == 1 else picture.transpose(TURNS[orientation - 2])
        return _converted(turned, channels, bands)


def open_encoded(data: bytes):
    """Opens the bytes of a picture file as a `PIL.Image.Image` without reading its pixels.

    Raises:
        ValueError: If the bytes are not a picture, or ask for too much.
        ImportError: As for `read_image`.
    """
    formats = list(FORMATS)
    if data[4:8] == BOX_MARK and data[8:12] not in (b"avif", b"avis"):
        heif = extras.require("pillow_heif", extra="heic", purpose="Reading HEIC pictures")
        heif.register_heif_opener()
        formats.append("HEIF")
    image = pillow()
    with _as_value_errors():
        picture = image.open(io.BytesIO(data), formats=formats)
        deep_images.check_opened(picture, data)
        if picture.format == "PNG":
            picture.verify()  # all checksums, since decoders skip some; closes the picture
            picture = image.open(io.BytesIO(data), formats=formats)
    return picture


def picture_sides(data: bytes) -> tuple[int, int]:
    """Returns the height and width of the upright picture in a file, from its header if possible.

    Raises:
        ValueError: If the bytes are not a picture.
        ImportError: As for `read_image`.
    """
    with contextlib.suppress(ValueError), open_encoded(data) as picture:
        if picture.format not in TURNED_BY_PILLOW and b"eXIf" not in data:  # may follow the pixels
            return picture.size[:: 1 if _exif_orientation(picture) > 4 else -1]
    return as_array(decode(data, None)).shape[:2]


@contextlib.contextmanager
def _as_value_errors():
    """Turns any error that Pillow raises for a damaged picture into ValueError."""
    try:
        yield
    except (ImportError, ValueError):
        raise
    except pillow().DecompressionBombError as error:
        raise ValueError(f"{str(error).split(',')[0]}; {deep_images.LARGER}") from error
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


def thumbnail(picture: np.ndarray, side: int) -> np.ndarray:
    """Shrinks a picture until its longer side has `side` pixels; a smaller one is unchanged.

    Args:
        picture: Pixels `(H, W, C)` from `read_image`. For more than 8 bits, and for channels other
            than gray or RGB, see `depth.viewable`.
        side: The largest length of the longer side in pixels.

    Returns:
        The pixels as uint8, `(h, w, 3)`.

    Raises:
        ImportError: If Pillow is not installed.

    Example:
        >>> thumbnail(np.zeros((300, 400, 1), "uint8"), side=100).shape
        (75, 100, 3)
    """
    image = as_picture(viewable(picture))
    image.thumbnail((side, side))
    return np.asarray(image.convert("RGB"))


def unreadable_message(name: str, reason: str) -> str:
    """Returns a message that a picture cannot be read, with the reason and the readable formats."""
    kinds, reason = ", ".join(suffix[1:] for suffix in SUFFIXES), " ".join(reason.split())
    reason = re.sub(r" <\S+ object at 0x\w+>", "", reason)  # Python's repr of the bytes
    remedy = "" if "--data." in reason else f". It must be a whole {kinds} file"
    return f"{name} cannot be read as an image ({reason}){remedy}"


def _exif_orientation(picture) -> int:
    """Returns a picture's EXIF orientation, from 1 to 8; 1 if it is unreadable or not yet read."""
    if "exif" not in picture.info:
        return 1
    try:
        orientation = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # Pillow may raise anything for a damaged record; the pixels are intact
        return 1
    return orientation if orientation in range(1, 9) else 1


def _converted(picture, channels, bands):
    """Converts a picture to RGB or L."""
    is_gray = picture.mode in GRAY_MODES
    if channels is None:
        channels = 1 if is_gray else 3
    if bands or channels not in (1, 3):
        has_alpha = picture.mode in ALPHA_MODES or "transparency" in picture.info
        mode, colors = ("L", 1) if is_gray else ("RGB", 3)
        pixels = as_array(picture.convert(f"{mode}A" if has_alpha else mode))
        return choose_channels(pixels, colors, channels, bands)
    mode = {1: "L", 3: "RGB"}[channels]
    if picture.mode not in (mode, "L"):
        picture = picture.convert("RGB")  # first, since gray is computed from RGB, not from CMYK
    return picture if picture.mode == mode else picture.convert(mode)
