"""Optional packages: imported on demand, with an error that names the extra to install."""

import importlib
import importlib.util
import sys
import types

# Distributions whose name differs from the module's by more than a dash.
DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
# Distributions without builds for later versions of Python.
LAST_PYTHON = {"tensorflow": (3, 13), "keras-cv": (3, 13)}


def require(module: str, *, extra: str, purpose: str) -> types.ModuleType:
    """Imports a package that an extra of `vit-keras` installs.

    Args:
        module: The name to import, such as `"ai_edge_litert.interpreter"`.
        extra: The extra of `vit-keras` that installs the package, such as `"export"`.
        purpose: The activity that needs the package, as a sentence's subject:
            `"Reading TFLite files"`.

    Returns:
        The imported module.

    Raises:
        ImportError: If the package, or one that it imports itself, is not installed.

    Example:
        ```python
        onnx = extras.require("onnx", extra="export", purpose="Exporting to ONNX")
        ```
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        if is_installed(missing):  # a module is missing inside an installed package
            raise
        raise ImportError(_message([missing], extra, purpose), name=missing) from error


def check(*modules: str, extra: str, purpose: str) -> None:
    """Checks that packages are installed without importing them; arguments as in `require`.

    Raises:
        ImportError: If some of the packages are not installed. The message lists all of them.
    """
    missing = [name for name in modules if not is_installed(name)]
    if missing:
        raise ImportError(_message(missing, extra, purpose), name=missing[0])


def is_installed(module: str) -> bool:
    """Whether the package that holds `module` is installed."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _message(modules, extra, purpose):
    names = [DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in modules]
    needs = f"{purpose} needs {' and '.join(names)}"
    for name in names:
        if (last := LAST_PYTHON.get(name)) and sys.version_info[:2] > last:
            return f"{needs}. {name} cannot be installed on Python after {last[0]}.{last[1]}"
    return f'{needs}: pip install "vit-keras[{extra}]"'
