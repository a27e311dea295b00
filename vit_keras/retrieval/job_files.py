"""What a job of embedding keeps beside its parts: its list of pictures and its description."""

import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from vit_keras.files import replacing
from vit_keras.json_files import parse_json
from vit_keras.retrieval.picture_lists import Picture, PictureList

FILE = "pictures.jsonl"  # one picture a line
FIELDS = tuple[str, str | None, str | None, int | None]  # of a `Picture`
ABOUT = ("model", "folder")  # what may differ where a job goes on


def list_once(pictures: PictureList, folder: pathlib.Path | None) -> dict[str, Any]:
    """Goes through the pictures once; writes them to the folder, or compares them with those there.

    Args:
        pictures: The pictures.
        folder: The folder of the job; None to write nothing.

    Returns:
        The number of pictures and the SHA-256 of their list.

    Raises:
        ValueError: If there are no pictures, or if they are others than those in the folder. The
            message names the first difference.
    """
    count, digest, file = 0, hashlib.sha256(), folder and folder / FILE

    def lines():
        nonlocal count
        for picture in pictures.pictures:
            line = json.dumps(picture) + "\n"
            digest.update(line.encode())
            count += 1
            yield line

    if file is None:
        for _ in lines():
            pass
    elif file.is_file():
        _compare(lines(), file)
    else:
        with replacing(file) as temporary, open(temporary, "w", encoding="utf-8") as opened:
            opened.writelines(lines())
    if not count:
        raise ValueError("There must be at least one picture. Received: none")
    return {"count": count, "sha256": digest.hexdigest()}


def read_pictures(folder: pathlib.Path) -> Iterator[Picture]:
    """Reads the pictures of a job one by one."""
    with open(folder / FILE, encoding="utf-8") as file:
        for line in file:
            yield _picture(line, folder)


def _compare(lines, file):
    with open(file, encoding="utf-8") as recorded:
        for then, now in itertools.zip_longest(recorded, lines):
            if then != now:
                raise ValueError(
                    f"The pictures have changed since the job in {os.fspath(file.parent)!r} began: "
                    f"{_shown(then, file.parent)} then, {_shown(now, file.parent)} now. "
                    "Restore them, or remove that folder to begin again"
                )


def _shown(line, folder):
    if line is None:
        return "no more pictures"
    picture = _picture(line, folder)
    size = "" if picture.size is None else f" of {picture.size} bytes"
    return f"{picture.path!r}{size}"


def _picture(line, folder):
    name = f"A line of {os.fspath(folder / FILE)!r}"
    remedy = f"Remove {os.fspath(folder)!r} to begin again"
    return Picture(*parse_json(line, name, FIELDS, remedy))


def check_same(recorded: dict[str, Any], requested: dict[str, Any], which: str) -> None:
    """Raises ValueError, with all differences, unless a job is the one that is requested."""
    differences = [
        f"{name}: {recorded.get(name)!r} there, {requested.get(name)!r} here"
        for name in sorted({*recorded, *requested} - {*ABOUT})
        if recorded.get(name) != requested.get(name)
    ]
    if differences:
        raise ValueError(
            f"{which} ({'; '.join(differences)}). Give another --out, or remove it to begin again"
        )
