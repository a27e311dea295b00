"""WebDataset's tar files: members with the same name before the first dot are one record."""

import itertools
import os
import pathlib
import tarfile
from collections.abc import Iterator

from vit_keras.data.pillow_images import SUFFIXES
from vit_keras.data.shards.records import Record, check_class, damaged

MOST_LABEL_BYTES = 32
MOST_PADDING = 2**20  # zeros after the last member


def scan_tar(path: str) -> Iterator[Record]:
    """Yields a record for each picture in a tar file; the member `.cls` holds its class, if any.

    Members of other kinds are passed over. Nothing is extracted.

    Raises:
        ValueError: If the file is truncated, compressed or otherwise damaged, if the name of a
            member leads out of it, or if a record has two pictures. The message names the file.
    """
    with open(path, "rb") as file:
        archive = _open(path, file)
        for key, members in itertools.groupby(_members(path, archive), key=_key):
            record = _record(path, key, file, list(members))
            if record is not None:
                yield record
        _check_end(path, file, archive.offset)


def _open(path, file):
    try:
        return tarfile.open(fileobj=file, mode="r:")
    except Exception as error:  # of a header that anyone may have written
        raise damaged(path, str(error) or type(error).__name__) from error


def _members(path, archive):
    """Yields the files in an archive, and checks their places."""
    size = os.path.getsize(path)
    while (member := _next(path, archive)) is not None:
        if not member.isfile():
            continue
        name = pathlib.PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts:
            raise damaged(path, f"its member {member.name!r} leads out of it")
        if member.issparse():
            raise damaged(path, f"its member {member.name!r} is sparse")
        if member.size < 0 or member.offset_data + member.size > size:
            raise damaged(path, f"its member {member.name!r} ends behind the end of the file")
        yield member


def _next(path, archive):
    archive.members = []  # which would otherwise hold all members in memory
    try:
        return archive.next()
    except Exception as error:  # of a header that anyone may have written
        raise damaged(path, str(error) or type(error).__name__) from error


def _key(member):
    folder, _, name = member.name.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


def _record(path, key, file, members):
    """The record that some members are; None for members without a picture."""
    suffix = lambda name: f".{name.rpartition('/')[2].partition('.')[2].lower()}"
    by_suffix = {suffix(member.name): member for member in members}
    pictures = [member for name, member in by_suffix.items() if name in SUFFIXES]
    if len(by_suffix) < len(members) or len(pictures) > 1:
        raise damaged(path, f"its record {key.lstrip('/')!r} has two members of a kind")
    if not pictures:
        return None
    label = _label(path, file, by_suffix[".cls"]) if ".cls" in by_suffix else None
    return Record(pictures[0].offset_data, pictures[0].size, label)


def _label(path, file, member):
    file.seek(member.offset_data)
    text = file.read(min(member.size, MOST_LABEL_BYTES)).strip()
    where = f"its member {member.name!r}"
    if member.size > MOST_LABEL_BYTES or not text.isdigit():
        raise damaged(path, f"{where} must hold the number of a class")
    return check_class(path, where, int(text))


def _check_end(path, file, offset):
    """Checks that zeros alone follow: Python's reader takes a damaged header for the end."""
    file.seek(offset)
    rest = file.read(MOST_PADDING + 1)
    if not rest or len(rest) > MOST_PADDING or rest.strip(b"\0"):
        raise damaged(path, f"it has no end of an archive at byte {offset}")
