"""Counted costs equal the counters of XLA and torch, and loops."""

import keras
import numpy as np
import pytest

from vit_keras import inspection
from vit_keras.config import PretextConfig
from vit_keras.models import HybridViT, ResNet, VisionTransformer, pretext_model

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
MODELS = {
    "token": lambda: VisionTransformer((12, 8), 4, **SMALL, representation_size=7),
    "map": lambda: VisionTransformer((12, 8), (4, 2), **SMALL, classifier="map", channels=1),
    "hybrid": lambda: HybridViT((32, 24), (1, 2), 0.5, 1, **SMALL),
    "resnet": lambda: ResNet((30, 37), (1, 2), 0.5, 5),
    "relative": lambda: VisionTransformer((12, 8), 4, **SMALL, position_embedding="relative"),
    "token_gap": lambda: VisionTransformer((12, 8), 4, **SMALL, classifier="token_gap"),
    "distilled": lambda: VisionTransformer((12, 8), 4, **SMALL, classifier="distilled"),
    "every": lambda: VisionTransformer((12, 8), 4, **SMALL, position_embedding_at="every"),
    "masked_patch": lambda: pretext("masked_patch"),
    "mae": lambda: pretext("mae", decoder_hidden_size=8, decoder_num_layers=1, decoder_num_heads=2),
    "keras": lambda: keras_layers(),
}


def pretext(objective, **decoder):
    encoder = VisionTransformer((12, 8), 4, **SMALL)
    return pretext_model(encoder, PretextConfig(objective, **decoder))


def keras_layers():
    images = keras.Input((9, 7, 4))
    x = keras.layers.ZeroPadding2D()(images)
    x = keras.layers.Conv2D(6, (3, 2), strides=2, padding="same", groups=2)(x)
    x = keras.layers.Conv2D(5, 2, padding="valid")(x)
    x = keras.layers.Reshape((-1, 5))(x)
    x = keras.layers.EinsumDense("bnd,dhk->bnhk", (20, 3, 2))(x)
    x = keras.layers.EinsumDense("...hk,hkd->...d", 6)(x)
    return keras.Model(images, keras.layers.Dense(4)(keras.layers.Flatten()(x)))


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", MODELS)
def test_torch_counts_the_same_operations(name, monkeypatch):
    from torch.utils.flop_counter import FlopCounterMode

    # torch does not count its fused attention on CPUs; without one it is written out.
    monkeypatch.setattr("vit_keras.layers.attention.fused_attention", lambda *_: None)
    model = MODELS[name]()
    inputs = [np.zeros((2, *x.shape[1:]), x.dtype) for x in model.inputs]
    with FlopCounterMode(display=False) as counter:
        model(inputs if len(inputs) > 1 else inputs[0])
    assert counter.get_total_flops() == 2 * inspection.flops(model).flops


@pytest.mark.once
def test_training_costs_three_passes_and_days_follow():
    counted = inspection.flops("S/32", (64, 96), padding=False, norms=True, num_classes=1000)
    exaflops = inspection.training_exaflops("S/32", 1e6, 2, (64, 96), num_classes=1000)
    assert exaflops == pytest.approx(3 * counted.flops * 2e6 / 1e18)
    days = inspection.device_days(exaflops, 61.5, 0.5)
    assert days == pytest.approx(exaflops * 1e6 / (61.5 * 0.5) / 86_400)


@pytest.mark.once
def test_a_shared_layer_counts_once_for_each_call_in_the_model():
    images = keras.Input((8, 8, 3))
    dense = keras.layers.Dense(3)
    once = keras.Model(images, dense(images))
    twice = keras.Model(images, dense(dense(images)))
    assert inspection.flops(once).macs == 8 * 8 * 3 * 3
    assert inspection.flops(twice).macs == 2 * 8 * 8 * 3 * 3
    assert inspection.flops(once).params == inspection.flops(twice).params == 3 * 3 + 3
