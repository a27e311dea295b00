"""Chooses an installed backend before Keras is imported; afterward it cannot change."""

import difflib
import os
import pathlib
import sys
from typing import TypedDict

from vit_keras.support import extras
from vit_keras.support.json_files import read_json

BACKENDS = ("tensorflow", "jax", "torch")
SERVING = ("openvino",)  # predicts, and does not train


class KerasFile(TypedDict):
    """The required content of Keras' configuration file."""

    backend: str


def choose() -> None:
    """Sets `KERAS_BACKEND` to an installed backend if Keras' default is not installed.

    A backend that the user names in `KERAS_BACKEND`, or that Keras already uses, is kept. OpenVINO
    is used only if it is named.

    Raises:
        ValueError: If the backend is unknown.
        ImportError: If the backend in `KERAS_BACKEND` is not installed, or if none is.
    """
    if "keras" in sys.modules:
        return
    requested = os.environ.get("KERAS_BACKEND")
    known = (*BACKENDS, *SERVING)
    if name() not in known:
        near = difflib.get_close_matches(name(), known, n=1)
        place = "`KERAS_BACKEND`, or else `backend` in Keras' keras.json,"
        hint = f". Did you mean {near[0]}?" if near else ""
        names = f"{', '.join(known[:-1])} or {known[-1]}"
        raise ValueError(f"{place} must be {names}. Received: {name()!r}{hint}")
    if requested:
        extras.check(requested, extra=requested, purpose=f"KERAS_BACKEND={requested}")
    elif not extras.is_installed(_default()):
        installed = [name for name in BACKENDS if extras.is_installed(name)]
        if not installed:
            raise ImportError(
                'Keras needs a backend: pip install "vit-keras[jax]", or tensorflow or torch '
                "instead of jax"
            )
        os.environ["KERAS_BACKEND"] = installed[0]


def name() -> str:
    """The backend that Keras uses, or will use once it is imported."""
    return os.environ.get("KERAS_BACKEND") or _default()


def _default():
    """The backend in Keras' configuration file, which Keras writes on first import."""
    folder = os.environ.get("KERAS_HOME") or pathlib.Path.home() / ".keras"
    try:
        return read_json(pathlib.Path(folder, "keras.json"), KerasFile)["backend"]
    except (OSError, ValueError):  # Keras reports the error
        return BACKENDS[0]
