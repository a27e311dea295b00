"""Ranks layers by their loss in fewer bits, and makes files that keep the worst in float32."""

import os
import tempfile
from collections.abc import Callable

import numpy as np

from vit_keras import runtimes


def rank_layers(recipe, source, images: np.ndarray, calibration=None) -> dict[str, float]:
    """Measures the change of the outputs if only one layer is quantized, most sensitive first.

    Args:
        recipe: A `targets.Recipe` with `layers`.
        source: A float32 file.
        images: Images prepared for the file, `(N, H, W, C)`.
        calibration: Images for the ranges of activations, if the recipe uses them.

    Returns:
        `{layer: relative error}`: the root mean square of the outputs' change divided by the
        outputs' own.
    """
    names, outputs = recipe.layers(source), runtimes.open(source)(images)
    scale, errors = np.sqrt(np.mean(np.square(outputs))) + 1e-12, {}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, f"one{os.path.splitext(source)[1]}")
        for name in names:
            recipe.make(source, path, [other for other in names if other != name], calibration)
            change = runtimes.open(path)(images) - outputs
            errors[name] = float(np.sqrt(np.mean(np.square(change))) / scale)
    return dict(sorted(errors.items(), key=lambda item: -item[1]))


def quantize_until(
    recipe,
    source,
    path,
    is_good_enough: Callable[[str], bool],
    images: np.ndarray,
    calibration=None,
    always_rank: bool = False,
) -> tuple[list[str], dict[str, float]]:
    """Writes a quantized file, leaving out the most sensitive layers until it is good enough.

    It leaves out 0, 1, 2, 4, … up to half of the layers.

    Args:
        recipe: A `targets.Recipe` with `layers`.
        source: A float32 file.
        path: The file to write.
        is_good_enough: Called with `path`.
        images: Images to rank layers on, prepared for the file.
        calibration: Images for the ranges of activations, if the recipe uses them.
        always_rank: Whether to rank the layers even if none need be left out.

    Returns:
        The layers left in float32, and the result of `rank_layers`, or {} if it was not needed.

    Raises:
        ValueError: If the file is not good enough with half of the layers left out.
    """
    recipe.make(source, path, (), calibration)
    done = is_good_enough(path)
    if done and not always_rank:
        return [], {}
    ranking = rank_layers(recipe, source, images, calibration)
    excluded: list[str] = []
    half = max(1, len(ranking) // 2)
    while not done:
        if len(excluded) == half:
            raise ValueError(
                f"{os.path.basename(path)} loses too much even with {half} of {len(ranking)} "
                "layers in float32. Use more bits: int8 instead of int4, fp16 instead of int8, "
                "or fp32"
            )
        excluded = list(ranking)[: min(half, 2 * len(excluded) or 1)]
        recipe.make(source, path, excluded, calibration)
        done = is_good_enough(path)
    return excluded, ranking
