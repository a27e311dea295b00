"""Reads picture files with Pillow, which gives the pixels that `tf_images` gives to training."""

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
EXIF_MARKS = (b"Exif\x00\x00", b"eXIf", b"EXIF")  # in JPEG, PNG, and WebP files
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
    with open_encoded(data) as picture, _as_value_errors():
        if picture.format == "PNG":
            check_png_rows(data)
        if picture.format in TURNED_BY_PILLOW:
            return np.ascontiguousarray(_pixels(_upright(picture), channels))
        pixels = _pixels(picture, channels)
    return np.ascontiguousarray(turn_upright(pixels, exif_orientation(data)))


def open_encoded(data: bytes):
    """Opens the bytes of a picture file as a `PIL.Image.Image`, whose pixels are not yet read.

    Raises:
        ValueError: If the bytes are no picture, or ask for too much.
        ImportError: As `read_image`.
    """
    formats = list(FORMATS)
    if data[4:8] == BOX_MARK and data[8:12] not in (b"avif", b"avis"):
        heif = extras.require("pillow_heif", extra="data", purpose="Reading HEIC pictures")
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


def unreadable_message(name: str, reason: str) -> str:
    """Says that a picture cannot be read, why, and which files can."""
    kinds, reason = ", ".join(suffix[1:] for suffix in SUFFIXES), " ".join(reason.split())
    reason = re.sub(r" <\S+ object at 0x\w+>", "", reason)  # the bytes, as Python shows them
    return f"{name} cannot be read as an image ({reason}). It must be a whole {kinds} file"


def exif_orientation(data: bytes) -> int:
    """Reads the EXIF orientation, from 1 to 8, of an encoded picture; 1 if it is unreadable."""
    if not any(mark in data for mark in EXIF_MARKS):
        return 1
    try:
        with open_encoded(data) as picture, _as_value_errors():
            orientation = picture.getexif().get(ORIENTATION, 1)
    except ValueError:  # the decoder says what is wrong with the file
        return 1
    return orientation if orientation in range(1, 9) else 1


def turn_upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Turns and mirrors pixels `(H, W, C)` as an EXIF orientation requires."""
    if orientation >= 5:
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return pixels


def _upright(picture):
    """Loads a picture, which turns a TIFF, and turns an AVIF by the tag that Pillow adds."""
    picture.load()
    ops = extras.require("PIL.ImageOps", extra="data", purpose="Reading pictures")
    return ops.exif_transpose(picture)


def _pixels(picture, channels):
    """The pixels `(H, W, channels)`, converted strip by strip, which takes half the memory."""
    picture.load()
    width, height = picture.size
    pixels, rows = np.empty((height, width, channels), "uint8"), max(1, STRIP // width)
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        strip = picture if rows >= height else picture.crop((0, top, width, bottom))
        pixels[top:bottom] = _converted(strip, channels)
    return pixels


def _converted(picture, channels):
    if picture.mode.startswith("I;16"):  # gray; of colors, Pillow keeps the high 8 bits
        gray = (np.asarray(picture) >> 8).astype("uint8")
        return np.repeat(gray[..., None], channels, axis=-1)
    if picture.mode in ("I", "F"):
        raise ValueError("32 bits per channel have no known range; save it with 8 or 16 bits")
    rgb = picture.convert("RGB")  # first, since grayscale is computed from RGB, not from CMYK
    return np.asarray(rgb) if channels == 3 else np.asarray(rgb.convert("L"))[..., None]
