"""The average precision of held-out images comes from all their outputs, on every backend."""

import keras
import numpy as np
import pytest
import sklearn.metrics as reference

from vit_keras.config import Config
from vit_keras.data.batches import Batches
from vit_keras.models import ImageModel
from vit_keras.support.tasks import Task
from vit_keras.training.distribution import ALONE
from vit_keras.training.metrics import EvaluateLabels

OUTPUTS = 3


def rare_labels(rng, count):
    """Logits that differ little, with ties, of labels that are rare, common, and never there."""
    prevalence = np.array([0.002, 0.4, 0.0])
    labels = (rng.random((count, OUTPUTS)) < prevalence).astype("float32")
    labels[:7, 0] = [1, 0, 1, 0, 0, 1, 0]
    logits = rng.normal(np.log(prevalence + 1e-3), 0.1, labels.shape) + 0.1 * labels
    logits[:, 1] = np.round(logits[:, 1], 2)  # many are equal
    labels[rng.random(labels.shape) < 0.1] = np.nan
    return labels, logits.astype("float32")


def mean_average_precision(labels, logits):
    known = [~np.isnan(y) for y in labels.T]
    return np.mean(
        [
            reference.average_precision_score(labels[known[k], k], logits[known[k], k])
            for k in range(2)  # the last one has no positive
        ]
    )


@pytest.mark.parametrize("padded", [False, True])
def test_held_out_figures_are_those_of_all_outputs(rng, padded):
    labels, logits = rare_labels(rng, 1900)
    images = keras.Input((OUTPUTS,))
    model = ImageModel(images, keras.layers.Dense(OUTPUTS, use_bias=False)(images))
    model.set_weights([np.eye(OUTPUTS)])
    model.task = Task("labels")
    model.compile("sgd", "mse", weighted_metrics=[])
    columns = [logits, labels]
    if padded:  # as where several devices share batches
        weights = np.repeat(np.float32([2048 / 1900, 0]), [1900, 148])
        more = logits[:148], 1 - labels[:148]
        columns = [*map(np.concatenate, zip(columns, more)), weights]
    made = [tuple(x[i : i + 512] for x in columns) for i in range(0, len(columns[0]), 512)]
    held_out = Batches(lambda number, each: made[number], len(made), whole=padded)
    callback = EvaluateLabels(model, Config(batch_eval=512), held_out, ALONE, [])
    callback.set_model(model)
    for _ in range(2):
        callback.on_epoch_end(0, logs := {})
    expected = mean_average_precision(labels, logits)
    assert logs["val_average_precision"] == pytest.approx(expected, rel=1e-6)
    terms = np.logaddexp(0, logits) - labels * logits
    assert logs["val_loss"] == pytest.approx(np.nansum(terms, axis=-1).mean(), rel=1e-5)
