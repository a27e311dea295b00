"""Pictures that no encoder writes, such as data that unfold to gigabytes, and what they take."""

import struct
import zlib


def chunk(name: bytes, content: bytes) -> bytes:
    """A chunk of a PNG, with its length and its checksum."""
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def png(width: int, height: int, pixels: bytes, depth=8, color=2, extra: bytes = b"") -> bytes:
    """A PNG of unfiltered rows, fewer than `height` if need be, with `extra` chunks before them.

    The color type is 0 (gray), 2 (RGB), 4 or 6 (with alpha).
    """
    row = -(-width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color] // 8)
    rows = b"".join(b"\0" + pixels[at : at + row] for at in range(0, len(pixels), row))
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    body = chunk(b"IHDR", header) + extra + chunk(b"IDAT", zlib.compress(rows, 9))
    return b"\x89PNG\r\n\x1a\n" + body + chunk(b"IEND", b"")


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_mb():
    """The most memory of this process since `reset_peak`, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024
