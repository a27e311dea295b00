"""The first updates of a small model by every recipe in configs/."""

import dataclasses

import numpy as np
import pytest

from tests.helpers import ROOT, to_numpy
from vit_keras import data, variants
from vit_keras.config import ModelConfig, parse_config
from vit_keras.models import Preprocessing, from_model_config, pretext_model
from vit_keras.support.keras_internals import averages_of
from vit_keras.training.loop import compile_model

# Recipes without a model of their own: tests/experiments/test_finetuning.py.
OWN_PICTURES = ("linear", "full", "lora", "probe")
RECIPES = [
    (f"{folder}/{path.stem}",)
    for folder in ("pretrain", "finetune", "pretext")
    for path in sorted((ROOT / "configs" / folder).glob("*.yaml"))
    if path.stem not in OWN_PICTURES
]
PRESETS = ("none", "light1", "light2", "medium1", "medium2", "strong1", "strong2")
RECIPES += [("augreg/imagenet", f"augreg/{preset}") for preset in PRESETS]
RECIPES += [("augreg/imagenet21k", "augreg/light2")]
# One recipe for each kind of model, optimizer and objective; `make nightly` runs the others.
ONE_OF_EACH = (
    *("pretrain/imagenet21k_b16", "pretrain/jft_r50", "pretrain/jft_r50_b16", "finetune/pets"),
    *("pretext/mae_b16", "pretext/masked_patch_b16", "augreg/strong2", "pretext/dino_s16"),
)


def small(model: ModelConfig):
    """A small model of the recipe's kind, for 16 x 16 pixels, with the recipe's other options."""
    kind, sizes = type(variants.get(model.variant)), {"image_size": 16, "channels": 3}
    if kind is not variants.ResNetVariant:
        sizes |= {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 8}
        sizes |= {"representation_size": model.representation_size and 8}
        sizes["patch_size"] = 1 if kind is variants.HybridVariant else 8
    if kind in (variants.ResNetVariant, variants.HybridVariant):
        stem = (1,) if kind is variants.HybridVariant else (1, 1)
        sizes |= {"resnet_layers": stem, "resnet_width": 0.5}
    return from_model_config(dataclasses.replace(model, **sizes), num_classes=10, seed=0)


@pytest.mark.on("torch")  # which compiles nothing
@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, marks=[] if names[-1] in ONE_OF_EACH else pytest.mark.nightly)
        for names in RECIPES
    ],
    ids="+".join,
)
def test_five_updates_on_a_small_model(names):
    """A zero head, then zero scales, block the gradients of lower layers in the first updates."""
    config = parse_config([word for name in names for word in ("--config", name)], default="")
    parts = min(config.optimizer.accumulation_steps, 2)
    optimizer = dataclasses.replace(
        config.optimizer, accumulation_steps=parts, warmup_steps=1, learning_rate=0.01
    )
    decoder = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}
    sizes = {"local_size": 16, "prototypes": 16, "head_hidden_size": 8, "bottleneck_size": 4}
    dino = dataclasses.replace(config.pretext.dino, **sizes)
    config = dataclasses.replace(
        config,
        optimizer=optimizer,
        pretext=dataclasses.replace(config.pretext, **decoder, dino=dino),
        model=dataclasses.replace(config.model, weights=None),  # they would bring a model
        batch=8,
        total_steps=5,
    )
    model, pretext, masking = small(config.model), config.pretext, None
    if pretext.is_active:
        model = pretext_model(model, pretext, 0, 5, parts)
        masking = (
            data.Views(dino, (16, 16), Preprocessing())
            if pretext.is_dino
            else data.Masking(pretext, (16, 16), (8, 8), Preprocessing())
        )
    compile_model(model, config)
    values = lambda: {v.path: to_numpy(v.value) for v in model.trainable_variables}
    before = values()
    digits = data.load("digits", 3).split("train")
    options = {"image_size": (16, 16), "preprocessing": Preprocessing(), "num_classes": 10}
    options |= {"seed": 0, "start_step": 0, "total_steps": 5 * parts, "masking": masking}
    batches = data.train_batches(digits, batch=8 // parts, augment_config=config.augment, **options)
    losses = [model.train_on_batch(*batch, return_dict=True)["loss"] for batch in batches]
    assert np.isfinite(losses).all() and int(model.optimizer.iterations) == 5
    after = values()
    still = [path for path in after if np.array_equal(before[path], after[path])]
    assert [path for path in still if not path.endswith("key/bias")] == []
    if config.optimizer.ema_decay is not None:
        average, last = (x[-1] for x in (averages_of(model.optimizer), model.trainable_variables))
        assert not np.array_equal(to_numpy(average.value), to_numpy(last.value))
