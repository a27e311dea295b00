"""Students learn from a teacher by the published formulas, on the images that they see."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from tests.reference import log_softmax, softmax
from vit_keras import models
from vit_keras.config import Config, DistillConfig
from vit_keras.support.tasks import Task
from vit_keras.training import Distillation, FeatureDistance
from vit_keras.training.loop import compile_model

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "mlp_dim": 16}


def vit(rng, image_size=8, patch_size=4, num_classes=5, preprocessing=None, **changes):
    arguments = {**SIZES, "channels": 1, "num_classes": num_classes, **changes}
    model = randomize(models.VisionTransformer(image_size, patch_size, **arguments), rng)
    model.preprocessing = preprocessing or models.Preprocessing()
    return model


@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_losses_equal_the_formulas(rng, kind, weight=0.3, smoothing=0.1):
    targets, logits = softmax(rng.normal(size=(6, 5))), rng.normal(size=(6, 3, 5))
    labels = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
    loss = Distillation(labels, kind, weight, temperature=3.0, reduction="none")
    z, s, t = logits.transpose(1, 0, 2)
    of_labels = -((1 - smoothing) * targets + smoothing / 5) * log_softmax(z)
    theirs = {
        "soft": 9 * softmax(t / 3) * (log_softmax(t / 3) - log_softmax(s / 3)),
        "hard": -np.eye(5)[t.argmax(axis=-1)] * log_softmax(s),
    }
    expected = ((1 - weight) * of_labels + weight * theirs[kind]).sum(axis=-1)
    computed = to_numpy(loss(targets.astype("float32"), logits.astype("float32")))
    assert_close(computed, expected)
    again = Distillation.from_config(loss.get_config())
    assert (again.weight, again.labels.get_config()) == (weight, labels.get_config())


@pytest.mark.parametrize("tokens", [1, 7])
def test_a_distance_of_features_equals_the_formula(rng, tokens):
    features = rng.normal(size=(4, 2, tokens, 6))
    s, t = features.transpose(1, 0, 2, 3)
    cosine = (s * t).sum(-1) / np.linalg.norm(s, axis=-1) / np.linalg.norm(t, axis=-1)
    each = 1 - cosine
    expected = each[:, 0] if tokens == 1 else (each[:, 0] + each[:, 1:].mean(axis=1)) / 2
    loss = FeatureDistance(reduction="none")
    computed = to_numpy(loss(np.zeros((4, 1)), features.astype("float32")))
    assert_close(computed, expected, rtol=1e-5)


def test_the_teacher_sees_the_students_images_and_stays_as_it_is(rng):
    student = vit(rng, classifier="distilled", dropout_rate=0.4)
    pixels = models.Preprocessing((0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    teacher = vit(rng, 16, channels=3, dropout_rate=0.4, preprocessing=pixels, classifier="gap")
    before, ours = weights_by_path(teacher), weights_by_path(student)
    images = rng.uniform(-1, 1, (3, 8, 8, 1)).astype("float32")
    theirs = pixels.normalize(np.repeat(127.5 * images + 127.5, 3, axis=-1)).astype("float32")
    theirs = keras.ops.image.resize(theirs, (16, 16), antialias=True)
    expected = to_numpy(teacher(theirs))
    model = models.distillation_model(student, teacher, DistillConfig("teacher"), seed=1)
    outputs = to_numpy(model(images))
    assert_close(outputs[:, 2], expected)
    assert_close(outputs[:, :2].mean(axis=1), student(images))
    assert not np.array_equal(outputs[:, 0], outputs[:, 1])
    assert_close(to_numpy(model(images, training=True))[:, 2], expected)

    labels = keras.losses.CategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), Distillation(labels, "soft", 0.5))
    model.fit(images, np.eye(5, dtype="float32")[:3], verbose=0)
    for path, value in weights_by_path(teacher).items():
        np.testing.assert_array_equal(value, before[path])
    copy = models.copy_student(model, vit(rng, classifier="distilled"))
    for path in ("embedding/kernel", "head/kernel", "head_dist/kernel"):
        assert np.abs(weights_by_path(copy)[path] - ours[path]).max() > 1e-4
        np.testing.assert_array_equal(weights_by_path(copy)[path], weights_by_path(student)[path])


@pytest.mark.nightly_on("jax")
def test_features_are_projected_and_patches_lie_on_the_students_grid(rng, grid=4):
    student = vit(rng, num_classes=None, classifier="token")
    teacher = vit(rng, 16, 16 // grid, hidden_size=18, classifier="gap")
    config = DistillConfig("teacher", kind="features", patches=True)
    model = models.distillation_model(student, teacher, config, seed=1)
    images = rng.uniform(-1, 1, (3, 8, 8, 1)).astype("float32")
    ours, theirs = to_numpy(model(images)).transpose(1, 0, 2, 3)
    assert ours.shape == theirs.shape == (3, 1 + 2 * 2, 18)
    kernel, bias = map(to_numpy, model.get_layer("projection").weights)
    assert_close(ours[:, 0], to_numpy(student(images)) @ kernel + bias)
    inner = lambda name: teacher.get_layer(name).output
    tokens, pooled = keras.Model(teacher.input, [inner("encoder_norm"), inner("gap")])(
        keras.ops.image.resize(images, (16, 16), antialias=True)
    )
    assert_close(theirs[:, 0], pooled)
    maps = to_numpy(tokens).reshape(3, grid, grid, 18)
    expected = to_numpy(keras.ops.image.resize(maps, (2, 2), antialias=True))
    assert_close(theirs[:, 1:], expected.reshape(3, 4, 18))


@pytest.mark.once
def test_models_that_do_not_fit_each_other_are_named(rng):
    pair = [vit(rng, num_classes=2), vit(rng, num_classes=2)]
    pair[0].class_names, pair[1].class_names = ("cat", "dog"), ("dog", "cat")
    of_labels = vit(rng)
    of_labels.task = Task("labels")
    for student, teacher, message in (
        (vit(rng), vit(rng, num_classes=4), "5 classes in the data set, 4 classes in a t"),
        (*pair, r"2 classes \(cat, dog\) .* 2 classes \(dog, cat\) in"),
        (vit(rng), of_labels, "5 classes in a teacher of labels"),
    ):
        with pytest.raises(ValueError, match=message):
            models.distillation_model(student, teacher, DistillConfig("t"))
    assert models.teacher_variables(vit(rng)) == []


@pytest.mark.once
def test_the_loss_of_rare_classes_keeps_their_shares(rng):
    student = vit(rng)
    student.task = Task("classes", shares=(0.6, 0.1, 0.1, 0.1, 0.1))
    distill = DistillConfig("teacher", weight=0.25, temperature=1.0)
    config = Config(loss="logit_adjusted", distill=distill)
    model = models.distillation_model(student, vit(rng), distill)
    compile_model(model, config)
    targets = np.eye(5, dtype="float32")[rng.integers(0, 5, 6)]
    z, s, t = rng.normal(size=(3, 6, 5))
    soft = (softmax(t) * (log_softmax(t) - log_softmax(s))).sum(axis=-1)
    adjusted = (targets * log_softmax(z + np.log(student.task.shares))).sum(axis=-1)
    logits = keras.ops.convert_to_tensor(np.stack([z, s, t], axis=1).astype("float32"))
    computed = to_numpy(model.loss.call(keras.ops.convert_to_tensor(targets), logits))
    assert_close(computed, 0.25 * soft - 0.75 * adjusted, rtol=2e-5)


@pytest.mark.once
def test_a_softmax_at_the_teachers_end_is_taken_off(rng):
    student, teacher = vit(rng), vit(rng, classifier_activation="softmax")
    images = rng.uniform(-1, 1, (3, 8, 8, 1)).astype("float32")
    expected = np.log(to_numpy(teacher(images)))
    model = models.distillation_model(student, teacher, DistillConfig("teacher"))
    logits = to_numpy(model(images))[:, 2]
    assert_close(log_softmax(logits), expected, rtol=2e-6)


@pytest.mark.on("torch")
def test_keras_optimizers_take_the_gradient_of_each_update_alone(rng):
    """Keras zeroes parameters by their paths, which student and teacher share."""
    images, targets = rng.uniform(-1, 1, (6, 8, 8, 1)), np.eye(5)[rng.integers(0, 5, 6)]
    labels = keras.losses.CategoricalCrossentropy(from_logits=True)

    def trained(*rates):
        student, teacher = (vit(np.random.default_rng(seed)) for seed in (1, 2))
        model = models.distillation_model(student, teacher, DistillConfig("teacher"), seed=1)
        model.compile(keras.optimizers.SGD(), Distillation(labels, "soft", 0.5))
        for rate in rates:
            model.optimizer.learning_rate = rate
            model.train_on_batch(images.astype("float32"), targets.astype("float32"))
        return weights_by_path(student)

    expected = trained(0.1)
    for path, value in trained(0.0, 0.1).items():  # the first update changes nothing
        assert_close(value, expected[path], rtol=2e-6, name=path)
