"""Self-distillation equals formulas in NumPy: its loss, the teacher's average, and the center."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from tests.reference import gelu, log_softmax, softmax
from vit_keras.config import Config, DinoConfig, ModelConfig, OptimizerConfig, PretextConfig
from vit_keras.models import VisionTransformer, copy_encoder, pretext_model, with_image_size
from vit_keras.models.pretext import with_shared_layers
from vit_keras.training.loop import compile_model

SIZES = {"local_crops": 3, "local_size": 4, "prototypes": 7, "head_hidden_size": 9}
SIZES |= {"bottleneck_size": 6, "temperature_warmup": 0.5, "frozen_prototypes": 0.0}
DINO = DinoConfig(**SIZES, teacher_momentum=0.6, center_momentum=0.8)
STEPS = 8


def encoder(num_layers=1, **fields):
    fields = {"classifier": "gap", "seed": 3, **fields}
    return VisionTransformer((8, 12), 4, 12, num_layers, 3, 20, 5, **fields)


def model_of(rng, dino=DINO, parts=1, **fields):
    """A model with random weights, whose center and schedules have moved, and its layer."""
    model = pretext_model(encoder(**fields), PretextConfig("dino", dino=dino), 1, STEPS, parts)
    layer = model.get_layer("self_distillation")
    for part in (layer.teacher, layer.student, layer.teacher_head, layer.student_head):
        randomize(part, rng)
    layer.center.assign(0.1 * rng.normal(size=layer.center.shape))
    return model, layer


def views(rng, batch=4):
    shapes = (batch, 2, 8, 12, 3), (batch, 3, 4, 4, 3)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def unit(x, axis):
    return x / np.sqrt((x**2).sum(axis=axis, keepdims=True))


def head_of(head, x):
    """The head in NumPy, by its weights."""
    for i, dense in enumerate(head.dense_layers):
        x = x @ to_numpy(dense.kernel).astype("float64") + to_numpy(dense.bias)
        x = gelu(x, "exact") if i < 2 else x
    return unit(x, -1) @ unit(to_numpy(head.kernel).astype("float64"), 0)


def outputs_of(encoder, head, images):
    """Outputs `(B, n, K)` for views `(B, n, H, W, C)`, one image at a time."""
    return np.array([head_of(head, encoder.predict_on_batch(image)) for image in images])


def expected_outputs(layer, images, temperature):
    """Losses and entropies, pair by pair, as in Algorithm 1 of the paper."""
    teacher = outputs_of(layer.teacher, layer.teacher_head, images[0])
    targets = softmax((teacher - to_numpy(layer.center)) / temperature)
    student = [
        outputs_of(layer.student, layer.student_head, images[0]),
        outputs_of(layer.local_student, layer.student_head, images[1]),
    ]
    student = log_softmax(np.concatenate(student, axis=1) / 0.1)
    pairs = [(t, s) for t in range(2) for s in range(5) if t != s]
    losses = [-(targets[:, t] * student[:, s]).sum(axis=-1) for t, s in pairs]
    entropies = -(targets * np.log(targets)).sum(axis=-1).mean(axis=1)
    return np.stack([np.mean(losses, axis=0), entropies], axis=-1), teacher


@pytest.mark.on("torch")
@pytest.mark.parametrize("classifier", ["token", "map"])
def test_the_loss_is_that_of_algorithm_1(rng, classifier):
    model, layer = model_of(rng, classifier=classifier)
    images = views(rng)
    for calls, temperature in ((0, 0.04), (2, 0.055), (7, 0.07)):
        layer.calls.assign(calls)
        expected, _ = expected_outputs(layer, images, temperature)
        assert expected[:, 0].std() > 0.1
        assert_close(model(images), expected)
    assert int(layer.calls) == 7  # only training counts


def compiled(rng, parts=1, rate=0.05, dino=DINO, name="adamw", **fields):
    model, layer = model_of(rng, dino, parts, **fields)
    config = Config(
        total_steps=STEPS,
        batch=4,
        model=ModelConfig(None, (8, 12), 3, 4, 12, 1, 3, 20, classifier="gap"),
        pretext=PretextConfig("dino", dino=dino),
        optimizer=OptimizerConfig(name, rate, accumulation_steps=parts),
    )
    compile_model(model, config)
    return model, layer


def train(model, images):
    targets = np.zeros((len(images[0]), 2), "float32")
    logs = model.train_on_batch(images, targets, return_dict=True)
    model.reset_metrics()
    return logs


def state(variables):
    return [to_numpy(variable.value) for variable in variables]


@pytest.mark.on("torch")
@pytest.mark.parametrize("parts", [1, 2])
def test_teacher_and_center_are_averages_over_updates(rng, parts):
    """Each update starts with the averages of what the updates before it have left."""
    model, layer = compiled(rng, parts)
    teachers, students = zip(*layer.variable_pairs)
    expected, center = state(teachers), to_numpy(layer.center.value).astype("float64")
    students_left, means = None, []
    for update in range(4):
        if update:
            momentum = 1 - (1 - 0.6) * (1 + np.cos(np.pi * (update - 1) / STEPS)) / 2
            expected = [momentum * t + (1 - momentum) * s for t, s in zip(expected, students_left)]
            center = 0.8 * center + 0.2 * np.mean(means, axis=0)
        means = []
        for _ in range(parts):
            images = views(rng)
            before = state(students)
            logs = train(model, images)
            for one, two in zip(state(teachers), expected):
                assert_close(one, two)
            assert_close(layer.center.value, center)
            means.append(outputs_of(layer.teacher, layer.teacher_head, images[0]).mean((0, 1)))
        students_left = state(students)
        assert np.abs(before[0] - students_left[0]).max() > 1e-3
        assert np.isfinite(logs["loss"]) and 0 < logs["teacher_entropy"] < np.log(7)


# Losses and entropies of four updates, and then the norms of the teacher's weights and the center.
EVERYWHERE = [
    *(2.702637, 0.5355629, 0.5578327, 0.0002429607),
    *(0.1268068, 0.003811679, 0.1331937, 0.09606264),
    *(11.89666, 0.4111275),
]


def test_every_backend_takes_the_same_updates():
    model, layer = compiled(np.random.default_rng(5), name="sgd")
    rng = np.random.default_rng(6)
    logs = [train(model, views(rng)) for _ in range(4)]
    numbers = [number for log in logs for number in (log["loss"], log["teacher_entropy"])]
    weights = np.concatenate([np.ravel(w) for w in state(layer.teacher.weights)])
    numbers += [np.linalg.norm(weights), np.linalg.norm(to_numpy(layer.center.value))]
    np.testing.assert_allclose(numbers, EVERYWHERE, rtol=1e-3, atol=1e-4)


@pytest.mark.on("torch")
def test_the_student_trains_and_the_encoder_is_the_teacher():
    base = encoder()
    model = pretext_model(base, PretextConfig("dino", dino=DINO), 1, STEPS)
    layer = model.get_layer("self_distillation")
    for teacher, student in layer.variable_pairs:
        np.testing.assert_array_equal(to_numpy(teacher.value), to_numpy(student.value))
    students = [*layer.student.weights, *layer.student_head.weights]
    assert {id(v) for v in model.trainable_variables} == {id(v) for v in students}
    held = {id(v) for v in base.weights if not v.path.startswith("head")}
    assert held == {id(v) for v in layer.teacher.weights}


@pytest.mark.on("torch")
def test_prototypes_train_late_and_the_teacher_is_what_remains_in_a_file(rng, tmp_path):
    dino = dataclasses.replace(DINO, frozen_prototypes=0.25)  # of 8 updates
    model, layer = compiled(rng, dino=dino, dropout_rate=0.2)
    values = []
    for _ in range(4):
        values.append(to_numpy(layer.student_head.kernel.value))
        train(model, views(rng))
    np.testing.assert_array_equal(values[0], values[2])
    assert np.abs(values[3] - values[2]).max() > 1e-3
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    images = views(rng)
    np.testing.assert_array_equal(to_numpy(again(images)), to_numpy(model(images)))
    assert again.get_layer("self_distillation").config == dino
    assert len(again.trainable_variables) == len(model.trainable_variables)
    for trained in (model, again):
        copy = weights_by_path(copy_encoder(trained, encoder()))
        for path, value in weights_by_path(layer.teacher).items():
            np.testing.assert_array_equal(copy[path], value)


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "places",
    [
        {"position_embedding": "learned"},
        {"position_embedding": "learned_2d", "classifier": "token"},
        {"position_embedding": "sincos2d"},
        {"position_embedding_at": "shared", "classifier": "token"},
    ],
)
def test_local_views_see_interpolated_positions(rng, places):
    """A learned table is interpolated as `with_image_size` does it; a fixed one as well."""
    base = randomize(encoder(num_layers=2, **places), rng)
    images = rng.normal(size=(2, 12, 16, 3)).astype("float32")
    outputs = to_numpy(with_shared_layers(base, (12, 16))(images))
    if "sincos2d" not in places.values():
        assert_close(outputs, with_image_size(base, (12, 16), "bicubic")(images))
    same = images[:, :8, :12]
    assert_close(with_shared_layers(base, (8, 12))(same), base(same))
    assert np.abs(outputs - to_numpy(base(same))).max() > 1e-2


@pytest.mark.on("torch")
@pytest.mark.parametrize("kind", ["relative", "rope2d"])
def test_positions_in_the_attention_have_no_other_size(kind):
    base = encoder(position_embedding=kind)
    for make in (
        lambda: with_shared_layers(base, (8, 8)),
        lambda: pretext_model(base, PretextConfig("mae")),
    ):
        with pytest.raises(ValueError, match="one grid of patches.*with encoderblock_0$"):
            make()
