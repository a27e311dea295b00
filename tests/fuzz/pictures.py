"""Pictures of every format, and damage to them that a seed draws."""

import io
import struct

import numpy as np
import pillow_heif
from PIL import Image

from tests.data import crafted_pictures as crafted

pillow_heif.register_heif_opener()
EXTREMES = (
    b"\0\0",
    b"\xff\xff",
    b"\x7f\xff",
    b"\xff\x7f",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\0\1",
)


def _stored(picture, form, **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


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
        "jpeg": _stored(color, "JPEG"),
        "jpeg progressive": _stored(color, "JPEG", progressive=True),
        "jpeg turned": _stored(color, "JPEG", exif=turned),
        "jpeg gray": _stored(gray, "JPEG"),
        "jpeg cmyk": _stored(color.convert("CMYK"), "JPEG"),
        "png": _stored(color, "PNG"),
        "png palette": _stored(color.convert("P"), "PNG", transparency=3),
        "png clear": _stored(clear, "PNG", exif=turned),
        "png 16 bits of gray": _stored(Image.fromarray(deep), "PNG"),
        "png 16 bits": crafted.png(56, 40, rgb16, depth=16),
        "png one bit": _stored(gray.convert("1"), "PNG"),
        "png moving": _stored(color, "PNG", **several),
        "gif": _stored(color, "GIF"),
        "gif moving": _stored(color, "GIF", **several),
        "bmp": _stored(color, "BMP"),
        "bmp palette": _stored(color.convert("P"), "BMP"),
        "webp": _stored(color, "WEBP"),
        "webp lossless": _stored(color, "WEBP", lossless=True),
        "webp clear": _stored(clear, "WEBP", exif=turned),
        "webp moving": _stored(color, "WEBP", **several),
        "tiff": _stored(color, "TIFF", exif=turned),
        "tiff lzw": _stored(color, "TIFF", compression="tiff_lzw"),
        "tiff jpeg": _stored(color, "TIFF", compression="jpeg"),
        "avif": _stored(color, "AVIF"),
        "heic": _stored(color, "HEIF"),
    }


def damaged(data: bytes, seed: int) -> bytes:
    """A picture after an accident or an attack that the seed draws."""
    rng = np.random.default_rng(seed)
    place, changed = int(rng.integers(len(data))), bytearray(data)
    match seed % 8:
        case 0:
            return data[:place]
        case 1 | 2:
            changed[place] ^= 1 << int(rng.integers(8))
        case 3:
            for at in rng.integers(len(data), size=20):
                changed[at] ^= 1 << int(rng.integers(8))
        case 4:  # forged headers
            place = int(rng.integers(min(96, len(data))))
            extreme = EXTREMES[int(rng.integers(len(EXTREMES)))]
            changed[place : place + len(extreme)] = extreme
        case 5:
            changed[place : place + 50] = bytes(len(changed[place : place + 50]))
        case 6:
            changed[place:place] = rng.bytes(int(rng.integers(1, 30)))
        case 7:
            changed[place:place] = changed[place : place + int(rng.integers(1, 99))]
    return bytes(changed)


def with_checksums(data: bytes) -> bytes:
    """A damaged PNG whose checksums are right again, as an attacker makes them; others as is."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        return data
    place, result = 8, [data[:8]]
    while place + 8 <= len(data):
        (length,) = struct.unpack_from(">I", data, place)
        name, content = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        result.append(crafted.chunk(name, content))
        place += 12 + length
    return b"".join(result)
