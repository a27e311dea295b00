"""Experiment trackers, each through the Keras callback that it provides."""

import dataclasses
import importlib

import keras

from vit_keras.runs import Run


def tracker_callbacks(run: Run) -> list[keras.callbacks.Callback]:
    """Returns the callback of the run's `tracker` in a list, which is empty for "none".

    Raises:
        ValueError: The tracker's package is missing; the message gives the command to install it.
    """
    name = run.config.tracker
    return [] if name == "none" else [TRACKERS[name](run)]


def _mlflow(run):
    mlflow = _import("mlflow.keras", "mlflow")
    mlflow.start_run(run_name=run.folder.name)
    return mlflow.keras.MlflowCallback()


def _wandb(run):
    """Continues the run of the same folder, whose name identifies it there."""
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
