"""The views of a model, by name. Each computes its arrays and draws them."""

import dataclasses
import functools
import math
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from vit_keras.inspection import measures
from vit_keras.inspection.measures import AttentionViews, attention_views, patch_distances
from vit_keras.layers import AddPositionEmbs, EncoderBlock
from vit_keras.layers.common import check_choice
from vit_keras.models import explain, patch_grid
from vit_keras.models.description import has_layer
from vit_keras.models.surgery import backbone_of, covered_size, windowed_blocks
from vit_keras.support.figures import BLUE, GRAY, ORANGE, new_figure, save_figure, wrap

ACROSS = 15  # the number of characters of a title that fit along a picture's side
TINY = 1e-30  # a picture without relevance is drawn dark

Arrays = dict[str, np.ndarray]
Drawn = tuple[Any, Arrays]  # a figure, and the numbers in it


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model and the images that it sees.

    Attributes:
        model: A functional model of this package, for images of one size.
        images: Images `(B, H, W, C)`, prepared for the model. Measures are averaged over all of
            them.
        pictures: The first of these images as pixels in [0, 255], `(b, H, W, C)`. These are drawn.
        titles: A title for each picture.
        heads: How a rollout joins heads: "mean" or "max".
        class_index: The class whose relevance is drawn; None for each picture's most probable one.
        source: The name of the images' data set. It heads the figures of pictures.
    """

    model: keras.Model
    images: np.ndarray
    pictures: np.ndarray
    titles: Sequence[str]
    heads: str = "mean"
    source: str = ""
    class_index: int | None = None

    @functools.cached_property
    def attention(self) -> AttentionViews:
        """The measures of attention, computed on first use."""
        return attention_views(self.model, self.images, self.heads)


def _filters(subject) -> Drawn:
    """Draws up to 3 channels of filters `(K, h, w, C)`, and their fractions of the variance."""
    filters, fractions = measures.filter_components(subject.model)
    columns = min(7, len(filters))
    rows = math.ceil(len(filters) / columns)
    figure, axes = _axes(rows, columns, filters.shape[1:3], top=0.3)
    largest = np.abs(filters).max(axis=(1, 2, 3), keepdims=True)
    for axis, picture, part in zip(axes.flat, 0.5 + 0.5 * filters / largest, fractions):
        shown = picture[..., :3] if picture.shape[-1] >= 3 else picture[..., 0]
        axis.imshow(shown, **GRAY_SCALE)
        axis.set_title(f"{100 * part:.1f}%", fontsize=8, pad=3)
    figure.suptitle("Filters: principal components and fractions of the variance", fontsize=10)
    return figure, {"components": filters, "variance_shares": fractions}


def _position_similarity(subject) -> Drawn:
    """Draws `(h, w, h, w)` as a grid of grids: each patch's place shows its similarity to all.

    Of a large grid, at most 16 rows and columns of patches are drawn, spread evenly.
    """
    similarity = measures.position_similarity(subject.model)
    every = math.ceil(max(similarity.shape) / 16)
    numbers = [np.arange(every // 2, size, every) for size in similarity.shape[:2]]
    whole, (height, width) = grid_of_grids(similarity[np.ix_(*numbers)])
    rows, columns = map(len, numbers)
    side = 5.5 / max(rows, columns)
    figure, axes = new_figure(side * columns + 1.8, side * rows + 0.8)
    figure.set_layout_engine("compressed")
    axis = axes[0, 0]
    image = axis.imshow(whole, cmap="viridis", vmin=min(-1, similarity.min()), vmax=1)
    axis.set_xticks(np.arange(columns) * width + width / 2, numbers[1] + 1)
    axis.set_yticks(np.arange(rows) * height + height / 2, numbers[0] + 1)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set(xlabel="patch column", ylabel="patch row")
    axis.set_title("Position embeddings: similarity of each patch to all others", fontsize=10)
    figure.colorbar(image, ax=axis, label="cosine similarity", aspect=30)
    return figure, {"cosine": similarity}


def grid_of_grids(similarity: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Joins `(rows, columns, h, w)` into one picture, with NaN between the grids.

    Returns:
        The picture, and the distance between neighboring grids as (height, width) in pixels.
    """
    rows, columns, *inner = similarity.shape
    cell = max(1, 48 // max(inner))
    line = max(1, cell * max(inner) // 12)  # between the grids
    height, width = (cell * size + line for size in inner)
    whole = np.full((rows, columns, height, width), np.nan)
    whole[:, :, :-line, :-line] = similarity.repeat(cell, axis=2).repeat(cell, axis=3)
    whole = whole.transpose(0, 2, 1, 3).reshape(rows * height, columns * width)
    return whole[:-line, :-line], (height, width)


def _attention_distance(subject) -> Drawn:
    """Draws `(L, H)` pixels over depth, one point per head, beside uniform attention."""
    distance, label = subject.attention.distance_px, "mean attention distance (pixels)"
    even = patch_distances(patch_grid(subject.model), covered_size(subject.model)).mean()
    return _heads_over_depth(distance, label, even, "uniform attention"), {"pixels": distance}


def _attention_entropy(subject) -> Drawn:
    """Draws `(L, H)` nats over depth, one point per head, beside the maximum ln N."""
    entropy, tokens = subject.attention.entropy_nats, subject.attention.tokens
    label = "mean entropy of attention (nats)"
    most = math.log(tokens), f"maximum, ln {tokens}"
    return _heads_over_depth(entropy, label, *most), {"nats": entropy}


def _heads_over_depth(values, label, reference, reference_label):
    layers = np.arange(len(values))
    figure, axes = new_figure(5.6, 3.8)
    axis = axes[0, 0]
    spread = np.repeat(layers, values.shape[1])
    axis.scatter(spread, values.ravel(), s=22, color=BLUE, alpha=0.6, lw=0, label="one head")
    axis.plot(layers, values.mean(axis=1), color=ORANGE, lw=1.5, label="mean of the layer")
    axis.axhline(reference, color=GRAY, ls="--", lw=1, label=reference_label)
    axis.set(xlabel="network depth (layer)", ylabel=label, xlim=(-0.5, len(values) - 0.5))
    axis.set_ylim(0, 1.05 * max(reference, values.max()))
    axis.set_xticks(layers[:: math.ceil(len(layers) / 16)])
    axis.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return figure


def rollout_figure(subject: Subject, rollout: np.ndarray, label: str = "rollout"):
    """Draws a row for each picture: the picture, then its rollout `(h, w)` over the picture."""
    height, width = subject.pictures.shape[1:3]
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)
    over = {"extent": extent, "alpha": 0.75, "interpolation": "bilinear"}
    return _panels(subject, [label], _brightness(rollout)[:, None], **MAP, **over)


def _attention_rollout(subject) -> Drawn:
    rollout = subject.attention.rollout
    return rollout_figure(subject, rollout), {subject.heads: rollout}


def _class_relevance(subject) -> Drawn:
    images = subject.images[: len(subject.pictures)]
    relevance = explain(subject.model, images, subject.class_index)
    return rollout_figure(subject, relevance, "relevance"), {"relevance": relevance}


def _attention_last_layer(subject) -> Drawn:
    """Draws each picture in a row, followed by the attention `(B, H, h, w)` of each head."""
    weights = subject.attention.last_layer
    titles = [f"head {number}" for number in range(1, 1 + weights.shape[1])]
    return _panels(subject, titles, _brightness(weights), **MAP), {"weights": weights}


def _features(subject) -> Drawn:
    """Draws a row for each picture: the picture, and the components of each block as colors.

    The colors of a block are scaled over all pictures together. A block's components are first
    turned toward those of the previous block, so that similar features have similar colors.
    """
    features = measures.feature_components(subject.model, subject.images)
    places = np.linspace(0, len(features) - 1, min(len(features), 12))  # of at most 12 blocks
    names = np.array(list(features))[places.round().astype(int)]
    before, colors = None, []
    for name in names:
        outer = [0.01, 0.99]  # the few outliers at both ends are cut off
        low, high = np.quantile(features[name], outer, axis=(0, 1, 2), method="nearest")
        before = values = toward(np.clip(features[name], low, high), before)
        low, high = values.min(axis=(0, 1, 2)), values.max(axis=(0, 1, 2))
        colors.append((values - low) / np.maximum(high - low, 1e-12))
    titles = [x.replace("encoderblock_", "layer ").replace("block", "stage ") for x in names]
    return _panels(subject, titles, zip(*colors)), features


def toward(values: np.ndarray, before: np.ndarray | None) -> np.ndarray:
    """Rotates components `(..., K)` toward `before` at the same places (orthogonal Procrustes)."""
    if before is None or before.shape != values.shape:
        return values
    samples = (x.reshape(-1, x.shape[-1]) for x in (values, before))
    left, _, right = np.linalg.svd(np.einsum("nk,nl->kl", *samples))
    return values @ left @ right


def _brightness(weights):
    """Scales `(..., h, w)` to [0, 1], clipping the few outliers, which would darken the rest."""
    high = np.quantile(weights, 0.975, axis=(-2, -1), method="higher", keepdims=True)
    return np.minimum(weights / np.maximum(high, TINY), 1)


MAP = {"cmap": "magma", "vmin": 0, "vmax": 1}
GRAY_SCALE = {"cmap": "gray", "vmin": 0, "vmax": 1}  # for pictures with one channel


def _panels(subject, titles, panels, **options):
    """Draws each picture in a row, followed by its panels, with titles above.

    Panels with an `extent` lie over the picture. Those with a color map get a bar.
    """
    rows, shape, right = len(subject.pictures), subject.pictures.shape[1:3], 0.7 * bool(options)
    heading = f"{subject.source}: {rows} of {len(subject.images)} images" if subject.source else ""
    figure, axes = _axes(rows, len(titles) + 1, shape, right=right, heading=heading)
    for row, picture, name, values in zip(axes, subject.pictures, subject.titles, panels):
        shown = np.clip(np.squeeze(picture) / 255, 0, 1)
        row[0].imshow(shown, **GRAY_SCALE)
        row[0].set_ylabel(wrap(name, ACROSS), fontsize=8)
        for axis, panel in zip(row[1:], values):
            if "extent" in options:
                axis.imshow(shown, **GRAY_SCALE)
            image = axis.imshow(panel, **options)
    for axis, title in zip(axes[0, 1:], titles):
        axis.set_title(title, fontsize=8)
    if options:
        bar = figure.colorbar(image, ax=axes[:, -1], pad=0.03, aspect=25)
        bar.solids.set_alpha(1)
        bar.set_label("fraction of the 97.5th percentile", fontsize=8)
        bar.ax.tick_params(labelsize=8)
    return figure


def _axes(rows, columns, shape, top=0.0, right=0.0, heading=""):
    """Makes axes for pictures of `shape` (H, W), one inch wide, with room for titles."""
    top += 0.3 if heading else 0.0
    height = (1.1 * shape[0] / shape[1] + (0.2 if top else 0)) * rows + 0.35 + top
    figure, axes = new_figure(1.1 * columns + 0.3 + right, height, rows, columns)
    figure.set_layout_engine("compressed")
    if heading:
        figure.suptitle(heading, fontsize=10)
    for axis in axes.flat:
        axis.set(xticks=(), yticks=())
        axis.spines[:].set_visible(False)
    return figure, axes


class View(NamedTuple):
    """A view of a model: its figure, and the kind of layer that it needs."""

    draw: Callable[[Subject], Drawn]
    layer: type


VIEWS = {
    "filters": View(_filters, keras.layers.Layer),
    "position_similarity": View(_position_similarity, AddPositionEmbs),
    "attention_distance": View(_attention_distance, EncoderBlock),
    "attention_entropy": View(_attention_entropy, EncoderBlock),
    "attention_rollout": View(_attention_rollout, EncoderBlock),
    "class_relevance": View(_class_relevance, EncoderBlock),
    "attention_last_layer": View(_attention_last_layer, EncoderBlock),
    "features": View(_features, keras.layers.Layer),
}


def views_of(model: keras.Model, requested: Sequence[str] | None = None) -> list[str]:
    """Lists the views that a model has, or checks the requested ones.

    Args:
        model: A functional model of this package.
        requested: The names of views, or None for all that the model has.

    Returns:
        Keys of `VIEWS`.

    Raises:
        ValueError: If a requested name is unknown, if the model lacks the layers for it, or if
            these attend within windows. The message names the views that the model has.

    Example:
        >>> views_of(BiTR50x1(weights=None))
        ['filters', 'features']
    """
    model = backbone_of(model)
    has_windows, lacks = windowed_blocks(model), {}
    for name, view in VIEWS.items():
        if not any(isinstance(layer, view.layer) for layer in model.layers):
            lacks[name] = f"{view.layer.__name__} layers"
        elif view.layer is EncoderBlock and has_windows:
            lacks[name] = f"{view.layer.__name__} layers that attend to all tokens"
        elif name == "class_relevance" and not has_layer(model, "head"):
            lacks[name] = "a head"
    available = [name for name in VIEWS if name not in lacks]
    for name in requested or ():
        check_choice(name, VIEWS, "views")
        if name in lacks:
            raise ValueError(
                f"View {name!r} needs a model with {lacks[name]}. Received: model {model.name!r}, "
                f"which has the views {', '.join(available)}"
            )
    return list(requested or available)


def draw_views(
    subject: Subject, folder: str | os.PathLike, views: Sequence[str] | None = None
) -> dict[str, Arrays]:
    """Draws views of a model as PNG files.

    Args:
        subject: The model and its images.
        folder: The folder for the figures `{view}.png`. It is created if it does not exist.
        views: The names of views, or None for all that the model has.

    Returns:
        `{view: {name: array}}`, the numbers in the figures.

    Raises:
        ValueError: As in `views_of`, before anything is written.

    Example:
        >>> subject = Subject(model, images, pictures[:2], ["cat", "dog"])
        >>> draw_views(subject, "figures", ["attention_rollout"])["attention_rollout"]["mean"].shape
        (8, 14, 14)
    """
    views = views_of(subject.model, views)
    arrays = {}
    for view in views:
        figure, arrays[view] = VIEWS[view].draw(subject)
        save_figure(figure, pathlib.Path(folder, f"{view}.png"))
    return arrays
