"""Exports one checkpoint for several patch sizes, with their costs and agreement.

Larger patches mean fewer tokens. FlexiViTs (arXiv 2212.08013) are trained for several sizes.
"""

import json
import os
import pathlib
from typing import Any

import keras
import numpy as np

from vit_keras import inspection
from vit_keras.exporting import manifest, verification
from vit_keras.exporting.exporter import check_folder, export
from vit_keras.exporting.inference_model import for_inference
from vit_keras.models import patch_grid, preprocessing_of, task_of, with_patch_size
from vit_keras.support import files

TABLE, NUMBERS = "costs.md", "manifest.json"


def export_patch_sizes(
    model: keras.Model,
    folder: str | os.PathLike,
    patch_sizes: list[int],
    *,
    images: np.ndarray | None = None,
    labels: np.ndarray | None = None,
    **options,
) -> list[dict]:
    """Exports a model once for each patch size, and compares their costs and answers.

    Each size gets an export in its own folder `patch_{size}`. `costs.md` has a row for each size:
    its tokens, the multiply-adds per image, and its agreement with the first size
    (`verification.agreement`).

    Args:
        model: A model that cuts images into patches itself, such as a FlexiViT.
        folder: A new folder, or the folder of an earlier export.
        patch_sizes: Patch sides in pixels; the others are compared with the first one.
        images: Images to compare on, `(N, H, W, C)`, as for `export`.
        labels: The classes of `images`, `(N,)`, to measure accuracy too.
        **options: The other arguments of `export`.

    Returns:
        A dictionary for each size: `patch_size`, `grid`, `macs`, the result of
        `verification.compare` with the first size, and the `files` of its manifest.

    Raises:
        ValueError: As in `with_patch_size` and `export`; nothing is written in that case.

    Example:
        ```python
        rows = export_patch_sizes(model, "files", [16, 20, 30], formats=["litert"])
        [row["macs"] for row in rows]
        ```
    """
    folder = pathlib.Path(folder)
    check_folder(folder)
    models = {size: with_patch_size(model, size) for size in dict.fromkeys(patch_sizes)}
    if images is None:
        images = verification.photographs_for(model)
    rows, first, task = list[dict[str, Any]](), None, task_of(model)
    output = "values" if task.kind == "numbers" else "logits"
    options |= {"images": images, "labels": labels}
    with files.claimed_output(folder, "an export"), files.replacing_folder(folder) as new:
        for size, resized in models.items():
            written = export(resized, new / f"patch_{size}", **options)
            inputs = preprocessing_of(resized).normalize(images.astype("float32"))
            logits = np.asarray(for_inference(resized).predict(inputs, verbose=0))
            first = logits if first is None else first
            row = {"patch_size": size, "grid": list(patch_grid(resized))}
            row |= {"macs": inspection.flops(resized).macs}
            row |= verification.compare(logits, first, output, labels, task)
            rows.append({**row, "files": written})
        (new / NUMBERS).write_text(json.dumps({"patch_sizes": rows}, indent=1) + "\n")
        (new / TABLE).write_text(table(rows))
    return rows


def table(rows: list[dict]) -> str:
    """Returns the rows of `export_patch_sizes` as a Markdown table, with the first file's times.

    Differences and agreements are relative to the first patch size.
    """
    cells = []
    for row in rows:
        first = {"latency_ms": row["files"][0].get("latency_ms", {})}
        sizes = {"patch": str(row["patch_size"]), "patches": "{}x{}".format(*row["grid"])}
        sizes["GMACs"] = f"{row['macs'] / 1e9:.3f}"
        cells.append(sizes | manifest.facts(row | first))
    return manifest.table(cells)
