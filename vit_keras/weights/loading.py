"""Opens models: `open` builds the model in a file; `load` copies a file into a built model."""

import contextlib
import inspect
import json
import math
import os
import re
import warnings
from typing import Any

import keras

from vit_keras import models, variants
from vit_keras.layers.common import OPTION_NAMES
from vit_keras.models.architectures import class_for, grid_of
from vit_keras.models.common import build_without_values
from vit_keras.support.checks import pair
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, with_tuples
from vit_keras.weights import strict_copy
from vit_keras.weights.adapters import LARGEST_GROWTH, load_adapters, open_adapters
from vit_keras.weights.containers import checks
from vit_keras.weights.containers.keras_h5 import KerasTensors
from vit_keras.weights.hub import local_path
from vit_keras.weights.weight_file import open_weight_file


def open(
    path: str | os.PathLike,
    source: str | None = None,
    interpolation: str | None = None,
    patch_interpolation: str | None = None,
    adapters: str | os.PathLike | None = None,
    which: str | None = None,
    **overrides: Any,
) -> keras.Model:
    """Opens the model in a file or folder of any project.

    The model prepares images and computes like its source.

    Args:
        path: A checkpoint of any project, a `.keras` file, the folder of a run, or the address of
            one of these on a hub, such as `hf://google/vit-base-patch16-224`.
        source: The name of a checkpoint's format, such as "timm"; None detects it from the tensors'
            names.
        interpolation: The rule for position embeddings on another grid, a name in
            `vit_keras.support.interpolation.INTERPOLATIONS`; None takes the rule of the source.
        patch_interpolation: The rule for patch kernels of another size; None takes the rule of the
            source.
        adapters: A file of low-rank adapters trained on these weights. It determines the sizes of
            the model, so overrides are not allowed.
        which: The name of one of several sets of weights in a file, such as "state_dict_ema" or
            "student", or "ema" for averaged weights under any name. None takes the raw weights, or
            a teacher's rather than a student's, and warns about the choice.
        **overrides: Arguments of `VisionTransformer`, `HybridViT` or `ResNet`. They supply what the
            file lacks, such as `num_heads` for a bare timm file, or replace what it has: another
            `image_size`, `patch_size` or `channels` adapts the weights, another `num_classes` gives
            a head of zeros, and None or 0 removes the head.

    Returns:
        The model.

    Raises:
        FileNotFoundError: There is nothing at `path`, or a run without a model.
        ValueError: The file is damaged, has no known format, or lacks a necessary argument, which
            the message names.
        ImportError: The file needs a package that is not installed.

    Example:
        ```python
        model = vit_keras.open("vit-base-patch16-224/", num_classes=10)
        model = vit_keras.open("ViT-S_16.npz", adapters="runs/pets/adapters.safetensors")
        ```
    """
    path = local_path(path)
    if os.path.isfile(os.path.join(path, "config.yaml")):
        path = os.path.join(path, "model.keras")
    if adapters is not None:
        if overrides:
            raise ValueError(
                f"`adapters` sets all sizes, so pass no overrides. Received: {', '.join(overrides)}"
            )
        note, tensors = open_adapters(adapters)
        sizes = with_tuples(note["architecture"])
        with checks.named_errors(tensors.path):
            with open_weight_file(path) as weights:
                check_plausible(sizes, weights, times=LARGEST_GROWTH)
            return load_adapters(build(path, **sizes), adapters)
    if which or not path.endswith(".keras") or set(overrides) - {"image_size"}:
        return build(path, source, (interpolation, patch_interpolation), which, **overrides)
    with checks.named_errors(path), contextlib.closing(KerasTensors(path)) as stored:
        checks.check_tensors(stored)
        check_described_size(stored)
    fault = "it is damaged, or needs layers that are not imported"
    with checks.readable(f"{path!r} cannot be read as a Keras model: {fault}"):
        model = keras.saving.load_model(path, compile=False)
    numbers = ((v.path, keras.ops.convert_to_numpy(v), v.dtype) for v in model.weights)
    checks.check_fit(numbers, repr(path))
    return (
        models.with_image_size(model, **overrides, interpolation=interpolation)
        if overrides
        else model
    )


SLACK = 10**6  # weights that a small file may describe but not contain


def check_described_size(tensors: KerasTensors) -> None:
    """Checks that a configuration describes no more weights than its file can hold.

    Otherwise a small file could make Keras take any amount of memory. The check builds the model
    without values. If it cannot be built, loading reports why.

    Args:
        tensors: An open `.keras` file. One stored number may hold two four-bit weights.

    Raises:
        ValueError: If the configuration describes far more weights or ResNet units than the file.
    """
    described = {**tensors.config, "compile_config": None}
    units = max(map(int, re.findall(r'"num_units": (\d+)', json.dumps(described))), default=0)
    if units > (count := len(tensors.shapes)):
        raise ValueError(f"its configuration has {units} units, but the file has {count} tensors")
    held = sum(map(math.prod, tensors.shapes.values()))
    try:
        with warnings.catch_warnings(action="ignore"):  # loading repeats the warnings
            model = build_without_values(lambda: keras.saving.deserialize_keras_object(described))
    except Exception:
        return
    if (count := sum(math.prod(weight.shape) for weight in model.weights)) > 2 * held + SLACK:
        raise ValueError(f"its configuration describes {count} weights, but the file has {held}")


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
            `vit_keras.support.interpolation.INTERPOLATIONS`; None takes the rule of the source.
        patch_interpolation: The rule for patch kernels of another size; None takes the rule of the
            source.
        which: The name of one of several sets of weights in a file, such as "state_dict_ema" or
            "student", or "ema" for averaged weights under any name. None takes the raw weights, or
            a teacher's rather than a student's, and warns about the choice.

    Returns:
        The model.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged, has no known format, or does not fit. The message then
            lists all differences, and the model is unchanged.
        ImportError: If the file needs a package that is not installed.

    Example:
        ```python
        model = vit_keras.models.VisionTransformer(224, 16, 768, 12, 12, 3072, num_classes=10)
        vit_keras.weights.load(model, "ViT-B_16.npz", head="reset")
        ```
    """
    with open_weight_file(path, source, which) as file:
        strict_copy.copy_weights(model, file, head, (interpolation, patch_interpolation))
        if file.numerics is not None:
            strict_copy.set_computation(model, file.numerics)
        sizes = strict_copy.inferred(file), strict_copy.sizes_of(model)
    there, here = (arguments.get("classifier_activation") for arguments in sizes)
    if head == "keep" and there not in (None, here):
        warnings.warn(
            f"The classifier in {file.path!r} has the activation {there!r} and the model's has "
            f"{here!r}, which is kept. Build the model with classifier_activation={there!r} for "
            "the same outputs",
            stacklevel=2,
        )
    return model


def build(path, source=None, rules=(None, None), which=None, **overrides: Any) -> keras.Model:
    """Builds the model of a file; takes the arguments of `open`, and `rules` of `copy_weights`."""
    if overrides.get("num_classes") == 0:
        overrides["num_classes"] = None
    with open_weight_file(path, source, which) as file:
        with checks.named_errors(file.path):
            model = _build(file, overrides)
        kept = file.arguments.get("num_classes")
        head = "keep" if overrides.get("num_classes", kept) == kept else "reset"
        if "num_classes" in overrides and overrides["num_classes"] is None:
            head = "drop"
        strict_copy.copy_weights(model, file, head, rules)
        if file.numerics is None:  # such a file has no preprocessing either
            model.preprocessing = PUBLISHED_PREPROCESSING
        assumed = "" if file.note else file.format.assumption(file.shapes, file.config, overrides)
    if assumed:
        warnings.warn(f"{file.path!r} is read as {assumed}", stacklevel=3)
    return model


def _build(file, overrides):
    """Builds a model with random weights."""
    architecture = class_for(file.arguments)
    constructor = getattr(models, architecture.constructor)
    known = [*inspect.signature(constructor).parameters]
    if constructor is not models.ResNet:  # the others pass arguments on to these
        known += [*inspect.signature(models.VisionTransformer).parameters, *OPTION_NAMES]
    if unknown := [name for name in overrides if name not in known]:
        raise ValueError(
            f"Overrides must be arguments of {constructor.__name__}. Received: {', '.join(unknown)}"
        )
    check_plausible(file.arguments, file)
    arguments = {**architecture.defaults, **file.all_arguments, **overrides}
    if missing := [name for name in file.missing if name not in arguments]:
        examples = ", ".join(f"{name}=..." for name in missing)
        raise ValueError(
            f"{file.path!r} ({file.format.name}) and the files beside it do not give "
            f"{' and '.join(f'`{name}`' for name in missing)}; call "
            f"vit_keras.open(path, {examples})"
        )
    is_plain = file.numerics is not None and arguments.get("resnet_layers") is None
    if is_plain and overrides.get("image_size") and "crop_to_patches" not in overrides:
        sizes = (pair(arguments[name], name) for name in ("image_size", "patch_size"))
        if file.numerics.resizing.crop_to_patches(*sizes):  # the publisher crops other sizes
            arguments["crop_to_patches"] = True
    return constructor(**{key: arguments[key] for key in arguments if key in known})


def check_plausible(sizes: dict, file, times: int = 1) -> None:
    """Checks that a model of these `sizes` needs no more weights than `file` can hold.

    Without this check, a few small tensors of odd shapes could claim any amount of memory.

    Args:
        sizes: The arguments of the constructor, as far as they are known.
        file: An open `WeightFile`.
        times: The largest allowed ratio of the number of the model's weights to the file's.

    Raises:
        ValueError: If the model would have far more weights than the file.
    """
    depth = sizes.get("num_layers", 0) + sum(sizes.get("resnet_layers") or ())
    held = sum(math.prod(shape) for shape in file.shapes.values())
    claimed = _least_parameters({"image_size": (0, 0), **sizes})
    if depth > len(file.shapes) or claimed > times * held + 10**6:
        raise ValueError(
            f"The shapes in {file.path!r} and the configuration beside it contradict each other: "
            f"a model with {sizes} has at least {claimed} weights in {depth} blocks; the file has "
            f"{held} weights in {len(file.shapes)} tensors"
        )


def _least_parameters(sizes):
    """Returns a lower bound: the number of weights in the large kernels."""
    size = lambda name: abs(sizes.get(name) or 0)  # the constructor refuses negative sizes
    root, stages = int(variants.ROOT_WIDTH * size("resnet_width")), sizes.get("resnet_layers") or ()
    stem = sum(17 * (root * 2**s) ** 2 * abs(units) for s, units in enumerate(stages))
    if "hidden_size" not in sizes:
        return stem
    width, mlp, hidden = map(size, ("hidden_size", "mlp_dim", "representation_size"))
    patch = pair(sizes["patch_size"], "patch_size")
    pixels = math.prod(patch) * (0 if stages else size("channels"))
    tokens = math.prod(grid_of(sizes)) + size("num_registers")
    body = width * (pixels + tokens + hidden + size("map_mlp_dim"))
    body += size("num_layers") * (width * (4 * width + 2 * mlp) + mlp)
    return stem + body + (hidden or width) * size("num_classes")
