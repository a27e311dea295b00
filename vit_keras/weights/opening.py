"""One way to open a model: `vit_keras.open`."""

import contextlib
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import keras

from vit_keras.models import with_image_size
from vit_keras.models.common import build_without_values
from vit_keras.support.files import check_arrived, is_zip
from vit_keras.weights.adapters import build_adapted
from vit_keras.weights.containers.checks import named_errors, parse_json
from vit_keras.weights.containers.digests import check_fit, check_tensors
from vit_keras.weights.containers.keras_h5 import KerasTensors
from vit_keras.weights.hub import local_path
from vit_keras.weights.loading import build


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
            `vit_keras.support.resizing.INTERPOLATIONS`; None takes the rule of the source.
        patch_interpolation: The rule for patch kernels of another size; None takes the rule of the
            source.
        adapters: A file of low-rank adapters trained on these weights. It determines the sizes of
            the model, so overrides are not allowed.
        which: The name of one of several sets of weights in a file, such as "state_dict_ema" or
            "student", or "ema" for averaged weights under any name. None takes the raw weights, or
            the teacher's beside a student's, and warns about the choice.
        **overrides: Arguments of `VisionTransformer`, `HybridViT` or `ResNet`. They supply what the
            file lacks, such as `num_heads` for a bare timm file, or replace what it has: another
            `image_size`, `patch_size` or `channels` adapts the weights, another `num_classes` gives
            a head of zeros, and None or 0 removes the head.

    Returns:
        The model.

    Raises:
        FileNotFoundError: There is nothing at `path`, or a run without a model.
        ValueError: The file is damaged, of no known format, or lacks a necessary argument, which
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
                f"`adapters` set all sizes, so nothing else may. Received: {', '.join(overrides)}"
            )
        return build_adapted(path, adapters)
    if which or not path.endswith(".keras") or set(overrides) - {"image_size"}:
        return build(path, source, interpolation, patch_interpolation, which, **overrides)
    model = _keras_model(path)
    return with_image_size(model, **overrides, interpolation=interpolation) if overrides else model


def _keras_model(path):
    """Loads the model in a `.keras` file with Keras."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no model file at {path!r}.")
    check_arrived(path)
    if is_zip(path):
        _verify_keras(path)
    try:
        model = keras.saving.load_model(path, compile=False)
        numbers = ((v.path, keras.ops.convert_to_numpy(v), v.dtype) for v in model.weights)
        check_fit(numbers, "a file of finite numbers")
        return model
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{path!r} cannot be read as a Keras model: it is corrupt, incomplete, or needs layers "
            f"that are not imported ({reason}). If it belongs to a run, run its command again"
        ) from error


def _verify_keras(path):
    """Checks all contents of a `.keras` archive before Keras reads it."""
    try:
        with named_errors(path), contextlib.closing(KerasTensors(path, quantized=True)) as tensors:
            tensors.verify()
            check_tensors(path, tensors, tensors.shapes, integers=True)
            check_described_size(tensors.metadata["config"], tensors.shapes)
    except ValueError as error:
        raise ValueError(f"{path!r} cannot be read as a Keras model: {error}") from error


SLACK = 10**6  # weights that a small file may describe but not contain


def check_described_size(config: str, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Checks that a configuration describes no more weights than its file can hold.

    Otherwise a small file could make Keras take any amount of memory. The check builds the model
    without values. If it cannot be built, loading says why.

    Args:
        config: The text of `config.json`.
        shapes: The shapes of the file's tensors. Two four-bit weights may share one number.

    Raises:
        ValueError: The model has far more weights, or units of a ResNet, than the file.
    """
    described = {**parse_json(config, "config.json"), "compile_config": None}
    if (units := max(_units(described), default=0)) > len(shapes):
        raise ValueError(
            f"its configuration has num_units {units}, and it holds {len(shapes)} tensors"
        )
    held = sum(map(math.prod, shapes.values()))
    if (count := _count(described)) > 2 * held + SLACK:
        raise ValueError(f"its configuration describes {count} weights, and it holds {held}")


def _count(described):
    try:
        with warnings.catch_warnings(action="ignore"):  # loading repeats the warnings
            model = build_without_values(lambda: keras.saving.deserialize_keras_object(described))
    except Exception:
        return 0
    return sum(math.prod(weight.shape) for weight in model.weights)


def _units(part: Any) -> Iterator[int]:
    """Yields the numbers of units of the layers in a configuration that build several."""
    if isinstance(part, dict):
        if isinstance(part.get("num_units"), int):
            yield part["num_units"]
        part = list(part.values())
    if isinstance(part, list):
        for inner in part:
            yield from _units(inner)
