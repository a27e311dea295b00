"""Pretext models equal NumPy in their corruption, order, loss, gradients, teachers and centers."""

import dataclasses

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from tests.reference import gelu, log_softmax, softmax
from vit_keras import layers
from vit_keras.config import Config, DinoConfig, ModelConfig, OptimizerConfig, PretextConfig
from vit_keras.models import (
    VisionTransformer,
    copy_encoder,
    intermediates,
    pretext_model,
    with_image_size,
)
from vit_keras.models.pretext import with_shared_layers
from vit_keras.training.loop import compile_model

PATCHES, VISIBLE = 6, 2
DECODER = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}


def encoder(num_layers=2, **fields):
    fields = {"classifier": "gap", "seed": 3, **fields}
    return VisionTransformer((8, 12), 4, 12, num_layers, 3, 20, 5, **fields)


def sources(rng, count=4):
    """Draws sources that mask, swap and keep, and sources as MAE has them, which keep `VISIBLE`."""
    mixed = rng.integers(0, PATCHES + 1, (count, PATCHES)).astype("int32")
    masked = np.full((count, PATCHES), PATCHES, "int32")
    for row in masked:
        kept = rng.permutation(PATCHES)[:VISIBLE]
        row[kept] = kept
    return mixed, masked


def test_embeddings_are_replaced_by_the_mask_and_each_other(rng):
    x, (source, _) = rng.normal(size=(4, PATCHES, 5)).astype("float32"), sources(rng)
    layer = layers.CorruptTokens(seed=1)
    corrupted = to_numpy(layer(x, source))
    mask = to_numpy(layer.mask)[0, 0]
    assert 0.005 < mask.std() < 0.06
    for b in range(4):
        for n in range(PATCHES):
            expected = mask if source[b, n] == PATCHES else x[b, source[b, n]]
            np.testing.assert_array_equal(corrupted[b, n], expected)


@pytest.mark.parametrize("before", [0, 1])
def test_visible_patches_are_taken_and_put_back(rng, before):
    x = rng.normal(size=(4, before + PATCHES, 5)).astype("float32")
    source = sources(rng)[1]
    take, restore = layers.TakeVisible(VISIBLE), layers.RestoreTokens(VISIBLE, seed=1)
    taken = to_numpy(take(x, source))
    restored = to_numpy(restore(taken, source))
    mask = to_numpy(restore.mask)[0, 0]
    assert taken.shape == (4, before + VISIBLE, 5)
    for b in range(4):
        kept = [n for n in range(PATCHES) if source[b, n] == n]
        expected = [*x[b, :before], *(x[b, before + n] for n in kept)]
        np.testing.assert_array_equal(taken[b], expected)
        whole = [x[b, before + n] if n in kept else mask for n in range(PATCHES)]
        np.testing.assert_array_equal(restored[b], [*x[b, :before], *whole])


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    ("classifier", "places"),
    [
        ("gap", {}),
        ("token", {"position_embedding": "rope2d"}),
        ("token", {"position_embedding_at": "shared"}),
    ],
)
def test_predictions_are_of_the_final_patch_tokens(rng, classifier, places):
    """Without corruption, predictions read the encoder's tokens with every position embedding."""
    base = encoder(classifier=classifier, **places)
    model = pretext_model(base, PretextConfig("masked_patch", target="patch"), seed=1)
    randomize(model, rng)
    images = rng.normal(size=(2, 8, 12, 3)).astype("float32")
    source = np.tile(np.arange(PATCHES, dtype="int32"), (2, 1))
    tokens = to_numpy(intermediates(base)(images)["encoder_norm"])[:, classifier == "token" :]
    kernel, bias = map(to_numpy, model.get_layer("prediction").weights)
    outputs = to_numpy(model([images, source]))
    assert_close(outputs, tokens @ kernel + bias)
    source[0, 3] = PATCHES  # the masked patch's pixels no longer count, all see the mask
    masked = to_numpy(model([images, source]))
    assert (np.abs(masked[0] - outputs[0]).max(axis=-1) > 1e-4).all()
    assert_close(masked[1], outputs[1])
    images[0, 4:, :4] += 1.0  # patch 3 of 2 x 3
    assert_close(model([images, source]), masked)


@pytest.mark.on("torch")
@pytest.mark.parametrize("classifier", ["token", "gap"])
def test_mae_sees_what_is_visible_alone_and_is_saved(rng, classifier, tmp_path):
    config = PretextConfig("mae", corrupt=2 / 3, **DECODER)
    model = randomize(pretext_model(encoder(classifier=classifier), config, seed=1), rng)
    source = sources(rng)[1]
    images = rng.normal(size=(4, 8, 12, 3)).astype("float32")
    outputs = to_numpy(model([images, source]))
    assert outputs.shape == (4, PATCHES, 48)
    assert model.get_layer("visible").output.shape[1] == VISIBLE + (classifier == "token")
    for place in range(PATCHES):
        changed = images.copy()
        row, column = divmod(place, 3)
        changed[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.0
        moved = np.abs(to_numpy(model([changed, source])) - outputs).max(axis=(1, 2))
        np.testing.assert_array_equal(moved > 1e-4, source[:, place] == place)
        assert (moved[source[:, place] != place] < 1e-5).all()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(to_numpy(again([images, source])), outputs)


def batch_for(rng, config):
    """Draws images, sources, targets and weights in the shapes of the pipeline."""
    count, width = config.pretext.outputs((4, 4), 3)
    source = sources(rng)[config.pretext.objective == "mae"]
    images = rng.normal(size=(4, 8, 12, 3)).astype("float32")
    if config.pretext.predicts_colors:
        targets = rng.integers(0, width, (4, PATCHES * count)).astype("int32")
    else:
        targets = rng.normal(size=(4, PATCHES, width)).astype("float32")
    weights = np.zeros((4, PATCHES), "float32")
    for row in weights:
        row[rng.permutation(PATCHES)[:3]] = 2.0
    return (images, source), targets, np.repeat(weights, count, axis=1)


CASES = [
    ("mae", None),
    pytest.param("masked_patch", "mean_color", marks=pytest.mark.nightly_on("jax")),
    *(
        pytest.param("masked_patch", target, marks=pytest.mark.on("torch"))
        for target in ("colors_4x4", "patch")
    ),
]


@pytest.mark.parametrize(("objective", "target"), CASES)
def test_the_loss_is_of_corrupted_patches_and_trains_the_encoder(rng, objective, target):
    corrupt = {"corrupt": 2 / 3} if objective == "mae" else {}
    config = Config(
        total_steps=3,
        model=ModelConfig(None, (8, 12), 3, 4, 12, 2, 3, 20, classifier="gap"),
        pretext=PretextConfig(objective, target, **corrupt, **DECODER),
        optimizer=OptimizerConfig(learning_rate=0.01),
    )
    base = encoder()
    model = pretext_model(base, config.pretext, seed=1)
    randomize(model, rng)
    compile_model(model, config)
    inputs, targets, weights = batch_for(rng, config)
    outputs = to_numpy(model(list(inputs))).astype("float64")
    if config.pretext.predicts_colors:
        losses = np.log(np.exp(outputs).sum(-1))
        losses -= np.take_along_axis(outputs, targets[..., None], -1)[..., 0]
    else:
        losses = ((outputs - targets) ** 2).mean(-1)
    metrics = model.test_on_batch(inputs, targets, weights, return_dict=True)
    assert metrics["loss"] == pytest.approx(losses[weights > 0].mean(), rel=1e-5)
    if config.pretext.predicts_colors:
        right = (outputs.argmax(-1) == targets)[weights > 0]
        assert metrics["accuracy"] == pytest.approx(right.mean(), abs=1e-6)
    variables = {v.path: v for v in [*model.trainable_variables, *base.weights]}
    before = {path: to_numpy(v.value) for path, v in variables.items()}
    model.train_on_batch(inputs, targets, weights)
    still = [p for p, v in variables.items() if np.array_equal(before[p], to_numpy(v.value))]
    assert [p for p in still if not p.endswith("key/bias")] == ["head/kernel", "head/bias"]


SIZES = {"local_crops": 3, "local_size": 4, "prototypes": 7, "head_hidden_size": 9}
SIZES |= {"bottleneck_size": 6, "temperature_warmup": 0.5, "frozen_prototypes": 0.0}
DINO = DinoConfig(**SIZES, teacher_momentum=0.6, center_momentum=0.8)
STEPS = 8


def model_of(rng, dino=DINO, parts=1, **fields):
    """A model with random weights, whose center and schedules have moved, and its layer."""
    model = pretext_model(encoder(1, **fields), PretextConfig("dino", dino=dino), 1, STEPS, parts)
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
def test_the_teacher_begins_as_the_student():
    model = pretext_model(encoder(1), PretextConfig("dino", dino=DINO), 1, STEPS)
    layer = model.get_layer("self_distillation")
    for teacher, student in layer.variable_pairs:
        np.testing.assert_array_equal(to_numpy(teacher.value), to_numpy(student.value))


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
        copy = weights_by_path(copy_encoder(trained, encoder(1)))
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
    base = encoder(1, position_embedding=kind)
    for make in (
        lambda: with_shared_layers(base, (8, 8)),
        lambda: pretext_model(base, PretextConfig("mae")),
    ):
        with pytest.raises(ValueError, match="one grid of patches.*with encoderblock_0$"):
            make()
