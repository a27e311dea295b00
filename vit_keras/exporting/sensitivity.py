"""Which layers bear fewer bits, and a file that leaves the others as they were."""

import os
import tempfile
from collections.abc import Callable

import numpy as np

from vit_keras.exporting import quantize
from vit_keras.exporting.runtimes import open_file


def report(recipe: Callable, source, images: np.ndarray, calibration=None) -> dict[str, float]:
    """How far the outputs move when one layer alone is quantised, the most sensitive layer first.

    `{layer: relative error}`: the root mean square of the change over that of the outputs.
    """
    names, outputs = quantize.layers(source), open_file(source)(images)
    scale, moved = np.sqrt(np.mean(np.square(outputs))) + 1e-12, {}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, f"one{os.path.splitext(source)[1]}")
        for name in names:
            recipe(source, path, [other for other in names if other != name], calibration)
            change = open_file(path)(images) - outputs
            moved[name] = float(np.sqrt(np.mean(np.square(change))) / scale)
    return dict(sorted(moved.items(), key=lambda item: -item[1]))


def quantise_until(
    recipe: Callable,
    source,
    path,
    bears: Callable[[str], bool],
    images: np.ndarray,
    calibration=None,
    want_report: bool = False,
) -> tuple[list[str], dict[str, float]]:
    """Writes `path` quantised, the most sensitive layers left out until it `bears`.

    1, 2, 4 … layers are left out, by the `report` on `images`; returns those and the report, which
    is empty where none was needed. ValueError where half of the layers would have to be left out.
    """
    recipe(source, path, (), calibration)
    fine = bears(path)
    if fine and not want_report:
        return [], {}
    moved = report(recipe, source, images, calibration)
    excluded, count = [], 1
    while not fine:
        if count > max(1, len(moved) // 2):
            raise ValueError(
                f"{os.path.basename(path)} loses too much even with {len(excluded)} of "
                f"{len(moved)} layers in float32. Use fp16 or, for int4, int8"
            )
        excluded = list(moved)[:count]
        recipe(source, path, excluded, calibration)
        fine, count = bears(path), 2 * count
    return excluded, moved
