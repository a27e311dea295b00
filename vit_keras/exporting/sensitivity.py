"""Which layers bear fewer bits, and a file that leaves the others as they were."""

import os
import tempfile
from collections.abc import Callable

import numpy as np

from vit_keras.runtimes import open_file


def report(recipe, source, images: np.ndarray, calibration=None) -> dict[str, float]:
    """How far the outputs move when one layer alone is quantised, the most sensitive layer first.

    `recipe` is a `targets.Recipe` with `layers`.
    `{layer: relative error}`: the root mean square of the change over that of the outputs.
    """
    names, outputs = recipe.layers(source), open_file(source)(images)
    scale, moved = np.sqrt(np.mean(np.square(outputs))) + 1e-12, {}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, f"one{os.path.splitext(source)[1]}")
        for name in names:
            recipe.make(source, path, [other for other in names if other != name], calibration)
            change = open_file(path)(images) - outputs
            moved[name] = float(np.sqrt(np.mean(np.square(change))) / scale)
    return dict(sorted(moved.items(), key=lambda item: -item[1]))


def quantise_until(
    recipe,
    source,
    path,
    bears: Callable[[str], bool],
    images: np.ndarray,
    calibration=None,
    want_report: bool = False,
) -> tuple[list[str], dict[str, float]]:
    """Writes `path` quantised, the most sensitive layers left out until it `bears`.

    1, 2, 4 … up to half of the layers are left out, by the `report` on `images`; returns those and
    the report, which is empty where none was needed. ValueError where half is not enough.
    """
    recipe.make(source, path, (), calibration)
    fine = bears(path)
    if fine and not want_report:
        return [], {}
    moved = report(recipe, source, images, calibration)
    excluded, half = [], max(1, len(moved) // 2)
    while not fine:
        if len(excluded) == half:
            raise ValueError(
                f"{os.path.basename(path)} loses too much even with {half} of {len(moved)} layers "
                "in float32. Use more bits: int8 after int4, then fp16, then fp32"
            )
        excluded = list(moved)[: min(half, 2 * len(excluded) or 1)]
        recipe.make(source, path, excluded, calibration)
        fine = bears(path)
    return excluded, moved
