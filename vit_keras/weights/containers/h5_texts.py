"""The texts in attributes of HDF5 files, whose places the library compares with nothing.

An attribute with a text holds the address of a heap and the number of an object in it. With a
number that the heap does not have, HDF5's library reads from anywhere, and may end the process.
"""

import struct
from collections.abc import Iterator
from typing import IO, Any

from vit_keras.weights.containers.checks import DamagedFile

IN_HEAP = 9  # the class of the datatypes whose values lie in a heap
# What follows the first four bytes of the datatype of a text: 16 bytes in the attribute, of uint8.
TEXT = bytes.fromhex("10000000 10000000 01000000 00000800")
ATTRIBUTE, CONTINUATION = 0x0C, 0x10  # types of messages
REFERENCE = struct.Struct("<IQI")  # the length of a text, the address of its heap, its number there
LARGEST_BLOCK = 2**20  # of messages
MOST_BLOCKS = 1000


class Texts:
    """Compares the texts of attributes with the heaps of their file.

    See "Disk Format: Level 2A - Data Object Headers" of the HDF5 file format specification.

    Args:
        file: The open `h5py.File`.
        stream: The bytes of the same file.
        heaps: What `check_heaps` returned for it.
        label: What the file is called in messages.
    """

    def __init__(self, file: Any, stream: IO[bytes], heaps: dict[int, dict[int, int]], label: str):
        from h5py import h5o

        self.address_of = lambda item: h5o.get_info(item.id).addr
        self.base, self.stream, self.heaps, self.label = file.userblock_size, stream, heaps, label

    def check(self, item: Any) -> None:
        """Checks the attributes of a group or dataset, before one of them is read.

        Raises:
            DamagedFile: A text lies in no heap, or an attribute is not where it is expected.
        """
        seen = set()
        for name, data in self._attributes(self.base + self.address_of(item)):
            seen.add(name)
            if data is not None and not self._is_held(data):
                raise DamagedFile(f"{self.label} is damaged: the text {name!r} of {item.name} is")
        if missing := set(item.attrs) - seen:
            raise DamagedFile(f"{self.label} holds {min(missing)!r} of {item.name} in another way")

    def _is_held(self, data):
        if len(data) != REFERENCE.size:
            return False  # several texts
        length, place, index = REFERENCE.unpack(data)
        return length == 0 or length <= self.heaps.get(self.base + place, {}).get(index, -1)

    def _attributes(self, place) -> Iterator[tuple[str, bytes | None]]:
        """The names of attributes, and what they hold if that is texts."""
        for kind, message in self._messages(place):
            if kind == ATTRIBUTE:
                yield _attribute(message)

    def _messages(self, place) -> Iterator[tuple[int, bytes]]:
        """The type and the content of each message in the object header at `place`."""
        head = self._bytes(place, 32)
        if head[:4] == b"OHDR":
            flags = head[5]
            start = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
            width = 1 << (flags & 3)
            size = int.from_bytes(head[start : start + width], "little")
            blocks, form = [(place + start + width, size)], (4 + (2 if flags & 4 else 0), 1)
        else:
            blocks, form = [(place + 16, int.from_bytes(head[8:12], "little"))], (8, 2)
        for number, (start, size) in enumerate(blocks):
            if size > LARGEST_BLOCK or number > MOST_BLOCKS:
                raise DamagedFile(f"{self.label} is damaged: a header in it has no end")
            for kind, message in _split(self._bytes(start, size), *form):
                if kind == CONTINUATION and len(message) >= 16:
                    place, length = struct.unpack_from("<QQ", message)
                    signed = 4 if form[1] == 1 else 0  # "OCHK" before, and a checksum after
                    blocks.append((self.base + place + signed, length - 2 * signed))
                else:
                    yield kind, message

    def _bytes(self, place, size):
        self.stream.seek(place)
        return self.stream.read(max(size, 0)).ljust(32, b"\0")


def _split(block, head, width) -> Iterator[tuple[int, bytes]]:
    """The type and the content of each message in a block.

    Args:
        block: The bytes.
        head: The size of what precedes each content.
        width: The size of the number of the type, which comes first; the content's size follows.
    """
    place = 0
    while place + head <= len(block):
        kind = int.from_bytes(block[place : place + width], "little")
        size = int.from_bytes(block[place + width : place + width + 2], "little")
        yield kind, block[place + head : place + head + size]
        place += head + size


def _attribute(message) -> tuple[str, bytes | None]:
    """The name of an attribute, and what it holds if that is texts; b"" if that cannot be told."""
    version, flags, *sizes = struct.unpack_from("<BBHHH", message.ljust(8, b"\0"))
    pad = (lambda size: (size + 7) // 8 * 8) if version == 1 else (lambda size: size)
    place, fields = 9 if version == 3 else 8, []
    for size in sizes:
        fields.append(message[place : place + size])
        place += pad(size)
    name, kind, space = fields
    text = name.rstrip(b"\0").decode(errors="replace")
    if version not in (1, 2, 3) or (version > 1 and flags) or len(kind) < 4 or len(space) < 2:
        return text, b""
    if kind[0] & 0x0F != IN_HEAP:
        return text, None
    is_text = kind[1] in (0x01, 0x11, 0x21) and kind[2] in (0, 1) and not kind[3]
    if not is_text or kind[4:20] != TEXT or space[1]:  # or more dimensions than none
        return text, b""
    return text, message[place : place + REFERENCE.size]
