"""Figures of training and evaluation, drawn with matplotlib."""

import contextlib
import functools
import math
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from vit_keras.support import extras
from vit_keras.support.files import replacing
from vit_keras.support.tasks import FORMATS, KINDS, figure_name, figure_text

BLUE, ORANGE, GRAY = "#2a6fbb", "#d9822b", "#8a8f98"


@functools.cache
def font_of(character: str) -> str | None:
    """The name of a font on this machine that can draw a character, or None.

    The result is also None for characters that every font has: European letters, punctuation, and
    invisible characters.
    """
    if ord(character) < 0x250 or 0x2000 <= ord(character) < 0x2070 or character == "\ufe0f":
        return None
    manager = extras.require("matplotlib.font_manager")
    for path in sorted({font.fname for font in manager.fontManager.ttflist}):
        if "LastResort" in path:  # it has a box for every character
            continue
        with contextlib.suppress(OSError, RuntimeError):  # a file that FreeType cannot read
            font = manager.get_font(path)
            if font.scalable and font.get_char_index(ord(character)):
                return font.family_name
    return None


def save_figure(figure, path: str | os.PathLike) -> None:
    """Writes a matplotlib figure as a PNG file; an existing file is replaced in one step."""
    axes = [axis for part in figure.axes for axis in (part.xaxis, part.yaxis)]
    powers = [label for x in axes if x.get_scale() == "log" for label in x.get_ticklabels()]
    for text in figure.findobj(lambda artist: hasattr(artist, "set_parse_math")):
        text.set_parse_math(text in powers)  # a class may be named "$5$"
        fonts = {font_of(character) for character in text.get_text()}
        text.set_fontfamily([*text.get_fontfamily(), *sorted(filter(None, fonts))])
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=150, format="png", facecolor="white")


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1):
    """Returns a figure of `width` x `height` inches, and its axes as an array `(rows, columns)`."""
    # pyplot would look for a display
    matplotlib = extras.require("matplotlib.figure")
    figure = matplotlib.Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


# Values that `fit` reports besides the loss.
FIGURES = (*(kind.metric for kind in KINDS.values()), "pixel_accuracy")


def curves(rows: Sequence[dict[str, Any]], path: str | os.PathLike) -> None:
    """Draws the loss and the accuracies of a run over its updates.

    The panels show training and held-out images, and few-shot accuracy if the run measured it. The
    last row determines the panels.

    Args:
        rows: The metrics of the run: one dictionary per record, with the number of updates as
            `step`.
        path: The PNG file to write.
    """
    last, panels = rows[-1], []
    for key in ("loss", *FIGURES):
        labels = {key: "training", f"val_{key}": "held out"}
        if key == "loss" or f"val_{key}" in last:
            panels.append((key, {name: labels[name] for name in labels if name in last}))
    if few_shot := {name: f"{name[8:]}-shot" for name in last if name.startswith("fewshot_")}:
        panels.append(("few-shot accuracy", few_shot))
    figure, axes = new_figure(4.5 * len(panels), 3.4, columns=len(panels))
    for axis, (key, labels) in zip(axes[0], panels):
        title, scale = figure_name(key), 1 if key in FORMATS else 100
        colors = (GRAY, BLUE, ORANGE) if len(labels) > 1 else (BLUE,)
        for (name, label), color in zip(labels.items(), colors):
            measured = [row for row in rows if name in row]
            values = [scale * row[name] for row in measured]
            axis.plot([row["step"] for row in measured], values, ".-", color=color, label=label)
        axis.set(xlabel="updates", ylabel=title if scale == 1 else f"{title} (%)")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        if key in FIGURES:
            text = figure_text(key, values[-1] / scale)
            axis.set_title(f"held out at the end: {text}", fontsize=10)
    save_figure(figure, path)


LABELED_CLASSES, COUNTED_CLASSES = 100, 40  # larger matrices have no room for names, or counts
CELL, SIDE = 0.35, 16  # inches: the side of a cell, and of the largest matrix
CHARACTER = 0.0085  # inches: the width of a character for each point of its size
LONGEST_NAME = 32  # characters


def shorten(name: str, longest: int = LONGEST_NAME) -> str:
    """Leaves out the middle of a long name, since names often differ at their ends.

    Example:
        >>> shorten("American Staffordshire terrier 3", 16)
        'American …rier 3'
    """
    if len(name) <= longest:
        return name
    end = (longest - 1) * 2 // 5
    return f"{name[: longest - 1 - end]}…{name[len(name) - end :]}"


def wrap(text: str, width: int, lines: int = 3) -> str:
    """Breaks a text into lines of `width` characters; longer text is cut in the middle."""
    return "\n".join(textwrap.wrap(shorten(text, width * lines - width // 2), width)[:lines])


def confusion(
    matrix: Sequence, class_names: Sequence[str], path: str | os.PathLike, source: str = ""
) -> None:
    """Draws a confusion matrix, with true classes as rows and predicted classes as columns.

    The color of a cell is the square root of its fraction of the row, so that single errors stand
    out. With up to 100 classes, the axes show their names; with up to 40, the cells show their
    counts.

    Args:
        matrix: The numbers of images, `(classes, classes)`.
        class_names: The names of the classes, in order.
        path: The PNG file to write.
        source: The name of the data set, which heads the figure.
    """
    images, count = np.asarray(matrix), len(class_names)
    names = [shorten(str(name)) for name in class_names]
    is_labeled = count <= LABELED_CLASSES
    side = min(3 + CELL * count, SIDE)
    cell = min(CELL, SIDE / max(count, 1))
    points = min(10.0, 46 * cell)  # 72 points per inch, minus the space between lines
    name_width = CHARACTER * points * max(map(len, names)) if is_labeled else 0.0
    is_turned = name_width > cell  # names side by side would overlap
    figure, axes = new_figure(side + name_width, side + is_turned * name_width)
    axis = axes[0, 0]
    share = images / np.maximum(images.sum(axis=1, keepdims=True), 1)
    axis.imshow(np.sqrt(share), cmap="Blues", vmin=0, vmax=1)
    for i, j in zip(*np.nonzero(images)) if count <= COUNTED_CLASSES else ():
        color = "white" if share[i, j] > 0.4 else "black"
        axis.text(j, i, images[i, j], ha="center", va="center", color=color, fontsize=8)
    if is_labeled:
        axis.set_xticks(range(count), names, rotation=90 if is_turned else 0, fontsize=points)
        axis.set_yticks(range(count), names, fontsize=points)
    accuracy = 100 * np.trace(images) / max(images.sum(), 1)
    title = f"{_head(source)}{accuracy:.2f}% of {images.sum()} images"
    axis.set(xlabel="predicted", ylabel="true", title=title)
    save_figure(figure, path)


def _head(source):
    return f"{shorten(source)}: " if source else ""


def reliability(calibration: dict[str, Any], path: str | os.PathLike, source: str = "") -> None:
    """Draws accuracy over confidence, and below it the fraction of the images in each bin.

    Args:
        calibration: The expected calibration error and the bins of confidence, as
            `vit_keras.evaluation` computes them.
        path: The PNG file to write.
        source: The name of the data set, which heads the figure.
    """
    rows = [row for row in calibration["bins"] if row["images"]]
    keys = ("lower", "upper", "images", "accuracy", "confidence")
    low, high, images, accuracy, confidence = (np.array([row[k] for row in rows]) for k in keys)
    middle, bars = (low + high) / 2, {"width": high - low, "edgecolor": "white", "linewidth": 0.8}
    figure, axes = new_figure(4.6, 5.2, rows=2)
    upper, lower = axes[:, 0]
    upper.get_gridspec().set_height_ratios([3, 1])
    upper.bar(middle, accuracy, color=BLUE, **bars)
    upper.plot([0, 1], [0, 1], color=GRAY, linestyle="--", label="perfectly calibrated")
    upper.plot(confidence, accuracy, "o", color=ORANGE, label="mean confidence", markersize=4)
    upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1.02))
    title = f"{_head(source)}expected calibration error {100 * calibration['ece']:.2f}%"
    upper.set_title(title, fontsize=10 if len(title) < 45 else 8)
    upper.legend(frameon=False, loc="upper left", fontsize=8)
    lower.bar(middle, 100 * images / images.sum(), color=GRAY, **bars)
    lower.set(xlabel="confidence", ylabel="% of images", xlim=(0, 1))
    save_figure(figure, path)


def label_bars(rows: Sequence[dict[str, Any]], path: str | os.PathLike, source: str = "") -> None:
    """Draws the average precision of each label as a bar, and its F1 as a dot.

    Args:
        rows: The "labels" of a report by `vit_keras.evaluation`.
        path: The PNG file to write.
        source: The name of the data set, which heads the figure.
    """
    shown = list(rows)[:COUNTED_CLASSES]
    figure, axes = new_figure(6.4, 1.2 + 0.3 * len(shown))
    axis, places = axes[0, 0], range(len(shown))
    percent = lambda key: [100 * (np.nan if row[key] is None else row[key]) for row in shown]
    axis.barh(places, percent("average_precision"), color=BLUE, label="average precision")
    axis.plot(percent("f1"), places, "o", color=ORANGE, label="F1 at the threshold")
    axis.set_yticks(places, [f"{shorten(row['name'])} ({row['positives']})" for row in shown])
    axis.invert_yaxis()
    axis.set(xlabel="%", xlim=(0, 101), title=f"{_head(source)}labels (pictures that have them)")
    handles = axis.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, path)


def number_errors(
    rows: Sequence[dict[str, Any]], path: str | os.PathLike, source: str = ""
) -> None:
    """Plots predicted against true numbers, and the distribution of errors, one row per number.

    Args:
        rows: The "numbers" of a report by `vit_keras.evaluation`.
        path: The PNG file to write.
        source: The name of the data set, which heads the figure.
    """
    shown = [row for row in rows if row["points"]]
    figure, axes = new_figure(8, 3.4 * len(shown), rows=len(shown), columns=2)
    for (scatter, histogram), row in zip(axes, shown):
        true, predicted = np.array(row["points"]).T
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        scatter.plot(ends, ends, color=GRAY, linestyle="--")
        scatter.plot(true, predicted, ".", color=BLUE, alpha=0.5, markersize=4)
        r2 = "" if row["r2"] is None else f", R² {row['r2']:.3f}"
        scatter.set(xlabel="true", ylabel="predicted", title=f"{shorten(row['name'])}{r2}")
        histogram.hist(predicted - true, bins=40, color=BLUE)
        histogram.axvline(0, color=GRAY, linestyle="--")
        histogram.set(xlabel="predicted - true", ylabel="images")
        histogram.set_title(f"mean absolute error {row['mae']:.4g}", fontsize=10)
    if source:
        figure.suptitle(shorten(source))
    save_figure(figure, path)


def picture_sheet(
    images: Sequence[np.ndarray], captions: Sequence[str], path: str | os.PathLike
) -> None:
    """Draws pictures in rows, with a caption below each.

    Args:
        images: N pictures `(H, W, 1 or 3)` uint8.
        captions: N texts.
        path: The PNG file to write.
    """
    columns = math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    cell = 1.5 * images[0].shape[0] / images[0].shape[1] + 0.2  # inches, with the caption
    figure, axes = new_figure(1.5 * columns, cell * rows, rows, columns)
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, image, caption in zip(axes.flat, images, captions):
        axis.imshow(image, cmap="gray", vmin=0, vmax=255)
        axis.set_title(shorten(caption, 24), y=-0.18, fontsize=7)
    save_figure(figure, path)
