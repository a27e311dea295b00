"""All crafted files, in an order that a seed draws from."""

import pathlib
from collections.abc import Iterator

from tests.fuzz import crafted_archives, crafted_h5, crafted_headers, crafted_json, crafted_torch
from tests.fuzz.craft import Craft


def structures(subject: str) -> Iterator[Craft]:
    """Forged containers of a subject."""
    if subject.endswith(".npz"):
        yield from crafted_archives.npz_cases(subject)
    if subject.endswith(".safetensors"):
        yield from crafted_headers.header_cases(subject)
    if subject.endswith((".pth", ".bin")):
        yield from crafted_torch.torch_cases(subject)
    if subject.endswith((".h5", ".keras")) or subject == "keras_hub folder":
        yield from crafted_h5.h5_cases(subject)
    if "." in subject:
        yield from crafted_headers.bytes_cases(subject)


def fields(subject: str, path: pathlib.Path) -> Iterator[Craft]:
    """Wrong fields in the JSON of a subject, whose valid file is at `path`."""
    if path.is_dir():
        yield from crafted_json.folder_cases(subject, path)
    elif path.suffix == ".safetensors":
        yield from crafted_json.note_cases(subject, path)
    elif path.suffix == ".keras":
        yield from crafted_json.keras_cases(subject, path)


def crafted(subject: str, path: pathlib.Path) -> list[Craft]:
    """All crafted files of a subject, forged containers first."""
    return [*structures(subject), *fields(subject, path)]
