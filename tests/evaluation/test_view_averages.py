"""Test-time augmentation averages the answers for the views that it names."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import assert_close, randomize
from vit_keras import evaluation
from vit_keras.models import VisionTransformer
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def model():
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16, "num_classes": 3}
    return randomize(VisionTransformer((16, 24), 8, **sizes), np.random.default_rng(0))


def crops(images):
    for top, left in ((0, 0), (0, 3), (2, 0), (2, 3), (1, 1)):
        yield tf.image.resize(images[:, top : top + 14, left : left + 21], (16, 24)).numpy()


@pytest.mark.parametrize("views", [["flip"], ["crops"], ["flip", "crops"]], ids="+".join)
@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_answers_are_means_over_views(model, rng, views, kind):
    images = rng.normal(size=(4, 16, 24, 3)).astype("float32")
    seen = [images, *(crops(images) if "crops" in views else [])]
    seen += [view[:, :, ::-1] for view in seen] if "flip" in views else []
    model.task = Task(kind)
    predictor = evaluation.make_predictor(model)
    answers = [predictor.as_probabilities(predictor.run(view)) for view in seen]
    averaged = evaluation.with_views(predictor, views)
    received = averaged.as_probabilities(averaged.run(images))
    assert np.abs(answers[0] - answers[-1]).max() > 1e-3  # the views differ
    assert_close(received, np.mean(answers, axis=0), rtol=1e-5)
