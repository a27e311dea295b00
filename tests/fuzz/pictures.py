"""Tiny pictures of every format, as subjects, and forged numbers in their headers."""

import struct

import numpy as np
import pillow_heif
from PIL import Image

from tests.data import crafted_pictures as crafted
from tests.data.deep_pictures import stored
from tests.fuzz import damage

pillow_heif.register_heif_opener()
EXTREMES = (b"\0\0", b"\xff\xff", b"\x7f\xff", b"\xff\x7f", b"\0" * 4, b"\xff" * 4, b"\0\1")


def whole_pictures() -> dict[str, bytes]:
    """Undamaged pictures by name; the name begins with the format."""
    rng = np.random.default_rng(0)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype="uint8"))
    color = coarse.resize((56, 40), Image.Resampling.BICUBIC)
    gray, other = color.convert("L"), color.rotate(180)
    clear = color.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(color.size))
    deep = np.asarray(gray).astype("uint16") * 257 + rng.integers(0, 99, (40, 56), dtype="uint16")
    turned = Image.Exif()
    turned[0x0112] = 6
    rgb16 = rng.integers(0, 65536, (40, 56, 3), dtype="uint16").astype(">u2").tobytes()
    several = {"save_all": True, "append_images": [other]}
    return {
        "jpeg": stored(color, "JPEG"),
        "jpeg progressive": stored(color, "JPEG", progressive=True),
        "jpeg gray": stored(gray, "JPEG"),
        "jpeg cmyk": stored(color.convert("CMYK"), "JPEG"),
        "png": stored(color, "PNG"),
        "png palette": stored(color.convert("P"), "PNG", transparency=3),
        "png clear": stored(clear, "PNG", exif=turned),
        "png 16 bits of gray": stored(Image.fromarray(deep), "PNG"),
        "png 16 bits": crafted.png(56, 40, rgb16, depth=16),
        "png one bit": stored(gray.convert("1"), "PNG"),
        "png moving": stored(color, "PNG", **several),
        "png gray clear": stored(clear.convert("LA"), "PNG"),
        "gif": stored(color, "GIF"),
        "gif moving": stored(color, "GIF", **several),
        "bmp": stored(color, "BMP"),
        "webp": stored(color, "WEBP"),
        "webp lossless": stored(color, "WEBP", lossless=True),
        "webp clear": stored(clear, "WEBP", exif=turned),
        "tiff": stored(color, "TIFF", exif=turned),
        "tiff lzw": stored(color, "TIFF", compression="tiff_lzw"),
        "tiff jpeg": stored(color, "TIFF", compression="jpeg"),
        "avif": stored(color, "AVIF"),
        "heic": stored(color, "HEIF"),
    }


def _open(path):
    """The pixels; gray must be the gray of the colors."""
    from vit_keras.data import picture_files

    pixels, gray = (picture_files.read_encoded(path.read_bytes(), channels) for channels in (3, 1))
    luma = (pixels @ [0.299, 0.587, 0.114])[..., None]
    assert luma.shape == gray.shape and abs(luma - gray).max(initial=0) <= 1
    return [pixels.tobytes(), pixels.shape]


def _named(path):
    try:
        return _open(path)
    except ValueError as error:  # whose caller names the file
        raise ValueError(f"{path}: {error}") from error


def forge_picture(path, rng):
    """An extreme number in the header, or other damage; a PNG's checksums are right again."""
    data = path.read_bytes()
    if rng.integers(2):
        data, change = damage.damaged(data, rng)
    else:
        place, extreme = int(rng.integers(96)), EXTREMES[int(rng.integers(len(EXTREMES)))]
        change = f"{extreme!r} at {place}"
        data = data[:place] + extreme + data[place + len(extreme) :]
    path.write_bytes(with_checksums(data))
    return change, True


def with_checksums(data: bytes) -> bytes:
    """A PNG with the checksums that an attacker would make; other pictures as they are."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    place, result = 8, [data[:8]]
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        result.append(crafted.chunk(name, content))
        place += 12 + length
    return b"".join(result)


def _row(name):
    return lambda rng, folder: (folder / "a.picture").write_bytes(whole_pictures()[name])


PICTURES = {f"picture, {name}": (_row(name), "a.picture", _named) for name in whole_pictures()}
