"""Models that find objects, made from backbones, against formulas and other models."""

import keras
import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import models
from vit_keras.models import VisionTransformer, detector

SIZES = {"image_size": (16, 24), "patch_size": 4, "hidden_size": 24, "num_layers": 2}
SIZES |= {"num_heads": 2, "mlp_dim": 32, "num_classes": 5}
BACKBONES = {
    "vit": {"patch_keep_rate": 0.5},
    "dinov2": {"layer_scale": 0.1, "num_registers": 3, "position_cover": "class"},
    "dinov3": {"position_embedding": "none", "num_registers": 3, "rope": {"centered": True}},
    "siglip": {"classifier": "map", "pre_norm": True},
    "windows": {"classifier": "gap_norm", "window_size": 2, "global_blocks": (1,)},
}


def mlp(model, name, x):
    for layer in (f"{name}_mlp_0", f"{name}_mlp_1", name):
        kernel, bias = map(to_numpy, model.get_layer(layer).get_weights())
        x = x @ kernel + bias
        x = x if layer == name else np.maximum(x, 0)
    return x


@pytest.mark.parametrize(
    "name",
    [n if n == "dinov2" else pytest.param(n, marks=pytest.mark.on("torch")) for n in BACKBONES],
)
def test_tokens_are_registers_that_mlps_read(rng, name):
    options = BACKBONES[name]
    backbone = randomize(VisionTransformer(**SIZES, **options), rng)
    model = detector(backbone, 3, num_tokens=7, seed=1)
    kept = {weight.path: to_numpy(weight) for weight in backbone.weights}
    copied = [w for w in model.weights if not w.path.startswith(("head", "registers", "detection"))]
    assert all(np.array_equal(to_numpy(w), kept[w.path]) for w in copied) and len(copied) > 30
    randomize(model, rng)
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    values = {w.path: to_numpy(w) for w in model.weights}
    ours = values.pop("detection_registers/registers", None)
    if ours is not None:
        values["registers/registers"] = np.concatenate([values["registers/registers"], ours], 1)
    before = options.get("num_registers", 0)
    cover = options.get("position_cover", "patches" if "cls/cls" not in values else "class")
    others = {**options, "num_registers": 7 + before, "position_cover": cover}
    if others.get("classifier") in ("gap_norm", "map"):
        others["classifier"] = "gap"
    whole = VisionTransformer(**SIZES, **others)
    for weight in whole.weights:
        if not weight.path.startswith("head"):
            weight.assign(values[weight.path])
    last = whole.get_layer("encoder_norm")
    start = before + ("cls/cls" in values)
    x = to_numpy(keras.Model(whole.input, last.output)(images))[:, start : start + 7]
    outputs = model(images)
    assert_close(outputs["logits"], mlp(model, "head", x), 2e-5)
    assert_close(outputs["boxes"], 1 / (1 + np.exp(-mlp(model, "head_boxes", x))), 2e-5)


@pytest.mark.once
def test_boxes_of_patches_begin_at_their_places(rng):
    backbone = randomize(VisionTransformer(**SIZES, position_embedding="relative_2d"), rng)
    model = detector(backbone, 3, head="patches")
    model.get_layer("head_boxes").set_weights([np.zeros((24, 4)), np.zeros(4)])
    rows, columns = 4, 6
    for _ in range(2):
        images = rng.normal(size=(1, 4 * rows, 4 * columns, 3)).astype("float32")
        y, x = np.mgrid[1 : rows + 1, 1 : columns + 1].reshape(2, -1, 1)
        shares = np.concatenate([x / columns, y / rows, 0 * x + 1 / columns, 0 * y + 1 / rows], 1)
        odds = (shares + 1e-4) / (1 - shares + 1e-4)
        assert_close(model(images)["boxes"][0], odds / (1 + odds))
        rows, columns = 6, 8
        model = models.with_image_size(model, (24, 32))
    assert_close(model(images)["logits"], np.zeros((1, 48, 4)), floor=1.0)
