"""Test-time augmentation averages answers over views; maps are turned back before."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import assert_close, randomize
from vit_keras import evaluation
from vit_keras.evaluation.predictors import Predictor, softmax
from vit_keras.models import Preprocessing, VisionTransformer, segmenter
from vit_keras.support.resizing import INTERPOLATIONS
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once
SIZE, NAMES = (8, 12), ("ground", "house", "tree")


@pytest.fixture(scope="module")
def classifier():
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16, "num_classes": 3}
    return randomize(VisionTransformer((16, 24), 8, **sizes), np.random.default_rng(0))


def crops(images):
    for top, left in ((0, 0), (0, 3), (2, 0), (2, 3), (1, 1)):
        yield tf.image.resize(images[:, top : top + 14, left : left + 21], (16, 24)).numpy()


@pytest.mark.parametrize(
    ("kind", "views"),
    [("classes", ["flip"]), ("labels", ["crops"]), ("numbers", ["flip", "crops"])],
)
def test_answers_are_means_over_views(classifier, rng, views, kind):
    images = rng.normal(size=(4, 16, 24, 3)).astype("float32")
    seen = [images, *(crops(images) if "crops" in views else [])]
    seen += [view[:, :, ::-1] for view in seen] if "flip" in views else []
    classifier.task = Task(kind)
    predictor = evaluation.make_predictor(classifier)
    answers = [predictor.as_probabilities(predictor.run(view)) for view in seen]
    averaged = evaluation.with_views(predictor, views)
    received = averaged.as_probabilities(averaged.run(images))
    assert np.abs(answers[0] - answers[-1]).max() > 1e-3  # the views differ
    assert_close(received, np.mean(answers, axis=0), rtol=1e-5)


def test_a_mirrored_image_has_the_mirrored_map(rng):
    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}
    encoder = VisionTransformer(SIZE, 4, **sizes, num_classes=None, channels=3)
    model = randomize(segmenter(encoder, 3, width=8), rng)
    images = rng.normal(size=(3, *SIZE, 3)).astype("float32")
    model.task, model.class_names = Task("masks"), list(NAMES)
    predictor = evaluation.make_predictor(model)
    averaged, mirrored = evaluation.with_views(predictor, ["flip"]), images[:, :, ::-1]
    maps = averaged.run(images)
    np.testing.assert_array_equal(maps, averaged.run(mirrored)[:, :, ::-1])
    np.testing.assert_allclose(maps.sum(axis=-1), 1, rtol=1e-5)
    alone = predictor.run(images), predictor.run(mirrored)[:, :, ::-1]
    assert np.abs(alone[0] - alone[1]).max() > 0.01  # the model alone is not symmetric


@pytest.mark.parametrize("size", [(16, 24), (15, 11)])
def test_maps_of_crops_are_averaged_where_they_lie(rng, size):
    """The logits depend on the place in the view, so each view has another answer."""
    place = rng.normal(size=(*size, 3)).astype("float32")
    plain, run = Preprocessing(mean=(0.0,), std=(1 / 255,)), lambda images: place * images
    predictor = Predictor(run, (*size, 1), 3, plain, False, NAMES, task=Task("masks"))
    images = rng.uniform(0, 1, (2, *size, 1)).astype("float32")
    received = evaluation.with_views(predictor, ["crops"]).run(images)
    rule = INTERPOLATIONS["bilinear_half_pixel"]
    sides = [round(side * 7 / 8) for side in size]
    larger = [rule(old, new) for old, new in zip(sides, size)]
    smaller = [rule(old, new) for old, new in zip(size, sides)]
    resize = lambda x, rules: np.einsum("ih,jw,bhwk->bijk", *rules, x)
    free = [side - crop for side, crop in zip(size, sides)]
    corners = [(0, 0), (0, free[1]), (free[0], 0), free, (free[0] // 2, free[1] // 2)]
    sums, counts = softmax(place * images), np.ones(size)
    for top, left in corners:
        shown = np.s_[top : top + sides[0], left : left + sides[1]]
        crop = resize(images[:, *shown], larger)
        sums[:, *shown] += resize(softmax(place * crop), smaller)
        counts[shown] += 1
    assert counts.min() == 2 and counts.max() == 6
    np.testing.assert_allclose(received, sums / counts[..., None], atol=1e-5)
