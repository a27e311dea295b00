"""Pictures that no encoder writes: forged headers, and data that unfolds to gigabytes."""

import struct
import zlib


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG, with its length and its checksum."""
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def png(width: int, height: int, pixels: bytes, depth=8, color=2, extra: bytes = b"") -> bytes:
    """A PNG of rows of unfiltered pixels, of a color type 0 (gray), 2 (RGB), 4 or 6 (with alpha).

    Args:
        width: The width in the header.
        height: The height in the header.
        pixels: The rows, which may be fewer than the header says.
        depth: Bits per sample.
        color: The color type.
        extra: Chunks before the pixels.
    """
    row = -(-width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color] // 8)
    rows = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")
