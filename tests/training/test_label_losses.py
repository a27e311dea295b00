"""The losses and metrics of labels, numbers and rare classes equal their formulas."""

import keras
import numpy as np
import pytest
import sklearn.metrics as reference

from tests.helpers import assert_close, to_numpy
from tests.reference import log_softmax
from vit_keras.config import AugmentConfig, Config, DataConfig
from vit_keras.data.batches import Batches
from vit_keras.models import ImageModel
from vit_keras.support.tasks import Task
from vit_keras.training.distribution import ALONE
from vit_keras.training.losses import build_loss
from vit_keras.training.metrics import R2, EvaluateLabels

COUNT, OUTPUTS = 12, 3
DEV = {"data": DataConfig(dev_percent=10)}


@pytest.fixture
def logits(rng):
    return (2 * rng.normal(size=(COUNT, OUTPUTS))).astype("float32")


@pytest.fixture
def unknown(rng):
    mask = rng.random((COUNT, OUTPUTS)) < 0.3
    mask[0] = True  # nothing is known of the first image
    return mask


def with_unknown(values, unknown):
    return np.where(unknown, np.nan, values).astype("float32")


def of(config, task, targets, outputs):
    return float(to_numpy(build_loss(config, task)(targets, outputs)))


def test_unknown_labels_add_nothing_to_the_loss_or_its_gradient(rng, logits, unknown):
    labels = rng.integers(0, 2, logits.shape).astype("float32")
    terms = np.logaddexp(0, logits) - labels * logits
    expected = np.where(unknown, 0, terms).sum(axis=-1).mean()
    task, targets = Task("labels"), with_unknown(labels, unknown)
    assert of(Config(), task, targets, logits) == pytest.approx(expected, rel=1e-5)
    images = keras.Input((OUTPUTS,))
    head = keras.layers.Dense(OUTPUTS, name="head")
    model = keras.Model(images, head(images))
    model.compile("sgd", build_loss(Config(), task))
    model.train_on_batch(logits, targets)
    assert np.isfinite(to_numpy(head.kernel)).all()


def test_labels_are_weighted_and_focused(rng, logits, unknown):
    labels = rng.integers(0, 2, logits.shape).astype("float32")
    p = 1 / (1 + np.exp(-logits.astype("float64")))
    right = np.where(labels == 1, p, 1 - p)
    shares = np.array([0.5, 0.2, 0.01])
    terms = -np.log(right) * (1 - right) ** 1.5 * np.where(labels == 1, (1 - shares) / shares, 1)
    expected = np.where(unknown, 0, terms).sum(axis=-1).mean()
    config = Config(task="labels", loss="focal", focal_gamma=1.5, balance="weights")
    task = Task("labels", shares=tuple(shares))
    assert of(config, task, with_unknown(labels, unknown), logits) == pytest.approx(
        expected, rel=1e-4
    )


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_numbers_that_are_unknown_add_nothing(rng, logits, unknown, loss):
    numbers = rng.normal(size=logits.shape).astype("float32")
    error = np.abs(logits - numbers)
    terms = {
        "mse": error**2,
        "mae": error,
        "huber": np.where(error <= 1, error**2 / 2, error - 0.5),
    }[loss]
    known = ~unknown
    expected = ((terms * known).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)).mean()
    value = of(Config(loss=loss), Task("numbers"), with_unknown(numbers, unknown), logits)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", ["softmax", "focal", "logit_adjusted"])
def test_rare_classes_weigh_more(rng, logits, loss):
    shares, smoothing = np.array([0.9, 0.09, 0.01]), 0.1 if loss == "softmax" else 0.0
    targets = np.eye(3, dtype="float32")[rng.integers(0, 3, COUNT)]
    targets = 0.7 * targets + 0.3 * targets[::-1]  # mixed
    adjusted = logits + (np.log(shares) if loss == "logit_adjusted" else 0)
    logs = adjusted - np.log(np.exp(adjusted).sum(axis=-1, keepdims=True))
    focus = (1 - np.exp(logs)) ** (2.0 if loss == "focal" else 0.0)
    smoothed = smoothing / 3 + (1 - smoothing) * targets
    weights = (targets / (3 * shares)).sum(axis=-1)
    expected = (weights * -(smoothed * focus * logs).sum(axis=-1)).mean()
    fields = {"loss": loss, "balance": "weights", "label_smoothing": smoothing}
    task = Task("classes", shares=tuple(shares))
    value = of(Config(task="classes", **fields), task, targets.astype("float32"), logits)
    assert value == pytest.approx(expected, rel=1e-4)


def test_r2_equals_scikit_learns_over_batches(rng, unknown):
    true = rng.normal(size=(3, COUNT, OUTPUTS)).astype("float32")
    predicted = (true + 0.5 * rng.normal(size=true.shape)).astype("float32")
    targets = np.stack([with_unknown(batch, unknown) for batch in true])
    metric = R2()
    for y, p in zip(targets, predicted):
        metric.update_state(y, p)
    y, p = (x.reshape(-1, OUTPUTS).astype("float64") for x in (targets, predicted))
    known = ~np.isnan(y)
    each = [reference.r2_score(y[known[:, k], k], p[known[:, k], k]) for k in range(OUTPUTS)]
    assert float(metric.result()) == pytest.approx(np.mean(each), abs=1e-5)


@pytest.mark.once
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"task": "labels", "loss": "softmax"}, "`loss` must be sigmoid or focal with `task` lab"),
        ({"task": "numbers", "balance": "weights"}, "`balance` must be none with `task` numbers"),
        ({"task": "numbers", "label_smoothing": 0.1}, "`label_smoothing` must be 0.0 with `task`"),
        ({"task": "classes", "calibrate": True}, "`data.dev_percent`: the first needs the second"),
        ({"task": "masks", "loss": "softmax"}, "`loss` must be pixels with `task` masks. Rec"),
        (
            {"task": "masks", "calibrate": True, **DEV},
            "`calibrate` must be false with `task` masks",
        ),
        (
            {"task": "masks", "augment": AugmentConfig(mixup_alpha=0.2)},
            "`augment.mixup_alpha` must",
        ),
        ({"task": "labels", "fewshot_every": 1}, "`fewshot_every` must be 0 with `task` labels"),
        (
            {"task": "classes", "loss": "sigmoid", "balance": "weights"},
            "`loss`, `task` and `balance`: weights of classes need loss softmax, focal or",
        ),
    ],
)
def test_what_does_not_fit_a_kind_of_label_is_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        Config(**fields)


def softmax_xent(targets, logits, smoothing):
    targets = targets * (1 - smoothing) + smoothing / targets.shape[-1]
    return -(targets * log_softmax(logits)).sum(-1).mean()


def sigmoid_xent(targets, logits, smoothing):
    """-log σ(x) for classes in the image and -log σ(-x) for the others, summed over the classes."""
    positive, negative = np.logaddexp(0, -logits), np.logaddexp(0, logits)
    return (targets * positive + (1 - targets) * negative).sum(-1).mean()


@pytest.mark.parametrize(
    ("name", "smoothing", "reference"),
    [
        ("softmax", 0.0, softmax_xent),
        ("softmax", 0.1, softmax_xent),
        ("sigmoid", 0.0, sigmoid_xent),
    ],
)
def test_losses_equal_the_formulas(rng, name, smoothing, reference):
    logits = 30 * rng.normal(size=(6, 7))
    targets = rng.dirichlet(np.ones(7), 6)  # as MixUp makes them
    loss = build_loss(Config(loss=name, label_smoothing=smoothing))
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    value = loss(*(keras.ops.convert_to_tensor(x.astype("float32")) for x in (targets, logits)))
    assert_close(value, reference(targets, logits, smoothing))


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
