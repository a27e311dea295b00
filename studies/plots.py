"""The pictures of the studies: our results beside the paper's."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from PIL import Image

from studies.results import Mean
from vit_keras.inspection.views import grid_of_grids
from vit_keras.support.figures import BLUE, GRAY, ORANGE, new_figure, save_figure
from vit_keras.support.files import replacing

# The colors of the paper's three families, by how a series' name begins; then of other series.
FAMILIES = {"ViT": BLUE, "BiT": GRAY, "Hybrid": ORANGE}
PALETTE = (BLUE, ORANGE, "#4f9d69", "#a5559a", GRAY, "#c0504d", "#5aa7b8", "#7a6a53")
MARKERS = "osD^vPX*"
SHADES = (1.0, 0.72, 0.5, 0.36)  # the opacity of a family's members

Series = Mapping[str, Mapping]  # {series: {x: a number, a `Mean`, or None}}


def parity(
    points: Mapping[str, Sequence[tuple[float, float]]], unit: str, path: pathlib.Path
) -> None:
    """Draws our values over the paper's on logarithmic axes, with the diagonal.

    Args:
        points: `{quantity: [(paper, ours), …]}`.
        unit: What follows the axis labels, such as " (exaFLOPs)".
        path: The PNG to write.
    """
    figure, axes = new_figure(5.0, 4.4)
    axis = axes[0, 0]
    numbers = [number for pairs in points.values() for pair in pairs for number in pair]
    ends = min(numbers) / 2, max(numbers) * 2
    axis.plot(ends, ends, color=GRAY, lw=1, ls="--", label="equal", zorder=0)
    for (name, pairs), (color, _, _), marker in zip(points.items(), styles(points), MARKERS):
        paper, ours = zip(*pairs)
        axis.plot(paper, ours, marker, color=color, label=name, alpha=0.75, markersize=5, mew=0)
    axis.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axis.set(xlabel=f"paper{unit}", ylabel=f"ours{unit}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    save_figure(figure, path)


def bars(panels: Mapping[str, Series], label: str, path: pathlib.Path) -> None:
    """Draws grouped bars with error bars, one panel for each title.

    Args:
        panels: `{title: {series: {group: value}}}`; all panels have the same series.
        label: The label of the vertical axis.
        path: The PNG to write.
    """
    widths = [1.4 + 0.32 * sum(map(len, series.values())) for series in panels.values()]
    figure, axes = new_figure(max(6.0, min(sum(widths), 12.0)), 3.8, columns=len(panels))
    axes[0, 0].get_gridspec().set_width_ratios(widths)
    for axis, (title, series) in zip(axes[0], panels.items()):
        groups = list(dict.fromkeys(group for values in series.values() for group in values))
        width = 0.8 / len(series)
        for i, (name, values) in enumerate(series.items()):
            shift = (i - (len(series) - 1) / 2) * width
            known = {groups.index(group) + shift: value for group, value in values.items() if value}
            color = PALETTE[i % len(PALETTE)]
            axis.bar(*_places_and_means(known), width=0.92 * width, color=color, label=name)
            _error_bars(axis, known, fmt="none", color="black", lw=1)
        _zoom(axis, [value for values in series.values() for value in values.values() if value])
        longest = max(len(line) for group in groups for line in group.split("\n"))
        turned = {"rotation": 30, "ha": "right"} if longest > 8 else {}
        axis.set_xticks(range(len(groups)), groups, fontsize=8, **turned)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3, axis="y")
        axis.set_axisbelow(True)
    if len(series) > 1:
        shown = axes[0, 0].get_legend_handles_labels()
        columns = 2 if max(map(len, series)) > 20 else 4
        figure.legend(*shown, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
    axes[0, 0].set_ylabel(label)
    save_figure(figure, path)


def lines(
    panels: Mapping[str, Series], labels: tuple[str, str], path: pathlib.Path, log: bool = True
) -> None:
    """Draws curves with error bars, one panel for each title.

    Args:
        panels: `{title: {series: {x: value}}}`. Texts as x are evenly spaced.
        labels: The labels of the horizontal and the vertical axis.
        path: The PNG to write.
        log: Whether the horizontal axis is logarithmic.
    """
    figure, axes = new_figure(max(5.2, 4.2 * len(panels)), 3.9, columns=len(panels))
    for axis, (title, series) in zip(axes[0], panels.items()):
        for (name, values), (color, alpha, marker) in zip(series.items(), styles(series)):
            look = {"color": color, "alpha": alpha, "marker": marker, "markersize": 5, "lw": 1.5}
            known = {x: value for x, value in values.items() if value is not None}
            axis.plot(*_places_and_means(known), label=name, **look)
            _error_bars(axis, known, fmt="none", color=color, alpha=alpha, lw=1)
        places = list(dict.fromkeys(x for values in series.values() for x in values))
        if not any(isinstance(x, str) for x in places):
            axis.set_xscale("log" if log else "linear")
            if log and len(places) <= 6:  # few enough to label all of them
                axis.set_xticks(places, [f"{x:,g}" for x in places])
            elif log:
                _ticks_at_one_and_three(axis.xaxis)
            axis.xaxis.minorticks_off()
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(labels[0])
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    axes[0, 0].set_ylabel(labels[1])
    save_figure(figure, path)


def _ticks_at_one_and_three(axis):
    """Labels 1 and 3 of each power of ten, which leaves room between the labels."""
    from matplotlib import ticker

    axis.set_major_locator(ticker.LogLocator(subs=(1, 3)))
    formatter = ticker.LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf))
    axis.set_major_formatter(formatter)


def _places_and_means(values):
    return list(values), [Mean(*np.atleast_1d(value)).mean for value in values.values()]


def _error_bars(axis, values, **look):
    """Draws the standard deviations of values that are means over several runs."""
    spread = {place: value for place, value in values.items() if np.ndim(value) and value.std}
    if spread:
        axis.errorbar(
            *_places_and_means(spread), [value.std for value in spread.values()], capsize=2, **look
        )


def similarities(pictures: Mapping[str, np.ndarray], path: pathlib.Path) -> None:
    """Draws similarities of position embeddings side by side: `{title: (h, w, h, w)}`."""
    figure, axes = new_figure(4.0 * len(pictures) + 0.8, 4.3, columns=len(pictures))
    figure.set_layout_engine("compressed")
    for axis, (title, similarity) in zip(axes[0], pictures.items()):
        image = axis.imshow(grid_of_grids(similarity)[0], cmap="viridis", vmin=-1, vmax=1)
        axis.set(xticks=(), yticks=(), xlabel="patch column", ylabel="patch row")
        axis.spines[:].set_visible(False)
        axis.set_title(title, fontsize=9)
    figure.colorbar(image, ax=axes, label="cosine similarity", aspect=30)
    save_figure(figure, path)


def side_by_side(paths: Sequence[str | pathlib.Path], path: pathlib.Path) -> None:
    """Joins the pictures at `paths` side by side on white, each centered vertically."""
    pictures = [Image.open(source).convert("RGB") for source in paths]
    height = max(picture.height for picture in pictures)
    whole = Image.new("RGB", (sum(picture.width for picture in pictures), height), "white")
    left = 0
    for picture in pictures:
        whole.paste(picture, (left, (height - picture.height) // 2))
        left += picture.width
    with replacing(path) as partial:
        whole.save(partial, format="PNG", optimize=True)


def styles(names: Iterable[str]) -> list[tuple[str, float, str]]:
    """The color, opacity and marker of each series; a family shares one color."""
    looks = []
    counts: dict[str, int] = {}
    for i, name in enumerate(names):
        family = next((family for family in FAMILIES if name.startswith(family)), name)
        number = counts[family] = counts.get(family, -1) + 1
        color = FAMILIES.get(family, PALETTE[i % len(PALETTE)])
        looks.append((color, SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]))
    return looks


def _zoom(axis, values):
    """Starts the axis above zero where all bars are high, so that differences show."""
    values = [Mean(*np.atleast_1d(value)) for value in values]
    low = min(value.mean - (value.std or 0) for value in values)
    high = max(value.mean + (value.std or 0) for value in values)
    if low > 0.4 * high:
        margin = max(high - low, 0.02 * high)
        axis.set_ylim(max(0, low - 0.5 * margin), high + 0.15 * margin)
