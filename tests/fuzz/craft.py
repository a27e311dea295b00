"""What a crafted file is."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple


class Craft(NamedTuple):
    """A change of a valid file by which it becomes a crafted one.

    Attributes:
        subject: A key of `subjects.SUBJECTS`.
        name: The change in words.
        spoil: Takes the path that is opened, and changes the file or a file in the folder.
        valid: Whether the changed file may well describe another model.
    """

    subject: str
    name: str
    spoil: Callable[[pathlib.Path], None]
    valid: bool = False
