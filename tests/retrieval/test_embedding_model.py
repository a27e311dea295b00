"""Embeddings are the outputs of a model's own layers, reduced as their names say."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import models, retrieval
from vit_keras.models import HybridViT, ResNet, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def build(classifier="token", **more):
    model = VisionTransformer((16, 24), 8, **SIZES, classifier=classifier, **more)
    return randomize(model, np.random.default_rng(0))


def images_for(model, count=3):
    return np.random.default_rng(1).normal(size=(count, *model.input_shape[1:])).astype("float32")


def outputs_of(model, images):
    outputs = models.intermediates(model)(images)
    return {name: to_numpy(x) for name, x in outputs.items()}


@pytest.mark.parametrize("tokens", ["class", "mean", "patches"])
@pytest.mark.parametrize("layer", [None, "encoderblock_0"])
def test_tokens_of_a_transformer(tokens, layer):
    model = build()
    images = images_for(model)
    x = outputs_of(model, images)[layer or "encoder_norm"]  # (3, 1 + 6, 12)
    expected = {
        "class": x[:, 0],
        "mean": x[:, 1:].mean(axis=1),
        "patches": x[:, 1:].reshape(3, 2, 3, 12),
    }
    embedding = retrieval.embedding_model(model, layer, tokens)
    assert_close(embedding(images), expected[tokens], rtol=2e-6)


@pytest.mark.parametrize("classifier", ["token", "gap", "map", "gap_norm"])
def test_pool_is_what_the_head_reads(classifier):
    model = build(classifier, representation_size=7)
    images = images_for(model)
    expected = outputs_of(model, images)["pre_logits"]
    embedding = retrieval.embedding_model(model)
    assert_close(embedding(images), expected, rtol=2e-6)
    layer = {"token": "token", "gap": "gap", "map": "MAPHead_0", "gap_norm": "encoder_norm"}
    named = retrieval.embedding_model(model, layer[classifier])
    expected = outputs_of(model, images)[layer[classifier]]
    assert_close(named(images), expected, rtol=2e-6)


def test_feature_maps_of_resnets_and_hybrids():
    network = randomize(ResNet(32, (1, 1), 0.5, 5), np.random.default_rng(0), 0.1)
    images = images_for(network, 2)
    x = outputs_of(network, images)["relu"]
    patches = to_numpy(retrieval.embedding_model(network, tokens="patches")(images))
    assert_close(patches, x, rtol=2e-6)
    mean = to_numpy(retrieval.embedding_model(network, "block1", "mean")(images))
    expected = outputs_of(network, images)["block1"].mean(axis=(1, 2))
    assert_close(mean, expected)
    hybrid = HybridViT(32, (1,), 0.5, 1, **SIZES)
    randomize(hybrid, np.random.default_rng(0), 0.1)
    x = outputs_of(hybrid, images)["encoder_norm"]
    patches = to_numpy(retrieval.embedding_model(hybrid, tokens="patches")(images))
    assert_close(patches.reshape(2, -1, 12), x[:, 1:], rtol=2e-6)
