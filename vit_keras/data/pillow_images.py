"""Reads picture files with Pillow."""

import contextlib
import io
import os
import re

import numpy as np

from vit_keras import extras
from vit_keras.data.picture_bounds import LARGER, check_encoded, check_opened, check_png_rows

SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".gif", ".webp", ".bmp"),
    *(".tif", ".tiff", ".avif", ".heic", ".heif"),
)
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "AVIF")  # Pillow's names of these
TURNED_BY_PILLOW = ("TIFF", "AVIF", "HEIF")  # whose orientation is no EXIF tag alone
BOX_MARK = b"ftyp"  # at byte 4 of AVIF and HEIF files
STRIP = 2**20  # pixels that are converted at once
ORIENTATION = 0x0112  # the EXIF tag; 1 means upright, and 2 to 8 are turned or mirrored


def check_channels(channels: int) -> None:
    """Raises ValueError unless pictures can have that number of channels."""
    if channels not in (1, 3):
        raise ValueError(
            f"`channels` must be 1 (grayscale) or 3 (RGB). Received: channels={channels}"
        )


def pillow_image(purpose: str = "Reading pictures"):
    """Imports `PIL.Image`; ImportError names the extra to install where Pillow is missing."""
    return extras.require("PIL.Image", extra="data", purpose=purpose)


def read_image(path: str | os.PathLike, channels: int) -> np.ndarray:
    """Reads a picture and turns it upright as its EXIF orientation says.

    Reads JPEG, PNG, GIF (the first frame), WebP, BMP, TIFF (the first page), AVIF, and HEIC. Drops
    transparency, and of 16 bits per channel keeps the high 8.

    Args:
        path: The file.
        channels: 1 for grayscale or 3 for RGB.

    Returns:
        The pixels as uint8, `(H, W, channels)`.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is not a whole picture, or has more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`; the message names it.
        ImportError: If Pillow is not installed or, for HEIC, pillow-heif.

    Example:
        ```python
        picture = data.read_image("cat.jpg", channels=3)
        pixels = data.resize(picture, (224, 224), model.preprocessing)
        images = data.normalize(pixels, model.preprocessing)[None]  # (1, 224, 224, 3)
        ```
    """
    check_channels(channels)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no image at {os.fspath(path)!r}.")
    with open(path, "rb") as file:
        data = file.read()
    try:
        return read_encoded(data, channels)
    except ValueError as error:
        reason = str(error) if data else "the file is empty"
        raise ValueError(unreadable_message(repr(os.fspath(path)), reason)) from error


def read_encoded(data: bytes, channels: int) -> np.ndarray:
    """Reads the bytes of a picture file as `read_image` reads the file.

    Raises:
        ValueError: If the bytes are not a whole picture, or ask for too much.
        ImportError: As `read_image`.
    """
    pixels = np.array(decode(data, channels))
    return pixels if channels == 3 else pixels[..., None]


def decode(data: bytes, channels: int):
    """Decodes a picture file and turns it upright: a `PIL.Image.Image` in mode L or RGB.

    Raises:
        ValueError: If the bytes are not a whole picture, or ask for too much.
        ImportError: As `read_image`.
    """
    with open_encoded(data) as picture, _as_value_errors():
        if picture.format == "PNG":
            check_png_rows(data)
        if picture.format in TURNED_BY_PILLOW:
            return _converted(_upright(picture), channels)
        picture.load()
        orientation = _exif_orientation(picture)
        picture = _converted(picture, channels)
        return picture if orientation == 1 else picture.transpose(_turn(orientation))


def open_encoded(data: bytes):
    """Opens the bytes of a picture file as a `PIL.Image.Image`, whose pixels are not yet read.

    Raises:
        ValueError: If the bytes are no picture, or ask for too much.
        ImportError: As `read_image`.
    """
    formats = list(FORMATS)
    if data[4:8] == BOX_MARK and data[8:12] not in (b"avif", b"avis"):
        heif = extras.require("pillow_heif", extra="heic", purpose="Reading HEIC pictures")
        heif.register_heif_opener()
        formats.append("HEIF")
    image = pillow_image()
    with _as_value_errors():
        check_encoded(data)
        picture = image.open(io.BytesIO(data), formats=formats)
        check_opened(picture, data)
    return picture


@contextlib.contextmanager
def _as_value_errors():
    """Turns what Pillow raises for a damaged picture, which may be any error, into ValueError."""
    try:
        yield
    except (ImportError, ValueError):
        raise
    except pillow_image().DecompressionBombError as error:
        raise ValueError(f"{str(error).split(',')[0]}; {LARGER}") from error
    except Exception as error:
        raise ValueError(str(error) or type(error).__name__) from error


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


def unreadable_message(name: str, reason: str) -> str:
    """Says that a picture cannot be read, why, and which files can."""
    kinds, reason = ", ".join(suffix[1:] for suffix in SUFFIXES), " ".join(reason.split())
    reason = re.sub(r" <\S+ object at 0x\w+>", "", reason)  # the bytes, as Python shows them
    return f"{name} cannot be read as an image ({reason}). It must be a whole {kinds} file"


def _exif_orientation(picture) -> int:
    """The EXIF orientation, from 1 to 8, of a picture that is loaded; 1 if it is unreadable."""
    if "exif" not in picture.info:
        return 1
    try:
        orientation = picture.getexif().get(ORIENTATION, 1)
    except Exception:  # whatever Pillow raises for a damaged record; the pixels are whole
        return 1
    return orientation if orientation in range(1, 9) else 1


def _turn(orientation: int):
    """Pillow's transposition that turns a picture upright, for an EXIF orientation from 2 to 8."""
    names = (
        *("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE"),
        *("ROTATE_270", "TRANSVERSE", "ROTATE_90"),
    )
    return pillow_image().Transpose[names[orientation - 2]]


def _upright(picture):
    """Loads a picture, which turns a TIFF, and turns an AVIF by the tag that Pillow adds."""
    picture.load()
    ops = extras.require("PIL.ImageOps", extra="data", purpose="Reading pictures")
    return ops.exif_transpose(picture)


def _converted(picture, channels):
    """The picture in RGB, or in L; strip by strip, which takes half the memory."""
    mode = {1: "L", 3: "RGB"}[channels]
    if picture.mode in (mode, "L"):  # of gray, RGB has the same values
        return picture if picture.mode == mode else picture.convert(mode)
    if picture.mode in ("I", "F"):
        raise ValueError("32 bits per channel have no known range; save it with 8 or 16 bits")
    width, height = picture.size
    converted, rows = pillow_image().new(mode, picture.size), max(1, STRIP // width)
    for top in range(0, height, rows):
        strip = picture.crop((0, top, width, min(top + rows, height)))
        if strip.mode.startswith("I;16"):  # gray; of colors, Pillow keeps the high 8 bits
            strip = pillow_image().fromarray((np.asarray(strip) >> 8).astype("uint8"))
        rgb = strip.convert("RGB")  # first, since grayscale is computed from RGB, not from CMYK
        converted.paste(rgb if channels == 3 else rgb.convert("L"), (0, top))
    return converted
