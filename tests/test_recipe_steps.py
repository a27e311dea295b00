"""The full model of every recipe in configs/, and the first updates of a small one."""

import dataclasses

import numpy as np
import pytest

from tests.helpers import ROOT, shapes_only, to_numpy
from vit_keras import data, variants
from vit_keras.config import ModelConfig, parse_config
from vit_keras.models import (
    HybridViT,
    Preprocessing,
    ResNet,
    VisionTransformer,
    from_model_config,
    pretext_model,
)
from vit_keras.training.loop import compile_model

pytestmark = [pytest.mark.on("torch"), pytest.mark.slow]  # which compiles nothing
CONFIGS = ROOT / "configs"
# Recipes without a model of their own: tests/experiments/test_finetune_recipes.py.
OWN_PICTURES = ("linear", "full", "lora", "probe")
PRESETS = ("none", "light1", "light2", "medium1", "medium2", "strong1", "strong2")
RECIPES = [
    *((f"{folder}/{path.stem}",) for folder in ("pretrain", "finetune", "pretext")
      for path in sorted((CONFIGS / folder).glob("*.yaml")) if path.stem not in OWN_PICTURES),
    *(("augreg/imagenet", f"augreg/{preset}") for preset in PRESETS),
    ("augreg/imagenet21k", "augreg/light2"),
]  # fmt: skip
# One recipe for each kind of model, optimizer and objective; `make nightly` runs the others.
ONE_OF_EACH = (
    *("pretrain/imagenet21k_b16", "pretrain/jft_r50", "pretrain/jft_r50_b16", "pretrain/jft_h14"),
    *("finetune/pets", "finetune/imagenet_h14_518", "pretext/mae_b16", "pretext/masked_patch_b16"),
    *("augreg/strong2", "pretext/dino_s16"),
)
RECIPE_CASES = [
    pytest.param(
        names, id="+".join(names), marks=[] if names[-1] in ONE_OF_EACH else pytest.mark.nightly
    )
    for names in RECIPES
]
COUNTS = {  # the published code's, at 224 pixels with 1000 classes
    "S/16": 22_050_664,
    "B/16": 86_567_656,
    "L/16": 304_326_632,
    "L/32": 306_535_400,
    "H/14": 632_045_800,
    "R50x1": 25_549_352,
    "R101x1": 44_541_480,
    "R152x1": 60_185_128,
    "R50+B/16": 98_659_112,
    "R50+L/16": 316_483_624,
    "R50+L/32": 328_994_856,
}
SIZES = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 8}


def read(names):
    words = [word for name in names for word in ("--config", name)]
    config = parse_config(words, default="")
    new = dataclasses.replace(config.model, weights=None)  # which would bring its architecture
    return dataclasses.replace(config, model=new)


def small(model: ModelConfig):
    """A small model of the recipe's kind, for 16 x 16 pixels, with the recipe's other options."""
    kind = type(variants.get(model.variant))
    if kind is variants.ResNetVariant:
        rest = {"head_bias": model.head_bias, "dtype": model.dtype}
        return ResNet(16, (1, 1), 0.5, 10, channels=3, seed=0, **rest)
    rates = ("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate")
    rest = {name: getattr(model, name) for name in (*rates, "head_bias", "dtype", "gelu")}
    rest |= {**SIZES, "num_classes": 10, "channels": 3, "seed": 0}
    rest["representation_size"] = model.representation_size and 8
    if kind is variants.HybridVariant:
        return HybridViT(16, (1,), 0.5, 1, **rest)
    rest["position_embedding"] = model.position_embedding
    return VisionTransformer(16, 8, **rest)


@pytest.mark.parametrize("names", RECIPE_CASES)
def test_the_model_has_the_published_parameters(names):
    model = read(names).model
    with shapes_only():
        full = from_model_config(model, num_classes=1000)
        count = full.count_params()
    row, expected = variants.get(model.variant), COUNTS[model.variant]
    if model.representation_size:
        expected += model.representation_size * (row.hidden_size + 1)
    if model.image_size != 224:
        grids = [(size // row.patch_size) ** 2 for size in (224, model.image_size)]
        expected += (grids[1] - grids[0]) * row.hidden_size
    if model.position_embedding == "sincos2d":
        expected -= 197 * row.hidden_size
    assert count == expected


@pytest.mark.parametrize("names", RECIPE_CASES)
def test_five_updates_on_a_small_model(names):
    """A zero head, then zero scales, block the gradients of lower layers in the first updates."""
    config = read(names)
    parts = min(config.optimizer.accumulation_steps, 2)
    optimizer = dataclasses.replace(
        config.optimizer, accumulation_steps=parts, warmup_steps=1, learning_rate=0.01
    )
    decoder = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}
    sizes = {"local_size": 16, "prototypes": 16, "head_hidden_size": 8, "bottleneck_size": 4}
    dino = dataclasses.replace(config.pretext.dino, **sizes)
    pretext = dataclasses.replace(config.pretext, **decoder, dino=dino)
    config = dataclasses.replace(
        config, optimizer=optimizer, pretext=pretext, batch=8, total_steps=5
    )
    model, preprocessing, masking = small(config.model), Preprocessing(), None
    if pretext.is_active:
        model = pretext_model(model, pretext, 0, 5, parts)
        masking = (
            data.Views(pretext.dino, (16, 16), preprocessing)
            if pretext.is_dino
            else data.Masking(pretext, (16, 16), (8, 8), preprocessing)
        )
    compile_model(model, config)
    before = {v.path: to_numpy(v.value) for v in model.trainable_variables}
    batches = data.train_batches(
        data.load("digits", 3).split("train"),
        image_size=(16, 16),
        preprocessing=preprocessing,
        batch=8 // parts,
        augment_config=config.augment,
        seed=0,
        start_step=0,
        total_steps=5 * parts,
        num_classes=10,
        masking=masking,
    )
    losses = [model.train_on_batch(*batch, return_dict=True)["loss"] for batch in batches]
    assert np.isfinite(losses).all()
    assert int(model.optimizer.iterations) == 5
    after = {v.path: to_numpy(v.value) for v in model.trainable_variables}
    still = [path for path in after if np.array_equal(before[path], after[path])]
    assert [path for path in still if not path.endswith("key/bias")] == []
    if config.optimizer.ema_decay is not None:
        average, last = (x[-1] for x in (model.optimizer.averages, model.trainable_variables))
        assert not np.array_equal(to_numpy(average.value), to_numpy(last.value))
