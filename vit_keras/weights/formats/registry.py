"""The table of formats, and the detection of a file's format."""

import importlib
import os
import re

from vit_keras.layers.base import check_choice
from vit_keras.weights.formats import FILES
from vit_keras.weights.formats.base import Format


def _row(file: str) -> Format:
    module, _, name = file.partition(".")
    return getattr(importlib.import_module(f"vit_keras.weights.formats.{module}"), name or "FORMAT")


FORMATS: dict[str, Format] = {name: _row(file) for name, file in FILES.items()}


def get(name: str) -> Format:
    """Returns the format called `name`.

    Raises:
        ValueError: If there is no such format.
    """
    check_choice(name, FORMATS, "source")
    return FORMATS[name]


def choose(names, source: str | None, path: str) -> tuple[Format, dict[str, str]]:
    """Chooses the format of a file.

    Args:
        names: The names of the file's tensors.
        source: The name of the format; None detects it.
        path: The path of the file, for messages.

    Returns:
        The format, and `{canonical name: name in the file}`.

    Raises:
        ValueError: If no format, or not the format `source`, has such names, or if the file has a
            tensor twice.
    """
    rows = FORMATS.values() if source is None else [get(source)]
    for row in rows:
        spelled = {row.canonical(name): name for name in names}
        named = row.file_names is not None and re.match(row.file_names, os.path.basename(path))
        belongs = (row.admits if source or named else None) or row.detect
        if belongs(set(spelled)):
            if len(spelled) < len(names):
                twice = sorted(set(names) - set(spelled.values()))
                raise ValueError(
                    f"{path!r} has tensors twice, under old and new names: {', '.join(twice)}"
                )
            return row, _tower(row, spelled)
    some = ", ".join(sorted(names)[:5]) or "nothing"
    raise ValueError(
        f"{path!r} holds tensors of no known format"
        f"{'' if source is None else f' called {source!r}'}: its names begin {some}. "
        f"Formats are {', '.join(map(repr, FORMATS))}"
    )


def _tower(row, spelled):
    """Leaves out the tensors beside an image tower."""
    if not row.tower:
        return spelled
    return {k: v for k, v in spelled.items() if k.startswith(row.tower)} or spelled
