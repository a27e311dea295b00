"""Reads picture files with Pillow, and with other libraries where Pillow cannot read them fully.

A few bytes of header can ask for gigabytes, and a few bytes of data for hours. Pillow refuses only
files above twice `PIL.Image.MAX_IMAGE_PIXELS`, so headers are checked before decoding. TIFF of more
than 8 bits or with channels other than gray and RGB, color PNG of 16 bits, and NumPy arrays have
their own readers.
"""

import contextlib
import io
import math
import os
import re
import threading

import numpy as np

from vit_keras.data import depth
from vit_keras.data.depth import Bands, as_array, as_picture, choose_channels, known_type, pillow
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


def read_file(path: str | os.PathLike) -> bytes:
    """Returns the bytes of a picture; refuses pipes and devices, which may never end."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no image at {os.fspath(path)!r}.")
    with open(path, "rb") as file:
        return file.read()


def read_image(
    path: str | os.PathLike, channels: int | None, *, levels: float | None = None, bands: Bands = ()
) -> np.ndarray:
    """Reads a picture and turns it upright by its EXIF orientation.

    Reads JPEG, PNG, GIF (the first frame), WebP, BMP, TIFF (the first page, or pages that are
    channels), AVIF, HEIC, and NumPy's `.npy`, `(H, W)` or `(H, W, C)`.

    Args:
        path: The file.
        channels: 1 for grayscale, 3 for RGB, or the file's number of channels. Transparency is
            dropped unless that number includes it. None for all colors of the file.
        levels: The level of white, as in `Preprocessing`, to which pictures of other depths are
            scaled; None keeps the file's levels.
        bands: The channels of the file in their new order, counted from 1; empty for all.

    Returns:
        The pixels, `(H, W, channels)`: uint8 for 8 bits, uint16 for up to 16, and float32 for
        floats.

    Raises:
        FileNotFoundError: If there is no file at `path`.
        ValueError: If the file is not a whole picture, or has more pixels than
            `PIL.Image.MAX_IMAGE_PIXELS`; the message names the file.
        ImportError: If Pillow or, for HEIC, pillow-heif is not installed.

    Example:
        ```python
        picture = data.read_image("cat.jpg", channels=3)
        pixels = data.resize(picture, (224, 224), model.preprocessing)
        images = data.normalize(pixels, model.preprocessing)[None]  # (1, 224, 224, 3)
        ```
    """
    data = read_file(path)
    try:
        return read_encoded(data, channels, levels, bands)
    except ValueError as error:
        reason = str(error) if data else "the file is empty"
        raise ValueError(unreadable_message(repr(os.fspath(path)), reason)) from error


def read_encoded(
    data: bytes, channels: int | None, levels: float | None = None, bands: Bands = ()
) -> np.ndarray:
    """Reads the bytes of a picture file as `read_image` reads the file.

    Raises:
        ValueError: If the bytes are not a whole picture, or would take too much memory.
        ImportError: As for `read_image`.
    """
    return np.array(as_array(decode(data, channels, levels, bands)))


def decode(
    data: bytes | np.ndarray, channels: int | None, levels: float | None = None, bands: Bands = ()
):
    """Decodes a picture file to an upright picture as `cropping` describes it.

    Args:
        data: The bytes of the file, or pixels `(H, W, C)`.
        channels: As for `read_image`; None for all colors.
        levels: As for `read_image`.
        bands: As for `read_image`.

    Raises:
        ValueError: If the bytes are not a whole picture, or would take too much memory.
        ImportError: As for `read_image`.
    """
    with _as_value_errors():
        if deep := read_deep(data):
            picture = choose_channels(*deep, channels, bands)
        else:
            with open_encoded(bytes(data)) as opened:
                picture = _converted(upright(opened), channels, bands)
        picture = depth.at_levels(picture, levels)
    return as_picture(picture) if isinstance(picture, np.ndarray) else picture


def upright(picture):
    """Reads the pixels of an open `PIL.Image.Image`, and turns it by its EXIF orientation."""
    picture.load()  # this turns a TIFF or HEIF upright, and sets the orientation of an AVIF
    orientation = _exif_orientation(picture)
    return picture if orientation == 1 else picture.transpose(TURNS[orientation - 2])


def open_encoded(data: bytes):
    """Opens the bytes of a picture file as a `PIL.Image.Image` without reading its pixels.

    Raises:
        ValueError: If the bytes are not a picture, or would take too much memory or time.
        ImportError: As for `read_image`.
    """
    formats = list(FORMATS)
    if data[4:8] == BOX_MARK and data[8:12] not in (b"avif", b"avis"):
        extras.require("pillow_heif").register_heif_opener()
        formats.append("HEIF")
    image = pillow()
    with _as_value_errors():
        picture = image.open(io.BytesIO(data), formats=formats)
        check_pixels(*picture.size)
        if data.startswith(JPEG) and (scans := data.count(b"\xff\xda")) > MOST_JPEG_SCANS:
            raise ValueError(f"it has {scans} scans, more than {MOST_JPEG_SCANS}; save it again")
        tags = getattr(picture, "tag_v2", {})  # a TIFF's tiles may be larger than the picture
        if all(tag in tags for tag in TIFF_TILE):
            check_pixels(*(tags[tag] for tag in TIFF_TILE))
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
    image = as_picture(depth.viewable(picture))
    image.thumbnail((side, side))
    return np.asarray(image.convert("RGB"))


def unreadable_message(name: str, reason: str) -> str:
    """Returns the message for an unreadable picture, with the reason and the readable formats."""
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
    mode, colors = ("L", 1) if picture.mode in GRAY_MODES else ("RGB", 3)
    channels = channels or colors
    if bands or channels not in (1, 3):
        has_alpha = picture.mode in ALPHA_MODES or "transparency" in picture.info
        pixels = as_array(picture.convert(f"{mode}A" if has_alpha else mode))
        return choose_channels(pixels, colors, channels, bands)
    mode = {1: "L", 3: "RGB"}[channels]
    if picture.mode not in (mode, "L"):
        picture = picture.convert("RGB")  # first, since gray is computed from RGB, not from CMYK
    return picture if picture.mode == mode else picture.convert(mode)


# Each scan of a JPEG goes over the whole picture, however little data it has. Encoders write up to
# a dozen. Decoding 85 takes 10 s for a picture with as many pixels as are allowed.
MOST_JPEG_SCANS = 100
BYTES = 12  # per pixel of RGB in float32
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
TIFF_TILE = (322, 323)  # the tags of a tile's width and height


def check_pixels(width: int, height: int, channels: int = 3, itemsize: int = 4) -> None:
    """Checks the size of a picture, or of a part decoded at once.

    The bound is `PIL.Image.MAX_IMAGE_PIXELS`, 89,478,485 pixels unless a program changes it, and
    `BYTES` times as many bytes. Larger pictures are rare, and models use far fewer pixels.

    Raises:
        ValueError: If there are more pixels or bytes than that, or none.
    """
    most = math.inf if (limit := pillow().MAX_IMAGE_PIXELS) is None else limit
    pixels, size = width * height, channels * itemsize
    if min(width, height) < 1 or pixels > most or not 0 < pixels * size <= most * BYTES:
        raise ValueError(
            f"it has {width}x{height} pixels of {size} bytes, but must have 1 to {most} pixels in "
            f"at most {most * BYTES} bytes; make it smaller, or raise PIL.Image.MAX_IMAGE_PIXELS"
        )


HEADERS = threading.Lock()  # NumPy calls Python's parser, which may fail if several threads do
NPY = b"\x93NUMPY"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
# TIFF tags, and the number of color samples for each photometric number that Pillow reads.
BITS, PHOTOMETRIC, DESCRIPTION, SAMPLES = 258, 262, 270, 277
EXTRA_SAMPLES, SAMPLE_FORMAT, FLOATS = 338, 339, 3
COLORS = {0: 1, 1: 1, 2: 3, 3: 1, 5: 4, 6: 3, 8: 3}
ALPHA = (1, 2)  # extra samples that hold transparency
AXES = ("ImageJ=", "<OME", '"shape"')  # in descriptions that tell what the pages are


# The pixels in a file, `(H, W, C)` of uint8, uint16 or float32, and the number of leading channels
# that are colors, not transparency.
Samples = tuple[np.ndarray, int]


def read_deep(data: bytes | np.ndarray) -> Samples | None:
    """Reads a TIFF or PNG that Pillow cannot read fully, or a NumPy array in a file or in memory.

    The first page of a TIFF is the picture, unless the file states that pages are channels. An
    array that tifffile wrote without axes has its channels along the shortest axis. NumPy arrays
    are `(H, W)` or `(H, W, C)`. Memory stays within three times the larger of the pixels and the
    file.

    Args:
        data: The bytes of a file, or pixels `(H, W, C)`.

    Returns:
        The upright picture; None for a picture that Pillow reads.

    Raises:
        ValueError, or a library's own exception: If the file is damaged or needs too much memory.
        ImportError: If tifffile or imagecodecs is needed but not installed.
    """
    if isinstance(data, np.ndarray) or data.startswith(NPY):
        pixels = data if isinstance(data, np.ndarray) else _read_npy(data)
        return pixels, pixels.shape[-1]
    if is_deep_png(data):
        return _read_png(data)
    return _read_tiff(data) if data.startswith(TIFF) and not _is_plain(_tags(data)) else None


def is_deep_png(data: bytes) -> bool:
    """Whether the bytes are a 16-bit PNG."""
    return data.startswith(PNG) and data[24:25] == b"\x10"


def type_in_header(data: bytes | np.ndarray) -> str:
    """Returns the pixel type from a file's header, or of an array: uint8, uint16, or float32."""
    if isinstance(data, np.ndarray) or data.startswith(NPY):
        kind = _npy_header(io.BytesIO(data))[2] if isinstance(data, bytes) else data.dtype
        is_float, bits = kind.kind == "f", 8 * kind.itemsize
    elif data.startswith(TIFF):
        tags = _tags(data)
        is_float = FLOATS in _numbers(tags, SAMPLE_FORMAT, 1)
        bits = max(_numbers(tags, BITS, 1))
    else:
        is_float, bits = False, 16 if is_deep_png(data) else 8
    return "float32" if is_float else "uint16" if bits > 8 else "uint8"


def _numbers(tags, tag, default) -> tuple:
    value = tags.get(tag, default)
    return value if isinstance(value, tuple) else (value,)


def _tags(data):
    """Returns the tags of the first page of a TIFF."""
    tags = pillow("TiffImagePlugin").ImageFileDirectory_v2(data[: 16 if 43 in data[2:4] else 8])
    file = io.BytesIO(data)
    file.seek(tags.next)
    tags.load(file)
    return tags


def _is_plain(tags) -> bool:
    """Whether Pillow reads all of a TIFF: 8 bits and one or three colors, perhaps with alpha."""
    if max(_numbers(tags, BITS, 1)) > 8 or {*_numbers(tags, SAMPLE_FORMAT, 1)} - {1, 4}:
        return False
    extra = _numbers(tags, EXTRA_SAMPLES, ())
    colors = COLORS.get(tags.get(PHOTOMETRIC, 0), 0)
    is_known = tags.get(SAMPLES, 1) - len(extra) == colors and {*extra} <= {*ALPHA}
    return is_known and not any(text in str(tags.get(DESCRIPTION, "")) for text in AXES)


def _read_png(data) -> Samples:
    """Reads a 16-bit PNG; its orientation may follow its pixels."""
    with open_encoded(data) as picture:
        if b"eXIf" in data:  # it may follow the pixels, which Pillow then has to decode too
            picture.load()
        if picture.mode.startswith("I"):  # gray, where Pillow keeps 16 bits
            pixels = np.asarray(picture).astype("uint16")[..., None]
        else:
            pixels = extras.require("imagecodecs").png_decode(data)
        return _upright(pixels, _exif_orientation(picture)), 3 if pixels.shape[-1] > 2 else 1


def _upright(pixels, orientation):
    """Turns `(H, W, C)` upright by its EXIF orientation."""
    if orientation not in range(2, 9):
        return pixels
    pixels = pixels.swapaxes(0, 1) if orientation > 4 else pixels
    rows, columns = ((1, 1), (1, -1), (-1, -1), (-1, 1))[(orientation - 1) % 4]
    return pixels[::rows, ::columns]


def _read_tiff(data):
    with extras.require("tifffile").TiffFile(io.BytesIO(data)) as file:
        series = file.series[0]
        source = series if {*"CQ"} & {*series.axes} else series.keyframe
        page = series.keyframe
        if TIFF_TILE[0] in page.tags:
            check_pixels(page.tilewidth, page.tilelength, page.samplesperpixel, page.dtype.itemsize)
        for part in series.pages if source is series else [page]:
            part = part or page
            strips = zip(part.dataoffsets, part.databytecounts, strict=True)
            if any(start + length > len(data) for start, length in strips):
                raise ValueError("the file is truncated")
        axes, shape = source.axes, source.shape
        if axes == "QYX":  # an array without named axes
            shortest = int(np.argmin(shape))
            axes = f"{'YX'[:shortest]}C{'YX'[shortest:]}"
        if not {*"YX"} <= {*axes}:
            raise ValueError(f"its axes {axes} do not describe a picture")
        height, width = (shape[axes.index(axis)] for axis in "YX")
        channels = math.prod(shape) // max(height * width, 1)
        check_pixels(width, height, channels, page.dtype.itemsize)
        pixels = source.asarray()
    for axis in {*axes} - {*"YXCS"}:  # the first of several pictures
        pixels, axes = pixels.take(0, axes.index(axis)), axes.replace(axis, "")
    order = sorted(range(len(axes)), key=lambda i: "YXCS".index(axes[i]))
    pixels = pixels.transpose(order).reshape(*(pixels.shape[i] for i in order[:2]), -1)
    if page.photometric == 0:  # white is zero
        pixels = (2**page.bitspersample - 1 - pixels).astype(pixels.dtype)
    colors = pixels.shape[-1] - sum(extra in ALPHA for extra in page.extrasamples)
    if page.photometric == 2 and "C" not in axes:  # RGB, perhaps with extra samples
        colors = min(3, colors)
    return _upright(known_type(pixels), page.tags.valueof(ORIENTATION, default=1)), colors


def _npy_header(file):
    major, minor = np.lib.format.read_magic(file)
    with HEADERS:
        return getattr(np.lib.format, f"read_array_header_{major}_{minor}")(file)


def _read_npy(data):
    file = io.BytesIO(data)
    shape, is_fortran, kind = _npy_header(file)
    if kind.kind not in set("biuf") or len(shape) not in (2, 3):
        raise ValueError(f"it must contain numbers (H, W) or (H, W, C), not {kind} of {shape}")
    check_pixels(shape[1], shape[0], math.prod(shape[2:]), kind.itemsize)
    pixels = np.frombuffer(data, kind, math.prod(shape), file.tell())
    pixels = pixels.reshape(shape, order="F" if is_fortran else "C")
    return known_type(pixels.reshape(*shape[:2], -1))
