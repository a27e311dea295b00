"""What a picture may ask for: its header is looked at before anything of it is decoded.

A few bytes of header can ask for gigabytes, and a few bytes of data for hours. Pillow refuses such
files at twice `PIL.Image.MAX_IMAGE_PIXELS` alone.
"""

import struct
import zlib

from vit_keras import extras

# Each scan of a JPEG goes over the whole picture, whatever little data it has. Encoders write up to
# a dozen; a file of 85 is decoded in 10 s at the bound of pixels.
MOST_JPEG_SCANS = 100
# A JPEG of fewer pixels, and of less work, is decoded whatever its scans: at 10 bytes a scan and
# 0.5 ns a pixel and scan, its decoding ends in a few seconds.
MODEST_PIXELS, MODEST_WORK = 2**24, 2**36  # work: pixels times bytes
BYTES = 12  # a pixel of RGB in float32
LARGER = "make it smaller, or raise PIL.Image.MAX_IMAGE_PIXELS"
PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PNG_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by the type of color
# The first column and row of each pass of an interlaced PNG, and the steps to the next ones.
ADAM7 = (
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)
TIFF_TILE = (322, 323)  # the tags of a tile's width and height


def check_pixels(width: int, height: int) -> None:
    """Checks the size of a picture, or of a part that is decoded at once.

    The bound is `PIL.Image.MAX_IMAGE_PIXELS`: 89,478,485 pixels unless a program sets another.
    Their RGB values take 256 MiB. Pictures of more are rare, and models look at far fewer.

    Raises:
        ValueError: If there are more pixels, or none.
    """
    most = _most_pixels()
    if width < 1 or height < 1:
        raise ValueError(f"it has {width}x{height} pixels")
    if most is not None and width * height > most:
        raise ValueError(f"it has {width}x{height} pixels, more than {most}; {LARGER}")


def check_array(height: int, width: int, channels: int, itemsize: int) -> None:
    """Checks the pixels, and the bytes of an array: up to `BYTES` a pixel of the bound of pixels.

    Raises:
        ValueError: If there are more, or none.
    """
    check_pixels(width, height)
    most, size = _most_pixels(), width * height * channels * itemsize
    if channels < 1 or (most is not None and size > BYTES * most):
        raise ValueError(
            f"its {channels} channels take {size} bytes, and must take 1 to {BYTES * (most or 0)}; "
            f"{LARGER}"
        )


def check_opened(picture, data: bytes) -> None:
    """Checks an open `PIL.Image.Image`, whose pixels are not yet read, and its encoded bytes.

    Raises:
        ValueError: If it has too many pixels, or would take too long.
    """
    width, height = picture.size
    check_pixels(width, height)
    pixels, most = width * height, min(MODEST_PIXELS, _most_pixels() or MODEST_PIXELS)
    if data.startswith(JPEG) and (pixels > most or pixels * len(data) > MODEST_WORK):
        scans = data.count(b"\xff\xda")
        if scans > MOST_JPEG_SCANS:
            raise ValueError(f"it has {scans} scans, more than {MOST_JPEG_SCANS}; save it again")
    tags = getattr(picture, "tag_v2", {})  # of a TIFF, whose tiles may be larger than itself
    if all(tag in tags for tag in TIFF_TILE):
        check_pixels(*(tags[tag] for tag in TIFF_TILE))


def _most_pixels() -> int | None:
    pillow = extras.require("PIL.Image", extra="data", purpose="Reading pictures")
    return pillow.MAX_IMAGE_PIXELS


def check_encoded(data: bytes) -> None:
    """Checks the bytes of a picture before it is opened.

    A WebP is opened with memory for its pixels. A PNG has checksums, of which Pillow checks some,
    so all of them are checked here.

    Raises:
        ValueError: If the picture is damaged or too large.
    """
    if data.startswith(PNG):
        _check_png(data)
    elif data[8:12] == b"WEBP" and (size := _webp_size(data)):
        check_pixels(*size)


def check_png_rows(data: bytes) -> None:
    """Checks that a PNG, which `check_encoded` has seen, holds as many rows as its header says.

    Pillow would fill the missing ones with zeros.

    Raises:
        ValueError: If rows are missing, or the pixels cannot be unpacked.
    """
    width, height, depth, color, *_, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    bits, missing = depth * PNG_SAMPLES[color], 0
    for left, top, across, down in ADAM7 if interlaced else ((0, 0, 1, 1),):
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        missing += rows * (1 + -(-columns * bits // 8)) if columns > 0 and rows > 0 else 0
    stream, begun = zlib.decompressobj(-zlib.MAX_WBITS), 0
    for name, content in _chunks(data):
        if name == b"IDAT":  # without the two bytes before the pixels, nor the checksum after them
            begun, content = begun + len(content), content[max(0, 2 - begun) :]
        while name == b"IDAT" and content and missing > 0 and not stream.eof:
            missing -= len(stream.decompress(content, 2**16))
            content = stream.unconsumed_tail
    if missing > 0:
        raise ValueError("rows of its pixels are missing")


def _check_png(data):
    chunks = _chunks(data)
    name, header = next(chunks)
    if name != b"IHDR" or len(header) != 13:
        raise ValueError("it does not begin with a header")
    width, height, depth, color, *methods = struct.unpack(">IIBBBBB", header)
    check_pixels(width, height)
    if depth not in PNG_DEPTHS.get(color, ()) or methods not in ([0, 0, 0], [0, 0, 1]):
        raise ValueError("its header is damaged")
    for _ in chunks:
        pass


def _chunks(data):
    """Yields the name and the content of each chunk of a PNG, and checks its checksum."""
    view, place, name = memoryview(data), len(PNG), b""
    while name != b"IEND":
        length = int.from_bytes(data[place : place + 4], "big")
        end = place + 8 + length
        if place + 8 > len(data) or end + 4 > len(data):
            raise ValueError("the file is truncated")
        name = data[place + 4 : place + 8]
        if zlib.crc32(view[place + 4 : end]) != int.from_bytes(data[end : end + 4], "big"):
            raise ValueError(f"the checksum of its chunk {name.decode('latin-1')!r} differs")
        yield name, view[place + 8 : end]
        place = end + 4


def _webp_size(data) -> tuple[int, int] | None:
    """Reads width and height from the header of a WebP; None if it is too short."""
    kind = data[12:16]
    if kind == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L" and len(data) >= 25:
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(data) >= 30:
        sides = (int.from_bytes(data[at : at + 3], "little") + 1 for at in (24, 27))
        return next(sides), next(sides)
    return None
