"""The global heaps of HDF5 files, in which texts lie; the library loops on damaged ones."""

import struct
from collections.abc import Iterator
from typing import IO

from vit_keras.weights.containers.checks import DamagedFile

SIGNATURE = b"GCOL\x01\x00\x00\x00"  # with the version and what is reserved
HEADER = struct.Struct("<8sQ")  # the signature, and the size of a heap with this header
OBJECT = struct.Struct("<HH4xQ")  # index, references, size; index 0 is what is free
LARGEST_HEAP = 2**24  # the library makes heaps of 4 kB, or of one longer text
CHUNK_BYTES = 2**20


def check_heaps(file: IO[bytes], label: str) -> dict[int, dict[int, int]]:
    """Checks that the objects in each heap lie one after another, and end where the heap ends.

    See "Disk Format: Level 1E - Global Heap" of the HDF5 file format specification.

    Returns:
        For the place of each heap, the size of each object by its number.

    Raises:
        DamagedFile: They do not.
    """
    heaps = {}
    for place in _places(file):
        file.seek(place)
        _, size = HEADER.unpack(file.read(HEADER.size).ljust(HEADER.size, b"\0"))
        heap = file.read(min(size, LARGEST_HEAP) - HEADER.size) if size > HEADER.size else b""
        heaps[place] = _objects(heap)
        if not heaps[place]:
            raise DamagedFile(f"{label} is damaged: the texts at byte {place} are")
    file.seek(0)
    return heaps


def _objects(heap) -> dict[int, int]:
    """The size of each object by its number, 0 for what is free; empty if they do not fit."""
    place, sizes = 0, {}
    while place + OBJECT.size <= len(heap):
        index, _, size = OBJECT.unpack_from(heap, place)
        taken = OBJECT.size + (size + 7) // 8 * 8 if index else size
        if taken < OBJECT.size or place + taken > len(heap):
            return {}
        sizes[index] = size
        place += taken
    return sizes


def _places(file) -> Iterator[int]:
    """The places of all heaps, which begin at multiples of 8."""
    file.seek(0)
    places: list[int] = []
    start, kept = 0, b""
    while chunk := file.read(CHUNK_BYTES):
        text = kept + chunk
        at = text.find(SIGNATURE)
        while at >= 0:
            places.append(start - len(kept) + at)
            at = text.find(SIGNATURE, at + 1)
        start, kept = start + len(chunk), text[-len(SIGNATURE) + 1 :]
    return iter(places)
