"""What earlier versions went by where the file of a run lacks a field of today."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_keras import variants
from vit_keras.config.run import Config

RESIZE = "model.antialias"
LIBRARY = "augment.library"  # of RandAugment, which was keras before it was pillow


def as_recorded(config: Config, fields: Mapping[str, Any]) -> Config:
    """Returns a run's configuration as the version that wrote it went by it.

    Args:
        config: The configuration, with today's values of the fields that the file lacks.
        fields: The fields in the file. Without `model.antialias`, new models of the paper's
            variants did not average pixels; weights and families had their own resize, as now.
            Without `model.rounding`, no model rounded levels.
    """
    model = config.model
    if model.weights and "rounding" not in fields.get("model", {}):
        model = dataclasses.replace(model, rounding="none")
        config = dataclasses.replace(config, model=model)
    weights_say_it = model.weights and not model.weights.endswith(".weights.h5")
    row = variants.VARIANTS.get(model.variant or "")
    has_own = weights_say_it or isinstance(row, variants.FamilyVariant)
    if "antialias" in fields.get("model", {}) or has_own:
        return config
    return dataclasses.replace(config, model=dataclasses.replace(model, antialias=False))


def as_begun(config: Config, recorded: Config) -> Config:
    """Returns a configuration that rounds no levels where its run began so.

    Args:
        config: What is requested.
        recorded: What the run's file holds, after `as_recorded`.
    """
    if config.model.rounding is None and recorded.model.rounding == "none":
        model = dataclasses.replace(config.model, rounding="none")
        return dataclasses.replace(config, model=model)
    return config


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
