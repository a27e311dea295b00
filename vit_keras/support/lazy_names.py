"""Names of a package whose modules are imported on first use."""

import ast
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package.

    Args:
        package: The package's `__name__`.
        places: `{name: place}`, such as "vit_keras.weights.loading:load", or a module's name, such
            as "vit_keras.legacy.vit".

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


def typed_names(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """Returns the `__getattr__` and the `__all__` of a package whose names are listed only once.

    The names are the ones that its `__init__` imports below `if TYPE_CHECKING:`, where type
    checkers see them.

    Args:
        package: The package's `__name__`.
    """
    loader: Any = importlib.util.find_spec(package).loader  # type: ignore[union-attr]
    blocks = [
        node for node in ast.parse(loader.get_source(package)).body if isinstance(node, ast.If)
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    places = {a.name: f"{node.module}:{a.name}" for node in imports for a in node.names}
    return lazy_names(package, places), sorted(places)
