"""Optional packages, backends among them, and names that are imported on first use."""

import ast
import importlib
import importlib.util
import json
import os
import pathlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

# The modules that each extra of `vit-keras` installs, besides one with the extra's own name.
MODULES = {
    "data": "PIL fsspec scipy sklearn tqdm",
    "tables": "pyarrow",
    "train": "matplotlib pycocotools yaml",
    "heic": "pillow_heif",
    "deep": "imagecodecs tifffile",
    "search": "usearch",
    "shards": "aiohttp",
    "hf": "datasets",
    "tfds": "google_crc32c tensorflow_datasets",
    "runtimes": "ai_edge_litert onnxruntime",
    "text": "tokenizers",
    "hub": "huggingface_hub kagglehub",
    "weights": "h5py safetensors",
}
EXTRAS = {module: extra for extra, modules in MODULES.items() for module in modules.split()}
# Distributions whose name differs from the module's by more than a dash.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "yaml": "pyyaml"}
# Distributions without builds for later versions of Python.
LAST_PYTHON = {"tensorflow": (3, 13), "keras-cv": (3, 13)}


def require(module: str) -> types.ModuleType:
    """Imports a module of a package that an extra of `vit-keras` installs.

    Args:
        module: The name to import, such as `"ai_edge_litert.interpreter"`.

    Returns:
        The imported module.

    Raises:
        ImportError: If the package, or one that it imports itself, is not installed. The message
            names the extra.

    Example:
        ```python
        yaml = extras.require("yaml")
        ```
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        check((error.name or module).partition(".")[0], extra=_extra_of(module))
        raise  # a module is missing inside an installed package


def check(*modules: str, extra: str = "", purpose: str = "This") -> None:
    """Checks, without importing them, that packages are installed.

    Args:
        *modules: The modules.
        extra: The extra to name; by default those that install what is missing.
        purpose: What needs them, for the message.

    Raises:
        ImportError: If some of the packages are not installed. The message lists all of them.
    """
    missing = [name for name in modules if not is_installed(name)]
    if not missing:
        return
    names = [DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in missing]
    extra = extra or ",".join(sorted({*map(_extra_of, missing)}))
    remedy = f': pip install "vit-keras[{extra}]"'
    for name in names:
        if (last := LAST_PYTHON.get(name)) and sys.version_info[:2] > last:
            remedy = f". {name} cannot be installed on Python after {last[0]}.{last[1]}"
    raise ImportError(f"{purpose} needs {' and '.join(names)}{remedy}", name=missing[0])


def is_installed(module: str) -> bool:
    """Whether the package that holds `module` is installed."""
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def _extra_of(module):
    package = module.partition(".")[0]
    return EXTRAS.get(package, package.replace("_", "-"))


def typed_names(
    package: str, others: Mapping[str, str] = types.MappingProxyType({})
) -> tuple[Callable[[str], Any], list[str]]:
    """Returns the `__getattr__` and the `__all__` of a package whose names are listed only once.

    The names are the ones that its `__init__` imports below `if TYPE_CHECKING:`, where type
    checkers see them. Each is imported when it is first used.

    Args:
        package: The package's `__name__`.
        others: Names that are not in `__all__`, and the modules that hold them.
    """
    blocks = [node for node in syntax_of(package).body if isinstance(node, ast.If)]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    modules = {a.name: str(node.module) for node in imports for a in node.names}
    known = {**modules, **others}

    def __getattr__(name):
        if name not in known:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if known[name] == package:
            return importlib.import_module(f"{package}.{name}")
        return getattr(__import__(known[name], fromlist=[name]), name)  # a module's name too

    return __getattr__, sorted(modules)


def syntax_of(module: str) -> ast.Module:
    """Returns the syntax tree of a module, without importing it."""
    loader: Any = importlib.util.find_spec(module).loader  # type: ignore[union-attr]
    return ast.parse(loader.get_source(module))


def docstring_of(module: str) -> str:
    """Returns a module's docstring from its source, since `python -OO` drops docstrings."""
    return str(ast.get_docstring(syntax_of(module)))


BACKENDS = ("tensorflow", "jax", "torch")
SERVING = ("openvino",)  # predicts, and does not train


def choose_backend() -> None:
    """Sets `KERAS_BACKEND` to an installed backend if Keras' default is not installed.

    A backend that the user names in `KERAS_BACKEND`, or that Keras already uses, is kept. OpenVINO
    is used only if it is named. Keras refuses an unknown backend when it is imported.

    Raises:
        ImportError: If the backend in `KERAS_BACKEND` is not installed, or if none is.
    """
    if "keras" in sys.modules or backend_name() not in (*BACKENDS, *SERVING):
        return
    if requested := os.environ.get("KERAS_BACKEND"):
        check(requested, purpose=f"KERAS_BACKEND={requested}")
    elif not is_installed(_default_backend()):
        installed = [name for name in BACKENDS if is_installed(name)]
        if not installed:
            raise ImportError(
                'Keras needs a backend: pip install "vit-keras[jax]", or tensorflow or torch'
            )
        os.environ["KERAS_BACKEND"] = installed[0]


def backend_name() -> str:
    """The backend that Keras uses, or will use once it is imported."""
    return os.environ.get("KERAS_BACKEND") or _default_backend()


def _default_backend():
    """The backend in Keras' configuration file, which Keras writes on first import."""
    folder = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    try:
        return str(json.loads(pathlib.Path(folder, "keras.json").read_bytes())["backend"])
    except (OSError, ValueError, KeyError, TypeError):  # Keras reports the error
        return BACKENDS[0]
