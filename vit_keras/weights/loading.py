"""Weights in and out: `load`, `save`, `from_checkpoint`."""

import dataclasses
import inspect
import os
from typing import Any

import keras

from vit_keras.models import HybridViT, ResNet, VisionTransformer
from vit_keras.weights import strict_copy, weight_file
from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.formats import native
from vit_keras.weights.formats.native import open_model
from vit_keras.weights.numerics import Numerics

REQUIRED = (
    "classifier",
    "image_size",
    "patch_size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "mlp_dim",
)
# What the source decides unless it is overridden; the last two are a hybrid's.
COMPUTATION = ("gelu", "layer_norm_epsilon", "standardization", "group_norm_epsilon")
KEEP = "as in the file"


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
    with weight_file.open_weight_file(path, source) as file:
        strict_copy.copy(model, file, head, interpolation)
    return model


def from_checkpoint(
    path: str | os.PathLike,
    source: str | None = None,
    interpolation: str | None = None,
    **overrides: Any,
) -> keras.Model:
    """The model in a file or folder, built and loaded.

    `overrides` are arguments of `VisionTransformer`, `HybridViT` or `ResNet`: what the file and
    its config do not say, such as `num_heads` of a bare timm file, or what is to differ: another
    `image_size`, `patch_size` or `channels` adapts the weights, another `num_classes` starts a
    head at zero. ValueError names what is missing; otherwise as `load`.
    """
    if os.fspath(path).endswith(".keras"):
        return native.open_with(os.fspath(path), overrides)
    with weight_file.open_weight_file(path, source) as file:
        inferred = file.infer()
        numerics = file.numerics()
        model = _build(inferred, numerics, overrides, file)
        head = _head(inferred.get("num_classes"), overrides.get("num_classes", KEEP))
        strict_copy.copy(model, file, head, interpolation)
    own_choice = {key: value for key, value in overrides.items() if key in COMPUTATION}
    if own_choice and numerics is not None:
        architecture.set_numerics(model, dataclasses.replace(numerics, **own_choice))
    return model


def _build(inferred, numerics, overrides, file):
    """A model with random weights: a ResNet, a hybrid or a plain Vision Transformer."""
    if "hidden_size" not in inferred:
        constructors, required, computation = (ResNet,), (), ()
        inferred = {"image_size": None, **inferred}
    elif inferred.get("resnet_layers") is None:
        constructors, required, computation = (VisionTransformer,), REQUIRED, COMPUTATION[:2]
    else:
        constructors = (HybridViT, VisionTransformer)
        required, computation = REQUIRED, COMPUTATION
    known = {name for build in constructors for name in inspect.signature(build).parameters}
    unknown = [name for name in overrides if name not in known]
    if unknown:
        names = " and ".join(build.__name__ for build in constructors)
        raise ValueError(f"Overrides are arguments of {names}. Received: {', '.join(unknown)}")
    architecture.check_plausible(inferred, file)
    if numerics is None:  # our own `.weights.h5`, which holds no GELU: it is asked for
        required, numerics = (*required, *computation[:1]), Numerics()
        computation = computation[1:]
    arguments = {"num_classes": None, **{key: getattr(numerics, key) for key in computation}}
    arguments |= {**inferred, **overrides}
    _check_complete(arguments, required, file)
    return constructors[0](**{key: arguments[key] for key in arguments if key in known})


def _check_complete(arguments, required, file):
    missing = [name for name in required if name not in arguments]
    if missing:
        given = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{file.path!r} ({file.format.name}) and what lies beside it do not say "
            f"{' and '.join(f'`{name}`' for name in missing)}; give it as "
            f"from_checkpoint(path, {given})"
        )


def _head(theirs, ours):
    if ours in (theirs, KEEP):
        return "keep"
    return "drop" if ours is None else "reset"


__all__ = ["from_checkpoint", "load", "open_model"]
