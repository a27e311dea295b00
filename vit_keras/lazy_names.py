"""Names of a package whose modules are imported when the names are first used."""

import pkgutil
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    Args:
        package: The package's `__name__`.
        places: `{name: where it is}`, such as "vit_keras.weights.loading:load", or the name of a
            module, such as "vit_keras.legacy.vit".

    Example:
        >>> lazy_names("a_package", {"root": "math:sqrt"})("root")(9.0)
        3.0
    """

    def __getattr__(name):
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        place = places[name]
        return pkgutil.resolve_name(place if ":" in place else f"{place}:")

    return __getattr__
