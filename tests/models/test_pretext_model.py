"""Pretext models equal NumPy in their corruption, order, loss and gradients."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import layers
from vit_keras.config import Config, ModelConfig, OptimizerConfig, PretextConfig
from vit_keras.models import VisionTransformer, intermediates, pretext_model
from vit_keras.training.loop import compile_model

PATCHES, VISIBLE = 6, 2
DECODER = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}


def encoder(classifier="gap", **fields):
    return VisionTransformer((8, 12), 4, 12, 2, 3, 20, 5, classifier, seed=3, **fields)


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
    base = encoder(classifier, **places)
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
    model = randomize(pretext_model(encoder(classifier), config, seed=1), rng)
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
