"""One study for each table or figure, as a module whose `run(lab)` returns a `Result`."""

import importlib
from collections.abc import Callable

from vit_keras.layers.base import check_choice
from vit_keras.reproduce.results import Result

NAMES = (
    *(f"table{number}" for number in range(1, 9)),
    *(f"figure{number}" for number in range(3, 11)),
)


def study(name: str) -> Callable[..., Result]:
    """Finds a study by its name.

    Args:
        name: One of `NAMES`, such as "table8".

    Returns:
        A function that takes a `Lab` and returns a `Result`.

    Raises:
        ValueError: There is no such study; the error lists all names.
    """
    check_choice(name, NAMES, "name")
    return importlib.import_module(f"{__name__}.{name}").run
