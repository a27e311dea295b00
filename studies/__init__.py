"""The paper's tables and figures as studies: our results beside what the paper prints.

Each study is a module whose `run(lab)` returns a `Result`. `python reproduce.py` runs them.

Example:
    folder = pathlib.Path("reproduction")
    lab = Lab(folder, DigitsScale(folder))
    print(as_text(study("table8")(lab)))
"""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from vit_keras.support.checks import (
    check_choice,  # vit_keras goes before Keras, and chooses a backend
)

if TYPE_CHECKING:
    from studies.results import Result

NAMES = (
    *(f"table{number}" for number in range(1, 9)),
    *(f"figure{number}" for number in range(3, 11)),
)


def study(name: str) -> Callable[..., "Result"]:
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
