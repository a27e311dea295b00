"""The pictures that the scripts draw, by matplotlib."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

BLUE, ORANGE, GREY = "#2a6fbb", "#d9822b", "#8a8f98"


def _save(figure, path: str | os.PathLike) -> None:
    path = pathlib.Path(path)
    partial = path.with_name(f".partial-{path.name}")
    figure.savefig(partial, dpi=150, format="png", facecolor="white")
    os.replace(partial, path)


def _figure(width: float, height: float, rows: int = 1, columns: int = 1):
    from matplotlib.figure import Figure  # no pyplot: it would look for a screen

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curves(rows: Sequence[dict[str, Any]], path: str | os.PathLike) -> None:
    """Loss and accuracy over the updates of a run, training and held-out."""
    figure, axes = _figure(9, 3.4, columns=2)
    steps = [row["step"] for row in rows]
    for axis, name, scale in ((axes[0, 0], "loss", 1), (axes[0, 1], "accuracy", 100)):
        for prefix, label, color in (("", "training", GREY), ("val_", "held out", BLUE)):
            values = [scale * row[prefix + name] for row in rows]
            axis.plot(steps, values, color=color, marker=".", label=label)
        axis.set(xlabel="updates", ylabel=name if scale == 1 else f"{name} (%)")
        axis.grid(alpha=0.3)
    last = 100 * rows[-1]["val_accuracy"]
    axes[0, 1].set_title(f"held out at the end: {last:.2f} %", fontsize=10)
    axes[0, 1].legend(frameon=False, loc="lower right")
    _save(figure, path)


def confusion(matrix: Sequence, class_names: Sequence[str], path: str | os.PathLike) -> None:
    """A confusion matrix, true classes down and predicted ones across; errors stand out."""
    matrix, count = np.asarray(matrix), len(class_names)
    side = min(3 + 0.35 * count, 16)
    figure, axes = _figure(side, side)
    axis = axes[0, 0]
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axis.imshow(np.sqrt(share), cmap="Blues", vmin=0, vmax=1)  # the root lets single errors show
    if count <= 30:
        for i, j in zip(*np.nonzero(matrix)):
            color = "white" if share[i, j] > 0.4 else "black"
            axis.text(j, i, matrix[i, j], ha="center", va="center", color=color, fontsize=8)
        axis.set_xticks(range(count), class_names, rotation=0 if count <= 12 else 90)
        axis.set_yticks(range(count), class_names)
    accuracy = 100 * np.trace(matrix) / max(matrix.sum(), 1)
    axis.set(xlabel="predicted", ylabel="true", title=f"{accuracy:.2f} % of {matrix.sum()} images")
    _save(figure, path)


def predictions(
    images: np.ndarray,
    probabilities: np.ndarray,
    class_names: Sequence[str],
    path: str | os.PathLike,
    attention: np.ndarray | None = None,
) -> None:
    """Images `(N, H, W, C)` uint8 over their most likely class; `attention` (N, h, w) below."""
    rows = 1 if attention is None else 2
    figure, axes = _figure(1.15 * len(images), 1.5 * rows, rows, len(images))
    for i, image in enumerate(images):
        best = int(probabilities[i].argmax())
        axes[0, i].imshow(image.squeeze(), cmap="gray")
        title = f"{class_names[best]}  {100 * probabilities[i, best]:.0f} %"
        axes[0, i].set_title(title, fontsize=10)
        if attention is not None:
            axes[1, i].imshow(attention[i], cmap="magma", interpolation="bilinear")
    for axis in axes.flat:
        axis.set_axis_off()
    _save(figure, path)
