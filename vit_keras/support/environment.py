"""The backend, versions and machine of a run, which `environment.json` in its folder holds."""

import importlib.metadata
import os
import pathlib
import platform
from typing import NotRequired, TypedDict

import keras

from vit_keras.support.json_files import read_json

PACKAGES = (
    "keras",
    "tensorflow",
    "jax",
    "torch",
    "numpy",
    "keras-cv",
    "tensorflow-datasets",
    "scikit-learn",
)


class Environment(TypedDict):
    """What `environment.json` must hold: what the run computes with."""

    backend: str
    keras: NotRequired[str | None]
    kernels: NotRequired[dict[str, dict[str, bool]]]


def describe_environment() -> dict[str, str | int | None]:
    """The backend, versions and machine, for a reader who wants the same numbers."""
    versions: dict[str, str | None] = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "backend": keras.backend.backend(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        **versions,
    }


def read_environment(folder: pathlib.Path) -> Environment:
    """Reads `environment.json` of a run's folder.

    Raises:
        FileNotFoundError, ValueError: The file is missing or damaged.
    """
    remedy = "Restore it, or begin another run with another --workdir"
    return read_json(folder / "environment.json", Environment, remedy)
