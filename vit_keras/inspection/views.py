"""The views of a model, by name. Each computes its arrays and draws them."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

from vit_keras.inspection import plots
from vit_keras.inspection.attention import AttentionViews, attention_views
from vit_keras.inspection.features import feature_components
from vit_keras.inspection.weights import filter_components, position_similarity
from vit_keras.layers import AddPositionEmbs, EncoderBlock, RegisterTokens
from vit_keras.layers.base import check_choice
from vit_keras.models import patch_grid
from vit_keras.models.surgery import backbone_of, windowed_blocks

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model and the images that it looks at.

    Attributes:
        model: A functional model of this package, for images of one size.
        images: Images `(B, H, W, C)`, prepared for the model. Measures are means over all of them.
        pictures: The first images as pixels in [0, 255], `(b, H, W, C)`, which are drawn.
        titles: A title for each picture.
        heads: How a rollout joins heads, "mean" or "max".
        source: Name of the data set that the images come from. It heads the figures of pictures.
    """

    model: keras.Model
    images: np.ndarray
    pictures: np.ndarray
    titles: Sequence[str]
    heads: str = "mean"
    source: str = ""

    @functools.cached_property
    def attention(self) -> AttentionViews:
        """The measures of attention, computed at the first use."""
        return attention_views(self.model, self.images, self.heads)

    @property
    def heading(self) -> str:
        """The line above the figures of pictures; empty where the source has no name."""
        count, total = len(self.pictures), len(self.images)
        return f"{self.source}: {count} of {total} images" if self.source else ""


def _filters(subject, path) -> Arrays:
    components, shares = filter_components(subject.model)
    plots.draw_filters(components, shares, path)
    return {"components": components, "variance_shares": shares}


def _position_similarity(subject, path) -> Arrays:
    similarity = position_similarity(subject.model)
    plots.draw_position_similarity(similarity, path)
    return {"cosine": similarity}


def _attention_distance(subject, path) -> Arrays:
    distance = subject.attention.distance_px
    size = subject.model.input_shape[1:3]
    plots.draw_attention_distance(distance, patch_grid(subject.model), size, path)
    return {"pixels": distance}


def _attention_entropy(subject, path) -> Arrays:
    attention = subject.attention
    plots.draw_attention_entropy(attention.entropy_nats, attention.tokens, path)
    return {"nats": attention.entropy_nats}


def _attention_rollout(subject, path) -> Arrays:
    rollout = subject.attention.rollout
    plots.draw_rollout(subject.pictures, rollout, subject.titles, path, subject.heading)
    return {subject.heads: rollout}


def _attention_last_layer(subject, path) -> Arrays:
    weights = subject.attention.last_layer
    plots.draw_last_layer(subject.pictures, weights, subject.titles, path, subject.heading)
    return {"weights": weights}


def _registers(subject, path) -> Arrays:
    weights = subject.attention.registers
    drawing = subject.pictures, weights, subject.titles, path, subject.heading
    plots.draw_last_layer(*drawing, column="register")
    return {"weights": weights}


def _features(subject, path) -> Arrays:
    features = feature_components(subject.model, subject.images)
    plots.draw_features(subject.pictures, features, subject.titles, path, subject.heading)
    return features


# For each view, the function that draws it and the layer that a model needs for it.
VIEWS: dict[str, tuple[Callable[[Subject, pathlib.Path], Arrays], type]] = {
    "filters": (_filters, keras.layers.Layer),
    "position_similarity": (_position_similarity, AddPositionEmbs),
    "attention_distance": (_attention_distance, EncoderBlock),
    "attention_entropy": (_attention_entropy, EncoderBlock),
    "attention_rollout": (_attention_rollout, EncoderBlock),
    "attention_last_layer": (_attention_last_layer, EncoderBlock),
    "registers": (_registers, RegisterTokens),
    "features": (_features, keras.layers.Layer),
}

# The views that need attention weights between all tokens.
OF_ATTENTION = [name for name in VIEWS if name.startswith("attention_")] + ["registers"]


def views_of(model: keras.Model, requested: Sequence[str] | None = None) -> list[str]:
    """Lists the views that a model has, or checks those that were requested.

    Args:
        model: A functional model of this package.
        requested: Names of views, or None for all that the model has.

    Returns:
        Names in `VIEWS`.

    Raises:
        ValueError: A requested name is unknown, or the model lacks the layers for it, or attends
            within windows. The message names the views that the model has.

    Example:
        >>> views_of(BiTR50x1(weights=None))
        ['filters', 'features']
    """
    model = backbone_of(model)
    available = [
        name
        for name, (_, needs) in VIEWS.items()
        if any(isinstance(layer, needs) for layer in model.layers)
    ]
    hidden = OF_ATTENTION if windowed_blocks(model.layers) else []
    available = [name for name in available if name not in hidden]
    for name in requested or ():
        check_choice(name, VIEWS, "views")
        if name not in available:
            layers = f"{VIEWS[name][1].__name__} layers"
            needs = f"{layers} that attend to all tokens" if name in hidden else layers
            raise ValueError(
                f"View {name!r} needs a model with {needs}. Received: model {model.name!r}, which "
                f"has the views {', '.join(available)}"
            )
    return list(requested or available)


def draw_views(
    subject: Subject, folder: str | os.PathLike, views: Sequence[str] | None = None
) -> dict[str, Arrays]:
    """Draws views of a model as PNG files.

    Args:
        subject: The model and its images.
        folder: The folder of the figures `{view}.png`, which is created where it does not exist.
        views: Names of views, or None for all that the model has.

    Returns:
        `{view: {name: array}}`, the numbers that the figures show.

    Raises:
        ValueError: As `views_of` does, before anything is written.

    Example:
        >>> subject = Subject(model, images, pictures[:2], ["cat", "dog"])
        >>> draw_views(subject, "figures", ["attention_rollout"])["attention_rollout"]["mean"].shape
        (8, 14, 14)
    """
    views = views_of(subject.model, views)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return {view: VIEWS[view][0](subject, folder / f"{view}.png") for view in views}
