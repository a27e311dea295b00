"""The folder of a run: what it is, where its files lie, whose it is."""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform

import keras

from vit_keras.config import Config, dump_config, read_config
from vit_keras.files import write_text
from vit_keras.weights import from_checkpoint, open_model, resolve

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


@dataclasses.dataclass(frozen=True)
class Run:
    """A run's folder; `open_run` makes one, `find_run` opens what is there."""

    folder: pathlib.Path
    config: Config

    @property
    def checkpoints(self) -> pathlib.Path:
        return self.folder / "checkpoints"

    @property
    def model_file(self) -> pathlib.Path:
        return self.folder / "model.keras"


def default_workdir(config: Config) -> pathlib.Path:
    """`runs/NAME-BACKEND-HASH`: one folder a configuration, so the same command resumes its run."""
    digest = hashlib.sha256(_identity(config).encode()).hexdigest()[:8]
    return pathlib.Path("runs") / f"{config.name}-{keras.backend.backend()}-{digest}"


def open_run(config: Config) -> Run:
    """Makes the folder of a run, or opens it again where the same configuration made it.

    Raises ValueError, and leaves everything as it is, where the folder belongs to another run or
    holds something else.
    """
    folder = pathlib.Path(config.workdir) if config.workdir else default_workdir(config)
    described = folder / "config.yaml"
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`workdir` must be a folder. Received: {str(folder)!r}, a file")
    if described.exists():
        _check_same(folder, config)
    elif folder.exists() and any(folder.iterdir()):
        raise ValueError(
            f"{str(folder)!r} exists, is not empty and is no run's folder. Give another --workdir"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "environment.json", json.dumps(environment(), indent=2))
    write_text(described, dump_config(config))
    return Run(folder, config)


def find_run(folder: str | os.PathLike) -> Run:
    """The run in `folder`; FileNotFoundError where there is none or it has no model yet."""
    folder = pathlib.Path(folder)
    if not (folder / "config.yaml").is_file():
        raise FileNotFoundError(f"{str(folder)!r} is no run's folder: it has no config.yaml.")
    run = Run(folder, read_config(str(folder / "config.yaml")))
    if not run.model_file.is_file():
        raise FileNotFoundError(
            f"The run in {str(folder)!r} has no model.keras yet: the command that began it goes on "
            "with it."
        )
    return run


def open_source(path: str | os.PathLike) -> tuple[keras.Model, Run | None]:
    """The model of a run's folder with its run, or that of any checkpoint with None.

    A checkpoint is a `.keras` file, or a file or folder of any format that `vit_keras.weights`
    reads; the model then prepares its images as their source did.
    """
    if os.path.isfile(path):
        return (open_model if str(path).endswith(".keras") else from_checkpoint)(path), None
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no run and no checkpoint at {os.fspath(path)!r}.")
    if os.path.isfile(os.path.join(path, "config.json")):
        return from_checkpoint(path), None
    run = find_run(path)
    return open_model(run.model_file), run


def find_weights(weights: str, variant: str | None) -> str:
    """The file of a run's `model.weights`: a run's folder, a checkpoint, or a published name."""
    if os.path.isfile(os.path.join(weights, "config.yaml")):
        return str(find_run(weights).model_file)
    if os.path.exists(weights):
        return weights
    if variant is None:
        raise ValueError(
            "`model.weights` must be a run's folder, a checkpoint, or with `model.variant` a "
            f"published name. Received: weights={weights!r}, variant=None"
        )
    return resolve(variant, weights)


def environment() -> dict[str, str | int | None]:
    """Versions and machine, for a reader who wants the same numbers."""
    versions = {}
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


def _identity(config: Config) -> str:
    return dump_config(dataclasses.replace(config, workdir=None))


def _check_same(folder, config):
    import yaml

    recorded = json.loads((folder / "environment.json").read_text())["backend"]
    if recorded != keras.backend.backend():
        raise ValueError(
            f"{str(folder)!r} belongs to a run on backend {recorded!r}, and this one is on "
            f"{keras.backend.backend()!r}. Give another --workdir, or KERAS_BACKEND={recorded}"
        )
    there = _flat(yaml.safe_load((folder / "config.yaml").read_text()))
    here = _flat(yaml.safe_load(_identity(config)))
    other = [
        f"{name}: {there.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*there, *here} - {"workdir"})
        if there.get(name) != here.get(name)
    ]
    if other:
        raise ValueError(
            f"{str(folder)!r} belongs to another run ({'; '.join(other)}). Give another --workdir"
        )


def _flat(fields, prefix=""):
    flat = {}
    for name, value in fields.items():
        name = prefix + name
        flat |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return flat
