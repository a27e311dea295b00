"""Weights in and out: `load`, `save`, `from_checkpoint`."""

import inspect
import os
from typing import Any

import keras

from vit_keras.models import VisionTransformer
from vit_keras.weights import checkpoint, loading, own
from vit_keras.weights.formats import Numerics
from vit_keras.weights.own import open_model

REQUIRED = (
    "classifier",
    "image_size",
    "patch_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "mlp_dim",
)


def load(
    model: keras.Model,
    path: str | os.PathLike,
    source: str | None = None,
    head: str = "keep",
    interpolation: str | None = None,
) -> keras.Model:
    """Copies the weights of a file or folder into `model`, and returns it.

    Args:
        source: the format's name, such as "timm"; detected from the names where None.
        head: "keep" takes the file's classifier, "drop" leaves the model's as it is, "reset" sets
            it to zero, as a fine-tuning starts.
        interpolation: of position embeddings on another grid; the source's own where None.

    The model computes as the source from then on: GELU, epsilon, preprocessing. Raises
    FileNotFoundError where there is no file; ValueError where it is damaged, of no known format,
    or does not fit: then all differences are listed, and the model stays as it was.
    """
    with checkpoint.opened(path, source) as file:
        loading.copy(model, file, head, interpolation)
    return model


def from_checkpoint(
    path: str | os.PathLike,
    source: str | None = None,
    interpolation: str | None = None,
    **overrides: Any,
) -> keras.Model:
    """The model in a file or folder, built and loaded.

    `overrides` are arguments of `VisionTransformer`: what the file and its config do not say, such
    as `num_heads` of a bare timm file, or what is to differ: another `image_size`, `patch_size` or
    `channels` adapts the weights, another `num_classes` starts a head at zero. ValueError names
    what is missing; otherwise as `load`.
    """
    if os.fspath(path).endswith(".keras"):
        return own.open_with(os.fspath(path), overrides)
    known = inspect.signature(VisionTransformer).parameters
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise ValueError(
            f"Overrides are arguments of VisionTransformer. Received: {', '.join(unknown)}"
        )
    with checkpoint.opened(path, source) as file:
        inferred = file.infer()
        numerics = file.numerics() or Numerics()
        arguments = {
            "gelu": numerics.gelu,
            "layer_norm_epsilon": numerics.layer_norm_epsilon,
            "num_classes": None,
            **inferred,
            **overrides,
        }
        _check_complete(arguments, file)
        model = VisionTransformer(**arguments)
        head = _head(inferred.get("num_classes"), arguments["num_classes"])
        loading.copy(model, file, head, interpolation)
    _keep_overridden(model, overrides, numerics)
    return model


def _check_complete(arguments, file):
    missing = [name for name in REQUIRED if name not in arguments]
    if missing:
        given = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{file.path!r} ({file.format.name}) and what lies beside it do not say "
            f"{' and '.join(f'`{name}`' for name in missing)}; give it as "
            f"from_checkpoint(path, {given})"
        )


def _head(theirs, ours):
    if theirs == ours:
        return "keep"
    return "drop" if ours is None else "reset"


def _keep_overridden(model, overrides, numerics):
    """An overridden GELU or epsilon is the caller's, not the source's."""
    gelu = overrides.get("gelu", numerics.gelu)
    epsilon = overrides.get("layer_norm_epsilon", numerics.layer_norm_epsilon)
    if (gelu, epsilon) != (numerics.gelu, numerics.layer_norm_epsilon):
        loading.architecture.set_numerics(model, gelu, epsilon)


__all__ = ["from_checkpoint", "load", "open_model"]
