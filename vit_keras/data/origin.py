"""Where pictures come from, and those that could not be read."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np


class UnreadableImages:
    """The pictures that could not be read, and what to do about one.

    Attributes:
        stop: whether the first one stops the run.
        names: of those that others stand in for.
    """

    def __init__(self, stop: bool = True):
        self.stop, self.names, self.file = stop, set(), None

    def record_in(self, file) -> None:
        """Goes on with the names in `file` and writes every new one there."""
        self.file = file
        if file.is_file():
            self.names |= set(file.read_text().splitlines())

    def add(self, name: str, reason: str) -> None:
        """Notes a picture once; ValueError with the reason where the first one stops the run."""
        if self.stop:
            raise ValueError(
                f"{reason}. Repair or remove it, or set data.on_corrupt to skip: the next image "
                "then stands in"
            )
        if name not in self.names:
            self.names.add(name)
            if self.file is not None:
                with open(self.file, "a") as file:
                    file.write(f"{name}\n")

    def report(self) -> str:
        """A line that counts and names them, or nothing."""
        if not self.names:
            return ""
        return f"{len(self.names)} unreadable images replaced: {', '.join(sorted(self.names))}"


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where images come from that may turn out unreadable.

    Attributes:
        manifest: gives one line a file of the whole split, that changes when the file does.
        name: index -> what to call an image.
        reason: index -> why it cannot be read.
        channels: of the images.
        unreadable: what then happens.
        pixel_scale: brings the stored pixels to [0, 255].
    """

    manifest: Callable[[], Sequence[str]]
    name: Callable[[int], str]
    reason: Callable[[int], str]
    channels: int
    unreadable: UnreadableImages
    pixel_scale: int = 1

    def part(self, indices: np.ndarray) -> "Origin":
        """The same for the images at `indices`."""
        name, reason = (lambda i: self.name(indices[i])), (lambda i: self.reason(indices[i]))
        return dataclasses.replace(self, name=name, reason=reason)
