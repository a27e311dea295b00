"""What changes in a view of a picture is not averaged without a word."""

import numpy as np
import pytest

from vit_keras import evaluation
from vit_keras.evaluation.predictors import Predictor
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once
SIZE = (8, 12)
ACROSS = np.linspace(-1, 1, SIZE[1])  # turns in the mirror
SIGNAL = 4.0


def pictures(rng, count):
    """Two numbers for each picture, one that turns in the mirror and one that does not."""
    turns, stays = rng.normal(size=(2, count))
    images = turns[:, None, None] * ACROSS + stays[:, None, None] * np.ones(SIZE)
    return (images[..., None] + 0.1 * rng.normal(size=(count, *SIZE, 1))).astype("float32")


def seen(images):
    """Both numbers, as a model reads them."""
    images = np.asarray(images)[..., 0]
    turns = (images * ACROSS).sum(axis=(1, 2)) / (SIZE[0] * (ACROSS**2).sum())
    return np.stack([turns, images.mean(axis=(1, 2))], axis=1)


def predictor_of(kind, function):
    names = ("left", "right", "bright")[: function(np.zeros((1, *SIZE, 1))).shape[-1]]
    shape = (*SIZE, 1)
    return Predictor(function, shape, len(names), Preprocessing(), True, names, task=Task(kind))


def arrows(images):
    """Pictures point to the left or right, if they are not bright."""
    turns, stays = seen(images).T
    scores = np.stack([-turns, turns, SIGNAL * (stays - 0.5)], axis=1)
    return np.exp(SIGNAL * scores) / np.exp(SIGNAL * scores).sum(axis=1, keepdims=True)


def brightness(images):
    """Classes that do not turn."""
    bright = 1 / (1 + np.exp(-SIGNAL * seen(images)[:, 1]))
    return np.stack([bright, 1 - bright], axis=1)


def present(images):
    return 1 / (1 + np.exp(-SIGNAL * seen(images)))  # the labels "left" and "right"


FUNCTIONS = {
    "numbers": lambda images: 10 * seen(images),
    "classes": arrows,
    "labels": present,
    "still numbers": lambda images: 40 + 10 * seen(images)[:, 1:],
    "still classes": brightness,
}


def told(name, images, capsys, batch=16, views=("flip",)):
    """What is printed for pictures in batches, the last of which is filled up."""
    averaged = evaluation.with_views(predictor_of(name.split()[-1], FUNCTIONS[name]), views)
    batches = [images[i : i + batch] for i in range(0, len(images), batch)]
    averaged.predict([(x, np.zeros(len(x), int)) for x in batches])
    return capsys.readouterr().err


def test_numbers_that_turn_are_told_with_figures(rng, capsys):
    images = pictures(rng, 300)
    text = told("numbers", images, capsys)
    plain, mirrored = (10 * seen(x)[:, 0] for x in (images, images[:, :, ::-1]))
    ratio = np.sqrt(((mirrored - plain) ** 2).mean()) / plain.std()
    assert (
        f"Warning: in mirror images, left changes by {ratio:.0%} of the spread in 300 pictures"
        in text
    )
    assert "right" not in text and "leave flip out of --tta" in text and len(text.splitlines()) == 1


@pytest.mark.parametrize("name", ["classes", "labels"])
def test_classes_and_labels_that_turn_are_told_with_figures(rng, capsys, name):
    images = pictures(rng, 400)
    text = told(name, images, capsys)
    plain, mirrored = (FUNCTIONS[name](x) for x in (images, images[:, :, ::-1]))
    lost = 1 - np.minimum(plain, mirrored)[:, 0].sum() / plain[:, 0].sum()
    count = f"in {plain[:, 0].sum():.0f} pictures"
    assert f"left loses {lost:.0%} of its probability {count}" in text
    assert "bright" not in text and text.startswith("Warning: in mirror images")


@pytest.mark.parametrize("count", [1, 2, 5, 9, 10, 30, 1000])
def test_small_sets_raise_no_false_alarm(rng, capsys, count):
    for _ in range(5):
        images = pictures(rng, count)
        for name in ("still numbers", "still classes"):
            assert "Warning" not in told(name, images, capsys)
    text = told("numbers", pictures(rng, count), capsys)
    assert text.startswith("Warning" if count >= 10 else "Note (few pictures): in mirror images")
