"""The pictures that the scripts draw, by matplotlib."""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.files import replacing

BLUE, ORANGE, GREY = "#2a6fbb", "#d9822b", "#8a8f98"


def save_figure(figure, path: str | os.PathLike) -> None:
    """Writes a figure as PNG, at once: a reader finds the old one or the new, never a part."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png", facecolor="white")


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1):
    """A figure of `width` and `height` inches, and its axes `(rows, columns)`."""
    from matplotlib.figure import Figure  # no pyplot: it would look for a screen

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def curves(rows: Sequence[dict[str, Any]], path: str | os.PathLike) -> None:
    """Loss and accuracies over the updates of a run: training, held-out and few-shot."""
    shown = [("loss", 1, {"loss": "training", "val_loss": "held out"})]
    shown += [("accuracy", 100, {"accuracy": "training", "val_accuracy": "held out"})]
    shots = [name for name in rows[-1] if name.startswith("fewshot_")]
    shown += [("few-shot accuracy", 100, {name: f"{name[8:]}-shot" for name in shots})]
    shown = [row for row in shown if all(name in rows[-1] for name in row[2]) and row[2]]
    figure, axes = new_figure(4.5 * len(shown), 3.4, columns=len(shown))
    for axis, (title, scale, names) in zip(axes[0], shown):
        for (name, label), color in zip(names.items(), (GREY, BLUE, ORANGE)):
            found = [row for row in rows if name in row]
            values = [scale * row[name] for row in found]
            axis.plot([row["step"] for row in found], values, ".-", color=color, label=label)
        axis.set(xlabel="updates", ylabel=title if scale == 1 else f"{title} (%)")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        if "val_accuracy" in names:
            last = 100 * rows[-1]["val_accuracy"]
            axis.set_title(f"held out at the end: {last:.2f} %", fontsize=10)
    save_figure(figure, path)


def confusion(matrix: Sequence, class_names: Sequence[str], path: str | os.PathLike) -> None:
    """A confusion matrix, true classes down and predicted ones across; errors stand out."""
    matrix, count = np.asarray(matrix), len(class_names)
    side = min(3 + 0.35 * count, 16)
    figure, axes = new_figure(side, side)
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
    save_figure(figure, path)


def reliability(calibration: dict[str, Any], path: str | os.PathLike) -> None:
    """Draws accuracy over confidence; below, the share of the images in each bin."""
    rows = [row for row in calibration["bins"] if row["images"]]
    total = sum(row["images"] for row in rows)
    middle = [(row["lower"] + row["upper"]) / 2 for row in rows]
    width = [row["upper"] - row["lower"] for row in rows]
    figure, axes = new_figure(4.6, 5.2, rows=2)
    axes[0, 0].get_gridspec().set_height_ratios([3, 1])
    bars = {"width": width, "edgecolor": "white", "linewidth": 0.8}
    axes[0, 0].bar(middle, [row["accuracy"] for row in rows], color=BLUE, **bars)
    confidence = [row["confidence"] for row in rows]
    accuracy = [row["accuracy"] for row in rows]
    axes[0, 0].plot([0, 1], [0, 1], color=GREY, linestyle="--", label="perfectly calibrated")
    axes[0, 0].plot(confidence, accuracy, "o", color=ORANGE, label="mean confidence", markersize=4)
    axes[0, 0].set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    axes[0, 0].set_title(
        f"expected calibration error {100 * calibration['ece']:.2f} %", fontsize=10
    )
    axes[0, 0].legend(frameon=False, loc="upper left", fontsize=8)
    axes[1, 0].bar(middle, [100 * row["images"] / total for row in rows], color=GREY, **bars)
    axes[1, 0].set(xlabel="confidence", ylabel="% of images", xlim=(0, 1))
    save_figure(figure, path)
