"""The losses and metrics of each kind of label equal formulas, scikit-learn's and transformers'."""

import types

import keras
import numpy as np
import pytest
import sklearn.metrics as reference
from keras import ops

from tests.helpers import assert_close, to_numpy
from tests.peers import peer
from tests.reference import log_softmax
from vit_keras.config import Config
from vit_keras.data.batches import Batches
from vit_keras.layers.backends import lookup
from vit_keras.models import ImageModel
from vit_keras.support.tasks import VOID, Task
from vit_keras.training import SetPrediction
from vit_keras.training.losses import build_loss
from vit_keras.training.metrics import METRICS, R2, EvaluateLabels
from vit_keras.training.topologies import ALONE

COUNT, OUTPUTS = 12, 3
CLASSES = 5


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


@pytest.mark.parametrize(("loss", "gamma"), [("sigmoid", 0.0), ("focal", 1.5)])
def test_unknown_labels_add_nothing_to_the_loss_or_its_gradient(rng, logits, unknown, loss, gamma):
    labels = rng.integers(0, 2, logits.shape).astype("float32")
    p = 1 / (1 + np.exp(-logits.astype("float64")))
    right, shares = np.where(labels == 1, p, 1 - p), np.array([0.5, 0.2, 0.01])
    weights = np.where(labels == 1, (1 - shares) / shares, 1) if gamma else 1
    terms = -np.log(right) * (1 - right) ** gamma * weights
    expected = np.where(unknown, 0, terms).sum(axis=-1).mean()
    balance = "weights" if gamma else "none"
    config = Config(task="labels", loss=loss, focal_gamma=gamma or 2.0, balance=balance)
    task, targets = Task("labels", shares=tuple(shares)), with_unknown(labels, unknown)
    assert of(config, task, targets, logits) == pytest.approx(expected, rel=1e-4)
    head = keras.layers.Dense(OUTPUTS, name="head")
    model = keras.Sequential([keras.Input((OUTPUTS,)), head])
    model.compile("sgd", build_loss(config, task))
    model.train_on_batch(logits, targets)
    assert np.isfinite(to_numpy(head.kernel)).all()


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_a_focal_loss_of_sure_answers_has_a_finite_gradient(task):
    head = keras.layers.Dense(2, use_bias=False, kernel_initializer=keras.initializers.Identity())
    model = keras.Sequential([keras.Input((2,)), head])
    config = Config(task=task, loss="focal", focal_gamma=0.5)
    model.compile(keras.optimizers.SGD(1.0), build_loss(config, Task(task)))
    sure, right = np.array([[40.0, -120.0]], "float32"), np.array([[1.0, 0.0]], "float32")
    assert model.train_on_batch(sure, right) == pytest.approx(0)
    np.testing.assert_allclose(to_numpy(head.kernel), np.eye(2), atol=1e-6)


@pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
def test_numbers_that_are_unknown_add_nothing(rng, logits, unknown, loss):
    numbers = rng.normal(size=logits.shape).astype("float32")
    error, known = np.abs(logits - numbers), ~unknown
    huber = np.where(error <= 1, error**2 / 2, error - 0.5)
    terms = {"mse": error**2, "mae": error, "huber": huber}[loss]
    expected = ((terms * known).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1)).mean()
    value = of(Config(loss=loss), Task("numbers"), with_unknown(numbers, unknown), logits)
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("loss", ["softmax", "focal", "logit_adjusted"])
def test_rare_classes_weigh_more(rng, logits, loss):
    shares, smoothing = np.array([0.9, 0.09, 0.01]), 0.1 if loss == "softmax" else 0.0
    targets = np.eye(3, dtype="float32")[rng.integers(0, 3, COUNT)]
    targets = 0.7 * targets + 0.3 * targets[::-1]  # mixed
    logs = log_softmax(logits + (np.log(shares) if loss == "logit_adjusted" else 0))
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


@pytest.mark.parametrize(("name", "smoothing"), [("softmax", 0.1), ("sigmoid", 0.0)])
def test_losses_of_classes_equal_the_formulas(rng, name, smoothing):
    """A sigmoid is -log σ(x) for classes in the image and -log σ(-x) for the others."""
    logits = 30 * rng.normal(size=(6, 7))
    targets = rng.dirichlet(np.ones(7), 6)  # as MixUp makes them
    loss = build_loss(Config(loss=name, label_smoothing=smoothing))
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    value = loss(*(ops.convert_to_tensor(x.astype("float32")) for x in (targets, logits)))
    smoothed = targets * (1 - smoothing) + smoothing / 7
    terms = {
        "softmax": -smoothed * log_softmax(logits),
        "sigmoid": targets * np.logaddexp(0, -logits) + (1 - targets) * np.logaddexp(0, logits),
    }
    assert_close(value, terms[name].sum(-1).mean())


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
    # The last one has no positive.
    pairs = [(labels[known[k], k], logits[known[k], k]) for k in range(2)]
    return np.mean([reference.average_precision_score(*pair) for pair in pairs])


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
    labels_of = EvaluateLabels(model, Config(batch_eval=512), held_out, ALONE)
    for _ in range(2):
        logs = labels_of.evaluate()
    expected = mean_average_precision(labels, logits)
    assert logs["val_average_precision"] == pytest.approx(expected, rel=1e-6)
    terms = np.logaddexp(0, logits) - labels * logits
    assert logs["val_loss"] == pytest.approx(np.nansum(terms, axis=-1).mean(), rel=1e-5)


@pytest.fixture
def batch(rng):
    """Logits and masks in which class 3 is neither true nor predicted, and some have no class."""
    logits = 3 * rng.normal(size=(3, 6, 4, CLASSES)).astype("float32")
    logits[..., 3] = -20
    masks = rng.choice([0, 1, 2, 4, VOID], size=(3, 6, 4)).astype("int32")
    masks[1] = VOID  # a whole picture
    return logits, masks


def test_the_loss_is_the_mean_over_the_pixels_that_have_a_class(batch):
    logits, masks = batch
    each = []
    for picture, mask in zip(log_softmax(logits.astype("float64")), masks):
        known = mask != VOID
        each.append(-picture[known, mask[known]].mean() if known.any() else 0.0)
    loss = build_loss(Config(task="masks"), Task("masks"))
    loss = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(loss(masks, logits)) == pytest.approx(np.mean(each), rel=1e-5)
    weights = np.array([0.5, 1.0, 2.0])
    weighed = float(loss(masks, logits, sample_weight=weights))
    assert weighed == pytest.approx((weights * each).mean(), rel=1e-5)


def test_the_metrics_equal_those_of_scikit_learn_over_batches(batch):
    logits, masks = batch
    known = masks != VOID
    true, predicted = masks[known], logits.argmax(axis=-1)[known]
    expected = {
        "miou": reference.jaccard_score(true, predicted, labels=[0, 1, 2, 4], average="macro"),
        "pixel_accuracy": (true == predicted).mean(),
    }
    for metric in METRICS["masks"](CLASSES):
        metric = type(metric).from_config(metric.get_config())
        for place in range(3):
            metric.update_state(masks[place : place + 1], logits[place : place + 1])
        assert float(metric.result()) == pytest.approx(expected[metric.name], abs=1e-6)
        metric.reset_state()
        weights = np.array([1.0, 1.0, 0.0])  # padding weighs nothing
        metric.update_state(masks, logits, sample_weight=weights)
        one = type(metric).from_config(metric.get_config())
        one.update_state(masks[:2], logits[:2])
        assert float(metric.result()) == pytest.approx(float(one.result()), abs=1e-6)


def draw_boxes(rng, batch=3, tokens=7, classes=4, objects=5):
    """Targets of 0 to M objects, in any order with rows of no object, and predictions."""
    centers, sizes = rng.uniform(0.2, 0.8, (2, batch, objects, 2))
    labels = rng.integers(0, classes, (batch, objects))
    labels[rng.uniform(size=labels.shape) < 0.4] = -1
    labels[0] = -1  # an image without objects
    y_true = np.concatenate([labels[..., None], centers, sizes * 0.5], axis=-1)
    boxes = rng.uniform(0.1, 0.6, (batch, tokens, 4))
    y_pred = np.concatenate([rng.normal(size=(batch, tokens, classes + 1)), boxes], axis=-1)
    return y_true.astype("float32"), y_pred.astype("float32")


def by_transformers(y_true, y_pred, weights):
    """The loss and its gradient by transformers, on torch."""
    torch = pytest.importorskip("torch")
    peer("transformers")
    from transformers.loss.loss_for_object_detection import ForObjectDetectionLoss

    costs = dict(zip(("class_cost", "bbox_cost", "giou_cost", "eos_coefficient"), weights))
    costs |= {"bbox_loss_coefficient": weights[1], "giou_loss_coefficient": weights[2]}
    config = types.SimpleNamespace(**costs, num_labels=y_pred.shape[-1] - 5, auxiliary_loss=False)
    outputs = torch.from_numpy(y_pred).requires_grad_()
    objects = [torch.from_numpy(rows[rows[:, 0] >= 0]) for rows in y_true]
    labels = [{"class_labels": each[:, 0].long(), "boxes": each[:, 1:]} for each in objects]
    loss, *_ = ForObjectDetectionLoss(outputs[..., :-4], labels, "cpu", outputs[..., -4:], config)
    loss.backward()
    return loss.item(), outputs.grad.numpy()


@pytest.mark.parametrize("weights", [(1.0, 5.0, 2.0, 0.1), (1.0, 2.0, 3.0, 0.5)])
def test_loss_and_gradient_are_those_of_transformers(rng, weights):
    y_true, y_pred = draw_boxes(rng)
    value, gradient = by_transformers(y_true, y_pred, weights)
    loss = SetPrediction(*weights)
    function = lambda outputs: loss(ops.convert_to_tensor(y_true), outputs)
    assert_close(to_numpy(function(ops.convert_to_tensor(y_pred))), value, rtol=1e-5)
    (actual,) = lookup("gradients")(function, [ops.convert_to_tensor(y_pred)])
    assert_close(to_numpy(actual), gradient, rtol=1e-5)
