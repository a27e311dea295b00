"""Explanations, beside differences of the NumPy model's logits by each attention weight."""

import keras
import numpy as np
import pytest

from benchmarks.relevance import perturbation_curves
from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import models
from vit_keras.models import VisionTransformer, explain

SIZES = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 12, "num_classes": 3}


def expected_relevance(monkeypatch, model, image, index, classifier):
    """R by Eq. 5 and 6 of arXiv 2103.15679, with central differences as gradients."""
    weights, softmax, state = weights_by_path(model), reference.softmax, {}

    def changed(x):
        number, state["call"] = state["call"], state["call"] + 1
        y = softmax(x)
        if number == state["number"]:
            y[0, state["query"], state["key"]] += state["by"]
        return y

    monkeypatch.setattr(reference, "softmax", changed)

    def logit(by, number=-1, query=0, key=0):
        state.update(call=0, number=number, query=query, key=key, by=by)
        out = reference.forward(image[None], weights, num_layers=2, classifier=classifier)
        return out["logits"][0, index], out["attention"][0]

    maps = logit(0)[1]  # (L, H, N, N)
    gradients = np.zeros_like(maps)
    for place in np.ndindex(maps.shape):
        layer, head, query, key = place
        sides = [logit(by, 2 * layer + head, query, key)[0] for by in (1e-4, -1e-4)]
        gradients[place] = (sides[0] - sides[1]) / 2e-4
    relevance = np.eye(maps.shape[-1])
    for weight, gradient in zip(maps, gradients):
        relevance = relevance + np.maximum(weight * gradient, 0).mean(axis=0) @ relevance
    if classifier == "token":
        return relevance[0, -4:].reshape(2, 2)
    return (relevance - np.eye(4)).mean(axis=0).reshape(2, 2)


@pytest.mark.parametrize(
    "classifier", ["token", pytest.param("gap", marks=pytest.mark.on("torch"))]
)
def test_relevance_is_the_published_one(rng, monkeypatch, classifier):
    model = randomize(VisionTransformer(8, 4, **SIZES, classifier=classifier), rng, scale=0.5)
    images = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    actual = explain(model, images, class_index=np.array([2, 0]), batch=1)
    for image, index, relevance in zip(images, (2, 0), actual, strict=True):
        expected = expected_relevance(monkeypatch, model, image, index, classifier)
        assert_close(relevance, expected, rtol=1e-4)
    monkeypatch.undo()
    best = to_numpy(model(images)).argmax(axis=-1)
    assert_close(explain(model, images), explain(model, images, best))
    layer = model.get_layer("encoderblock_0")
    assert to_numpy(layer(np.ones((1, 5, 8), "float32"))).shape == (1, 5, 8)  # unchanged


@pytest.mark.on("torch")
def test_a_head_on_top_a_softmax_and_masks_are_explained(rng):
    base = randomize(VisionTransformer(8, 4, **{**SIZES, "num_classes": None}), rng, scale=0.5)
    images = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    head = keras.layers.Dense(3, name="head")
    nested = keras.Sequential([base, head])
    whole = VisionTransformer(8, 4, **SIZES)
    for weight in base.weights:
        next(w for w in whole.weights if w.path.endswith(weight.path)).assign(weight)
    whole.get_layer("head").set_weights(head.get_weights())
    expected = explain(whole, images, 1)
    assert expected.max() > 0
    assert_close(explain(nested, images, 1), expected, rtol=1e-5)
    last = keras.layers.Dense(3, "softmax", name="probabilities")
    softmax = keras.Sequential([base, last])
    last.set_weights(head.get_weights())
    assert_close(explain(softmax, images, 1), expected, rtol=1e-5)
    assert_close(to_numpy(softmax(images)).sum(), np.float32(2))  # as before
    segmenter = randomize(models.segmenter(base, 3), rng)
    assert (explain(segmenter, images, 2) >= 0).all() and explain(segmenter, images, 2).any()


@pytest.mark.once
def test_curves_hide_and_show_the_most_relevant_patches_first(rng):
    """A model of the mean of patch 3 alone: hiding it ends the answer, showing it gives it."""
    inputs = keras.Input((4, 4, 3))
    mean = keras.layers.GlobalAveragePooling2D()(keras.layers.Cropping2D(((2, 0), (2, 0)))(inputs))
    head = keras.layers.Dense(2, "softmax", use_bias=False)
    model = keras.Model(inputs, head(mean))
    head.kernel.assign([[1.0, 0.0]] * 3)
    images = np.abs(rng.normal(size=(2, 4, 4, 3))).astype("float32") + 1
    order = np.array([[[0.1, 0.2], [0.0, 0.9]]] * 2)
    hidden, shown = perturbation_curves(model, images, order, np.array([0, 0]))
    full = to_numpy(model(images))[:, :1]
    assert hidden.shape == shown.shape == (2, 5)
    assert_close(hidden, np.concatenate([full, np.full((2, 4), 0.5)], axis=1), rtol=1e-5)
    assert_close(shown, np.concatenate([np.full((2, 1), 0.5), *[full] * 4], axis=1), rtol=1e-5)
