"""All views of a model by name; each finds its arrays and draws them."""

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
from vit_keras.layers import AddPositionEmbs, EncoderBlock
from vit_keras.layers.base import check_choice
from vit_keras.models import patch_grid

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A model, and the images that it looks at.

    Attributes:
        model: a functional model of this package, for images of one size.
        images: `(B, H, W, C)`, prepared for the model; numbers are means over all of them.
        pictures: the first of them in [0, 255], `(b, H, W, C)`, to be drawn.
        titles: one a picture.
        heads: how a rollout joins heads, "mean" or "max".
    """

    model: keras.Model
    images: np.ndarray
    pictures: np.ndarray
    titles: Sequence[str]
    heads: str = "mean"

    @functools.cached_property
    def attention(self) -> AttentionViews:
        return attention_views(self.model, self.images, self.heads)


def _filters(subject, path) -> Arrays:
    components, shares = filter_components(subject.model)
    plots.draw_filters(components, shares, path)
    return {"components": components, "variance_shares": shares}


def _position_similarity(subject, path) -> Arrays:
    similarity = position_similarity(subject.model)
    plots.draw_position_similarity(similarity, path)
    return {"cosine": similarity}


def _attention_distance(subject, path) -> Arrays:
    found = subject.attention.distance_px
    size = subject.model.input_shape[1:3]
    plots.draw_attention_distance(found, patch_grid(subject.model), size, path)
    return {"pixels": found}


def _attention_entropy(subject, path) -> Arrays:
    found = subject.attention
    plots.draw_attention_entropy(found.entropy_nats, found.tokens, path)
    return {"nats": found.entropy_nats}


def _attention_rollout(subject, path) -> Arrays:
    found = subject.attention.rollout
    plots.draw_rollout(subject.pictures, found, subject.titles, path)
    return {subject.heads: found}


def _attention_last_layer(subject, path) -> Arrays:
    found = subject.attention.last_layer
    plots.draw_last_layer(subject.pictures, found, subject.titles, path)
    return {"weights": found}


def _features(subject, path) -> Arrays:
    found = feature_components(subject.model, subject.images)
    plots.draw_features(subject.pictures, found, subject.titles, path)
    return found


# What draws a view, and the layer that a model needs for it.
VIEWS: dict[str, tuple[Callable[[Subject, pathlib.Path], Arrays], type]] = {
    "filters": (_filters, keras.layers.Layer),
    "position_similarity": (_position_similarity, AddPositionEmbs),
    "attention_distance": (_attention_distance, EncoderBlock),
    "attention_entropy": (_attention_entropy, EncoderBlock),
    "attention_rollout": (_attention_rollout, EncoderBlock),
    "attention_last_layer": (_attention_last_layer, EncoderBlock),
    "features": (_features, keras.layers.Layer),
}


def views_of(model: keras.Model, wanted: Sequence[str] | None = None) -> list[str]:
    """The names of all views that `model` has, or `wanted`.

    Raises ValueError for names that are none, and for views that the model has not, naming those
    that it has.
    """
    has = [
        name
        for name, (_, needs) in VIEWS.items()
        if any(isinstance(layer, needs) for layer in model.layers)
    ]
    for name in wanted or ():
        check_choice(name, VIEWS, "views")
        if name not in has:
            raise ValueError(
                f"View {name!r} is of {VIEWS[name][1].__name__} layers, and model {model.name!r} "
                f"has none. It has the views {', '.join(has)}"
            )
    return list(wanted or has)


def draw_views(
    subject: Subject, folder: str | os.PathLike, views: Sequence[str] | None = None
) -> dict[str, Arrays]:
    """Draws `views`, by default all that the model has, as `folder/{view}.png`; gives their arrays.

    Raises ValueError as `views_of` does, before anything is written.
    """
    views = views_of(subject.model, views)
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return {view: VIEWS[view][0](subject, folder / f"{view}.png") for view in views}
