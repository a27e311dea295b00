"""The pictures of the studies: ours beside the paper's, in the style of `vit_keras.figures`."""

import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from PIL import Image

from vit_keras.figures import BLUE, GREY, ORANGE, new_figure, save_figure
from vit_keras.inspection.figures import grid_of_grids
from vit_keras.reproduce.results import Mean
from vit_keras.weights.saving import replacing

# By what a series' name begins with: the paper's three families, then any others.
FAMILIES = {"ViT": BLUE, "BiT": GREY, "Hybrid": ORANGE}
PALETTE = (BLUE, ORANGE, "#4f9d69", "#a5559a", GREY, "#c0504d", "#5aa7b8", "#7a6a53")
MARKERS = "osD^vPX*"
SHADES = (1.0, 0.72, 0.5, 0.36)  # of the members of a family

Series = Mapping[str, Mapping]  # {series: {x: a number, a Mean or None}}


def parity(
    points: Mapping[str, Sequence[tuple[float, float]]], unit: str, path: pathlib.Path
) -> None:
    """Ours over the paper's on logarithmic axes, {what: (paper, ours) …}, and the diagonal."""
    figure, axes = new_figure(5.0, 4.4)
    axis = axes[0, 0]
    numbers = [number for pairs in points.values() for pair in pairs for number in pair]
    ends = min(numbers) / 2, max(numbers) * 2
    axis.plot(ends, ends, color=GREY, lw=1, ls="--", label="equal", zorder=0)
    for (name, pairs), (color, _, _), marker in zip(points.items(), styles(points), MARKERS):
        paper, ours = zip(*pairs)
        axis.plot(paper, ours, marker, color=color, label=name, alpha=0.75, markersize=5, mew=0)
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axis.set(xlabel=f"paper{unit}", ylabel=f"ours{unit}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def bars(panels: Mapping[str, Series], label: str, path: pathlib.Path) -> None:
    """Grouped bars with error bars, a panel each for {title: {series: {group: value}}}."""
    widths = [1.4 + 0.32 * sum(len(of) for of in series.values()) for series in panels.values()]
    figure, axes = new_figure(max(6.0, min(sum(widths), 12.0)), 3.8, columns=len(panels))
    axes[0, 0].get_gridspec().set_width_ratios(widths)
    for axis, (title, series) in zip(axes[0], panels.items()):
        groups = list(dict.fromkeys(group for values in series.values() for group in values))
        width = 0.8 / len(series)
        for i, (name, values) in enumerate(series.items()):
            chosen = [(groups.index(group), value) for group, value in values.items()]
            chosen = [(place, Mean(*np.atleast_1d(value))) for place, value in chosen if value]
            places = [place + (i - (len(series) - 1) / 2) * width for place, _ in chosen]
            errors = [value.std or 0 for _, value in chosen]
            error_bars = (
                {"yerr": errors, "capsize": 2, "error_kw": {"lw": 1}} if any(errors) else {}
            )
            heights = [value.mean for _, value in chosen]
            color = PALETTE[i % len(PALETTE)]
            axis.bar(places, heights, 0.92 * width, color=color, label=name, **error_bars)
        _zoom(axis)
        turned = {"rotation": 30, "ha": "right"} if max(map(len, groups)) > 8 else {}
        axis.set_xticks(range(len(groups)), groups, fontsize=8, **turned)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3, axis="y")
        axis.set_axisbelow(True)
        if len(series) > 1:
            columns = min(3, len(series))
            below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12 - 0.14 * bool(turned))}
            axis.legend(frameon=False, fontsize=7.5, ncols=columns, **below)
    axes[0, 0].set_ylabel(label)
    save_figure(figure, path)


def lines(
    panels: Mapping[str, Series], labels: tuple[str, str], path: pathlib.Path, log: bool = True
) -> None:
    """Curves, a panel each for {title: {series: {x: value}}}; `labels` are of x and y.

    An x that is text is spread evenly.
    """
    figure, axes = new_figure(max(5.2, 4.2 * len(panels)), 3.9, columns=len(panels))
    for axis, (title, series) in zip(axes[0], panels.items()):
        for (name, values), (color, alpha, marker) in zip(series.items(), styles(series)):
            known = {x: Mean(*np.atleast_1d(y)) for x, y in values.items() if y is not None}
            heights = [y.mean for y in known.values()]
            errors = [y.std or 0 for y in known.values()]
            look = {"color": color, "alpha": alpha, "marker": marker, "markersize": 5, "lw": 1.5}
            axis.errorbar(list(known), heights, errors, capsize=2, label=name, **look)
        numeric = all(not isinstance(x, str) for values in series.values() for x in values)
        if log and numeric:
            axis.set_xscale("log")
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(labels[0])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    axes[0, 0].set_ylabel(labels[1])
    save_figure(figure, path)


def similarities(pictures: Mapping[str, np.ndarray], path: pathlib.Path) -> None:
    """Similarities of position embeddings `(h, w, h, w)` side by side, by their titles."""
    figure, axes = new_figure(4.0 * len(pictures) + 0.8, 4.3, columns=len(pictures))
    figure.set_layout_engine("compressed")
    for axis, (title, similarity) in zip(axes[0], pictures.items()):
        image = axis.imshow(grid_of_grids(similarity)[0], cmap="viridis", vmin=-1, vmax=1)
        axis.set(xticks=(), yticks=(), xlabel="patch column", ylabel="patch row")
        axis.spines[:].set_visible(False)
        axis.set_title(title, fontsize=9)
    figure.colorbar(image, ax=axes, label="cosine similarity", aspect=30)
    save_figure(figure, path)


def beside(parts: Sequence[pathlib.Path], path: pathlib.Path) -> None:
    """Pictures side by side, each in the middle of the height, on white."""
    pictures = [Image.open(part).convert("RGB") for part in parts]
    height = max(picture.height for picture in pictures)
    whole = Image.new("RGB", (sum(picture.width for picture in pictures), height), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, (height - picture.height) // 2))
        left += picture.width
    with replacing(path) as partial:
        whole.save(partial, format="PNG", optimize=True)


def styles(names: Sequence[str]) -> list[tuple[str, float, str]]:
    """Colour, opacity and marker of each series: a family shares its colour."""
    found, counts = [], {}
    for i, name in enumerate(names):
        family = next((family for family in FAMILIES if name.startswith(family)), name)
        number = counts[family] = counts.get(family, -1) + 1
        color = FAMILIES.get(family, PALETTE[i % len(PALETTE)])
        found.append((color, SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]))
    return found


def _zoom(axis):
    """Bars begin above zero where all are high, so that differences show."""
    heights = [patch.get_height() for patch in axis.patches]
    if heights and min(heights) > 0.4 * max(heights):
        low, high = min(heights), max(heights)
        margin = max(high - low, 0.02 * high)
        axis.set_ylim(max(0, low - margin), high + 0.25 * margin)
