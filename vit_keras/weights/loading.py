"""Puts weights into models: `load` copies them into a built model, `build` makes one for them."""

import dataclasses
import os
import warnings
from typing import Any

import keras

from vit_keras.layers.base import pair
from vit_keras.models import lora_layers
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING
from vit_keras.weights import strict_copy
from vit_keras.weights.containers.checks import named_errors
from vit_keras.weights.numerics import FIELD_LABELS, Numerics, set_computation
from vit_keras.weights.recognition import check_plausible, class_for
from vit_keras.weights.strict_copy import inferred
from vit_keras.weights.weight_file import open_weight_file

_AS_IN_THE_FILE = object()


def load(
    model: keras.Model,
    path: str | os.PathLike,
    source: str | None = None,
    head: str = "keep",
    interpolation: str | None = None,
    patch_interpolation: str | None = None,
    which: str | None = None,
) -> keras.Model:
    """Copies all weights of a file or folder, or none, into a model.

    The model then computes like the source of the weights: its GELU, epsilons, preprocessing and
    resizing rules are set. Position embeddings and patch kernels of other sizes are resized.

    Args:
        model: A built model.
        path: A file or folder of weights in any format, or the address of a model on a hub.
        source: The name of the format, such as "timm"; None detects it from the tensors' names.
        head: "keep" takes the file's classifier, "drop" keeps the model's, and "reset" sets the
            model's to zero, as at the start of fine-tuning.
        interpolation: The rule for position embeddings on another grid, a name in
            `vit_keras.support.resizing.INTERPOLATIONS`; None takes the rule of the source.
        patch_interpolation: The rule for patch kernels of another size; None takes the rule of the
            source.
        which: The name of one of several sets of weights in a file, such as "state_dict_ema" or
            "student", or "ema" for averaged weights under any name. None takes the raw weights, or
            the teacher's beside a student's, and warns about the choice.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged, of no known format, or does not fit. The message then
            lists all differences, and the model is unchanged.
        ImportError: If the file needs a package that is not installed.

    Example:
        ```python
        model = vit_keras.models.VisionTransformer(224, 16, 768, 12, 12, 3072, num_classes=10)
        vit_keras.weights.load(model, "ViT-B_16.npz", head="reset")
        ```
    """
    if lora_layers(model):
        raise ValueError(
            "Weights are loaded into a model without adapters. Received: model "
            f"{model.name!r}, which has some. Load the weights before `models.add_lora`"
        )
    with open_weight_file(path, source, which) as file:
        strict_copy.copy_weights(model, file, head, interpolation, patch_interpolation)
        if head == "keep":
            _warn_of_activation(file, inferred(file), strict_copy.sizes_of(model))
    return model


def _warn_of_activation(file, *sizes):
    """Warns if a file's classifier has another activation than the model's, which is kept."""
    there, here = (arguments.get("classifier_activation") for arguments in sizes)
    if there not in (None, here):
        warnings.warn(
            f"The classifier in {file.path!r} has the activation {there!r} and the model's has "
            f"{here!r}, which is kept. Build the model with classifier_activation={there!r} for "
            "the same outputs",
            stacklevel=3,
        )


def build(
    path: str | os.PathLike,
    source: str | None = None,
    interpolation: str | None = None,
    patch_interpolation: str | None = None,
    which: str | None = None,
    **overrides: Any,
) -> keras.Model:
    """Builds the model of a file or folder of weights; takes the arguments of `open`."""
    if overrides.get("num_classes") == 0:
        overrides["num_classes"] = None
    with open_weight_file(path, source, which) as file:
        inferred = file.infer()
        numerics = file.numerics()
        with named_errors(file.path):
            model = _build(inferred, numerics, overrides, file)
        num_classes = overrides.get("num_classes", _AS_IN_THE_FILE)
        head = _head(inferred.get("num_classes"), num_classes)
        strict_copy.copy_weights(model, file, head, interpolation, patch_interpolation)
        if numerics is None:  # such a file has no preprocessing either
            model.preprocessing = PUBLISHED_PREPROCESSING
        assumed = "" if file.note else file.format.assumption(file.shapes, file.config, overrides)
    if assumed:
        warnings.warn(f"{file.path!r} is read as {assumed}", stacklevel=3)
    overridden = {key: value for key, value in overrides.items() if key in FIELD_LABELS}
    if overridden and numerics is not None:
        set_computation(model, dataclasses.replace(numerics, **overridden))
    return model


def _build(inferred, numerics, overrides, file):
    """Builds a model with random weights."""
    architecture = class_for(inferred)
    known = architecture.argument_names()
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise ValueError(
            f"Overrides must be arguments of {architecture.constructor.__name__}. "
            f"Received: {', '.join(unknown)}"
        )
    check_plausible(inferred, file)
    required, computation = architecture.required, architecture.numerics_fields
    if numerics is None:  # a `.weights.h5` of this package does not record the GELU
        required, numerics = (*required, *computation[:1]), Numerics()
        computation = computation[1:]
    said = {key: getattr(numerics, key) for key in computation}
    arguments = architecture.defaults | {k: v for k, v in said.items() if v is not None}
    arguments |= {**inferred, **overrides}
    _check_complete(arguments, required, file)
    if overrides.get("image_size") and "crop_to_patches" not in overrides:
        arguments |= _crop(arguments, numerics.resizing)
    return architecture.constructor(**{key: arguments[key] for key in arguments if key in known})


def _crop(arguments, resizing):
    """Returns the option for a size that patches do not divide, if the publisher crops."""
    sizes = (pair(arguments[name], name) for name in ("image_size", "patch_size"))
    crops = arguments.get("resnet_layers") is None and resizing.crop_to_patches(*sizes)
    return {"crop_to_patches": True} if crops else {}


def _check_complete(arguments, required, file):
    missing = [name for name in required if name not in arguments]
    if missing:
        examples = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{file.path!r} ({file.format.name}) and the files beside it do not say "
            f"{' and '.join(f'`{name}`' for name in missing)}; pass "
            f"vit_keras.open(path, {examples})"
        )


def _head(classes_in_file, classes_in_model):
    if classes_in_model is None:
        return "drop"
    is_kept = classes_in_model is _AS_IN_THE_FILE or classes_in_model == classes_in_file
    return "keep" if is_kept else "reset"
