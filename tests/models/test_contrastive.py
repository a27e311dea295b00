"""Two towers trained on pairs of images and texts, beside transformers' and OpenCLIP's losses."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from tests.peers import peer
from vit_keras import evaluation, models, training

IDS = np.array([[1, 5, 9], [1, 7, 9], [1, 3, 9], [1, 5, 9]])


def new_towers(rng, bias=None):
    image = models.VisionTransformer(8, 4, 12, 1, 3, 20, num_classes=6, head_use_bias=False)
    text = models.TextTransformer(10, 5, 12, 1, 3, 20, projection_dim=6)
    image, text = (randomize(tower, rng, scale=0.3) for tower in (image, text))
    return models.ImageText(models.with_unit_length(image), text, 1.5, bias)


@pytest.mark.on("torch")
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_losses_are_the_published_ones(rng, kind):
    peer("transformers")
    import torch
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    logits = rng.normal(size=(5, 5)).astype("float32")
    theirs = torch.from_numpy(logits)
    if kind == "softmax":
        expected = image_text_contrastive_loss(theirs.t())
    else:
        row = {"image_features": torch.eye(5), "text_features": theirs.t()}
        loss = peer("open_clip").loss.SigLipLoss()
        expected = loss(**row, logit_scale=1.0, logit_bias=0.0)
    actual = training.ContrastiveLoss(kind)(np.arange(5), logits)
    assert_close(actual, expected.numpy(), rtol=1e-6)


def test_equal_texts_belong_to_each_other(rng):
    """Eq. 2 and 3 of arXiv 2204.03610, image by image."""
    logits, numbers = rng.normal(size=(4, 4)), np.array([0, 1, 2, 0])
    expected = 0.0
    for x in (logits, logits.T):
        logs = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        expected -= sum(logs[i, numbers == n].mean() for i, n in enumerate(numbers)) / 8
    actual = training.ContrastiveLoss()(numbers, logits.astype("float32"))
    assert_close(actual, np.float32(expected), rtol=1e-6)


@pytest.mark.parametrize(
    "bias", [None, pytest.param(-2.0, marks=pytest.mark.nightly_on("jax", "tensorflow"))]
)
def test_pairs_are_learned_in_fit(rng, tmp_path, bias):
    towers = new_towers(rng, bias)
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    model = models.contrastive_model(towers)
    expected = to_numpy(towers.image(images)) @ to_numpy(towers.text(IDS)).T * np.exp(1.5)
    assert_close(model([images, IDS]), expected + (bias or 0), rtol=1e-5)
    loss = training.ContrastiveLoss("softmax" if bias is None else "sigmoid")
    model.compile(keras.optimizers.Adam(0.01), loss)
    frozen = [to_numpy(weight) for weight in towers.image.weights]
    towers.image.trainable = False  # as in LiT
    model.compile(keras.optimizers.Adam(0.01), loss)
    history = model.fit([images, IDS], np.array([0, 1, 2, 0]), 4, epochs=30, verbose=0)
    losses = history.history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    for weight, before in zip(towers.image.weights, frozen, strict=True):
        np.testing.assert_array_equal(to_numpy(weight), before)
    trained = models.towers_of(model)
    assert trained.logit_scale != 1.5 and (trained.logit_bias is None) == (bias is None)
    assert_close(trained.logits(images, IDS), model([images, IDS]), rtol=1e-6)
    model.save(tmp_path / "both.keras")
    again = models.towers_of(keras.saving.load_model(tmp_path / "both.keras"))
    assert_close(again.logits(images, IDS), model([images, IDS]), rtol=1e-6)


@pytest.mark.once
def test_training_keeps_the_scale_of_a_clip_below_100(rng):
    towers = new_towers(rng)
    towers.image.trainable = towers.text.trainable = False
    model = models.contrastive_model(towers)
    model.compile(keras.optimizers.SGD(1e3), training.ContrastiveLoss())
    images = rng.normal(size=(4, 8, 8, 3)).astype("float32")
    best = to_numpy(model([images, IDS])).argmax(axis=0)
    model.fit([images[best], IDS], np.arange(4), 4, epochs=3, verbose=0)
    assert 0 <= models.towers_of(model).logit_scale <= np.log(100) + 1e-6


@pytest.mark.once
def test_recall_is_that_of_open_clip(rng):
    peer("open_clip")
    import torch
    from open_clip_train.train import get_clip_metrics

    images, texts = rng.normal(size=(2, 40, 5)).astype("float32")
    texts += images
    theirs = get_clip_metrics(*map(torch.from_numpy, (images, texts)), torch.tensor(1.0))
    ours = evaluation.retrieval_recall(images @ texts.T)
    assert ours == pytest.approx({name: theirs[name] for name in ours}) and min(ours.values()) > 0
