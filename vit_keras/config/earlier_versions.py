"""What earlier versions went by where the file of a run lacks a field of today."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from vit_keras import variants
from vit_keras.config.model import ModelConfig
from vit_keras.config.run import Config

RESIZE = "model.antialias"
LIBRARY = "augment.library"  # of RandAugment, which was keras before it was pillow
ROUNDING: Literal["torchvision"] = "torchvision"  # of a new model, as `models.Preprocessing` has it


def as_recorded(config: Config, fields: Mapping[str, Any]) -> Config:
    """Returns a run's configuration as the version that wrote it went by it.

    Args:
        config: The configuration, with today's values of the fields that the file lacks.
        fields: The fields in the file. Without `model.antialias`, new models of the paper's
            variants did not average pixels; weights and families had their own resize, as now.
            Without `model.rounding`, no model rounded levels, and where it was null, no new one.
    """
    model, said = config.model, fields.get("model", {})
    if "rounding" not in said or (model.rounding is None and not _weights_say_it(model)):
        model = dataclasses.replace(model, rounding="none")
    row = variants.VARIANTS.get(model.variant or "")
    has_own = _weights_say_it(model) or isinstance(row, variants.FamilyVariant)
    if "antialias" not in said and not has_own:
        model = dataclasses.replace(model, antialias=False)
    return dataclasses.replace(config, model=model)


def as_begun(config: Config, recorded: Config | None) -> Config:
    """Returns a configuration that says whether levels are rounded, unless the weights say it.

    Args:
        config: What is requested.
        recorded: What the run's file holds, after `as_recorded`; None for a new run.
    """
    if config.model.rounding is not None:
        return config
    rounding: Literal["none", "torchvision"] = ROUNDING
    if recorded and recorded.model.rounding == "none":
        rounding = "none"
    elif _weights_say_it(config.model):
        return config
    return dataclasses.replace(config, model=dataclasses.replace(config.model, rounding=rounding))


def _weights_say_it(model: ModelConfig) -> bool:
    """Whether the weights say how pictures are prepared, which `.weights.h5` files do not."""
    return model.weights is not None and not model.weights.endswith(".weights.h5")


def unused(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> set[str]:
    """The fields by which two runs may differ, since neither of them computes anything by it."""
    layers = [run.get("augment.randaugment_layers") for run in (recorded, requested)]
    return set() if any(layers) else {LIBRARY}


def option_to_continue(recorded: Mapping[str, Any], requested: Mapping[str, Any]) -> str:
    """The end of a message that refuses to continue a run, where a new default is the cause."""
    options = [
        f"--{name} {str(recorded[name]).lower()}"
        for name in (RESIZE, LIBRARY)
        if recorded.get(name) not in (None, requested.get(name))
        and name not in unused(recorded, requested)
    ]
    return f", or {' '.join(options)}, by which the run began" if options else ""
