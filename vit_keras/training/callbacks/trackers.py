"""Experiment trackers, each through the Keras callback that it comes with."""

import dataclasses
import importlib

import keras

from vit_keras.runs import Run


def tracker_callbacks(run: Run) -> list[keras.callbacks.Callback]:
    """The callback of the run's `tracker`, [] for none.

    Raises ValueError with the command that installs it where it is missing.
    """
    name = run.config.tracker
    return [] if name == "none" else [TRACKERS[name](run)]


def _mlflow(run):
    mlflow = _import("mlflow.keras", "mlflow")
    mlflow.start_run(run_name=run.folder.name)
    return mlflow.keras.MlflowCallback()


def _wandb(run):
    """Goes on with the run of the same folder: its name is the identity there."""
    wandb = _import("wandb.integration.keras", "wandb")
    wandb.init(
        id=run.folder.name,
        resume="allow",
        dir=str(run.folder),
        config=dataclasses.asdict(run.config),
    )
    return wandb.integration.keras.WandbMetricsLogger()


TRACKERS = {"mlflow": _mlflow, "wandb": _wandb}


def _import(module, package):
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"tracker={package!r} needs its package ({error}): pip install {package}"
        ) from error
    return importlib.import_module(package)
