"""One study a table or figure: `run(lab)` gives its `Result`."""

import importlib
from collections.abc import Callable

from vit_keras.layers.base import check_choice
from vit_keras.reproduce.results import Result

NAMES = (
    *(f"table{number}" for number in range(1, 9)),
    *(f"figure{number}" for number in range(3, 11)),
)


def study(name: str) -> Callable[..., Result]:
    """The function of the study called `name`; ValueError with all names for another."""
    check_choice(name, NAMES, "name")
    return importlib.import_module(f"{__name__}.{name}").run
