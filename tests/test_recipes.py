"""Compares the recipes in configs/ with the tables of their papers."""

import dataclasses
import re

import pytest

from tests.helpers import ROOT
from tools import recipe_table
from vit_keras.config import DinoConfig, OptimizerConfig, PretextConfig, parse_config

pytestmark = pytest.mark.once
CONFIGS = ROOT / "configs"

# Table 3: variants, images, epochs, learning rate, decay, weight decay, dropout, clip.
JFT, IMAGENET_21K, IMAGENET = 303_000_000, 14_197_122, 1_281_167
TABLE_3 = {
    "jft_b16": (("B/16", "B/32"), JFT, 7, 8e-4, "linear", 0.1, 0.0, None),
    "jft_l32": (("L/32",), JFT, 7, 6e-4, "linear", 0.1, 0.0, None),
    "jft_l16": (("L/16",), JFT, 14, 4e-4, "linear", 0.1, 0.0, None),
    "jft_h14": (("H/14",), JFT, 14, 3e-4, "linear", 0.1, 0.0, None),
    "jft_r50": (("R50x1", "R50x2"), JFT, 7, 1e-3, "linear", 0.1, 0.0, None),
    "jft_r101": (("R101x1",), JFT, 7, 8e-4, "linear", 0.1, 0.0, None),
    "jft_r152": (("R152x1", "R152x2"), JFT, 7, 6e-4, "linear", 0.1, 0.0, None),
    "jft_r50_b16": (("R50+B/16", "R50+B/32"), JFT, 7, 8e-4, "linear", 0.1, 0.0, None),
    "jft_r50_l32": (("R50+L/32",), JFT, 7, 2e-4, "linear", 0.1, 0.0, None),
    "jft_r50_l16": (("R50+L/16",), JFT, 14, 4e-4, "linear", 0.1, 0.0, None),
    "imagenet21k_b16": (("B/16", "B/32"), IMAGENET_21K, 90, 1e-3, "linear", 0.03, 0.1, None),
    "imagenet21k_l16": (("L/16", "L/32"), IMAGENET_21K, 90, 1e-3, "linear", 0.03, 0.1, None),
    "imagenet_vit": (("B/16", "L/16"), IMAGENET, 300, 3e-3, "cosine", 0.3, 0.1, 1.0),
}
# Table 4: steps, learning rates, percentage of the development split.
SMALL = (0.001, 0.003, 0.01, 0.03)
TABLE_4 = {
    "imagenet": (20_000, (0.003, 0.01, 0.03, 0.06), 1),
    "cifar100": (10_000, SMALL, 2),
    "cifar10": (10_000, SMALL, 2),
    "pets": (500, SMALL, 10),
    "flowers": (500, SMALL, 10),
}
# AugReg, Section 3: layers and magnitude of RandAugment, alpha of MixUp.
AUGREG = {
    "none": (0, 0, 0.0),
    "light1": (2, 0, 0.0),
    "light2": (2, 10, 0.2),
    "medium1": (2, 15, 0.2),
    "medium2": (2, 15, 0.5),
    "strong1": (2, 20, 0.5),
    "strong2": (2, 20, 0.8),
}
FILES = sorted(CONFIGS.rglob("*.yaml"))


def read(name, *more):
    arguments = [word for recipe in (name, *more) for word in ("--config", recipe)]
    return parse_config(arguments, default="")


def test_every_table_has_its_files():
    names = {str(path.relative_to(CONFIGS).with_suffix("")) for path in FILES}
    pretraining = {name for name in names if name.startswith("pretrain/")}
    assert {f"pretrain/{name}" for name in TABLE_3} == pretraining
    assert {f"finetune/{name}" for name in TABLE_4} < names
    assert {f"augreg/{name}" for name in (*AUGREG, "imagenet", "imagenet21k")} < names


@pytest.mark.parametrize("name", TABLE_3)
def test_pretraining_recipes_equal_table_3(name):
    variants, images, epochs, rate, decay, weight_decay, dropout, clip = TABLE_3[name]
    config = read(f"pretrain/{name}")
    head = (CONFIGS / "pretrain" / f"{name}.yaml").read_text().split("name:")[0]
    assert config.model.variant == variants[0] and all(f" {other}" in head for other in variants)
    assert config.batch == 4096 and config.model.image_size == 224
    assert config.total_steps == pytest.approx(images * epochs / 4096, abs=0.5)
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.beta_1, optimizer.beta_2) == ("adamw", 0.9, 0.999)
    assert (optimizer.learning_rate, optimizer.decay_type) == (rate, decay)
    assert (optimizer.weight_decay, optimizer.grad_norm_clip) == (weight_decay, clip)
    assert optimizer.warmup_steps == 10_000 and config.model.dropout_rate == dropout


@pytest.mark.parametrize("name", [*TABLE_4, "vtab", "imagenet_l16_512", "imagenet_h14_518"])
def test_fine_tuning_recipes_equal_table_4(name):
    config = read(f"finetune/{name}")
    steps, rates, percent = TABLE_4.get(name, (20_000, None, None))
    optimizer = config.optimizer
    assert config.batch == 512 and config.model.weights == "imagenet21k"
    assert (optimizer.name, optimizer.momentum, optimizer.decay_type) == ("sgd", 0.9, "cosine")
    assert (optimizer.weight_decay, optimizer.grad_norm_clip) == (0.0, 1.0)
    if name == "vtab":
        assert (config.total_steps, optimizer.learning_rate) == (2500, 0.01)
        return
    assert config.total_steps == steps
    if rates is None:  # Table 2
        variant, size = ("L/16", 512) if "l16" in name else ("H/14", 518)
        assert (config.model.variant, config.model.image_size) == (variant, size)
        assert optimizer.ema_decay == 0.9999
    else:
        assert config.model.image_size == 384
        assert (config.grid.learning_rates, config.grid.dev_percent) == (rates, percent)
        assert optimizer.learning_rate in rates and len(config.grid.seeds) == 3


# Images per update, updates, optimizer, objective: Appendix B.1.2; arXiv 2111.06377, Table 8, at
# 1600 epochs; arXiv 2104.14294, Section 3.2, with the published arguments at 800 epochs.
DINO = DinoConfig(
    local_crops=10,
    global_scale=(0.25, 1.0),
    local_scale=(0.05, 0.25),
    temperature_warmup=30 / 800,
    frozen_prototypes=1 / 800,
)
COSINE = OptimizerConfig(decay_type="cosine", grad_norm_clip=None, warmup_steps=12_511)
PRETEXT = {
    "masked_patch_b16": (
        *(4096, 1_000_000, PretextConfig("masked_patch", "mean_color", corrupt=0.5)),
        dataclasses.replace(COSINE, learning_rate=2e-4, weight_decay=0.1, warmup_steps=10_000),
    ),
    "mae_b16": (
        *(4096, IMAGENET * 1600 / 4096, PretextConfig("mae", "normalized_patch", corrupt=0.75)),
        dataclasses.replace(COSINE, learning_rate=2.4e-3, weight_decay=0.05, beta_2=0.95),
    ),
    "dino_s16": (
        *(1024, IMAGENET * 800 / 1024, PretextConfig("dino", dino=DINO)),
        dataclasses.replace(COSINE, learning_rate=2e-3, weight_decay=0.04),
    ),
}


@pytest.mark.parametrize("name", PRETEXT)
def test_pretext_recipes_equal_their_publications(name):
    config = read(f"pretext/{name}")
    assert (config.batch, pytest.approx(config.total_steps, abs=0.5)) == PRETEXT[name][:2]
    whole = dataclasses.replace(config.optimizer, accumulation_steps=1)
    assert (config.pretext, whole) == PRETEXT[name][2:]
    assert name.endswith(config.model.variant.replace("/", "").lower())
    assert (config.model.position_embedding == "sincos2d") == (name == "mae_b16")
    if name == "dino_s16":
        assert config.augment.flip and config.model.stochastic_depth_rate == 0.1


def test_objectives_have_their_published_numbers():
    masked, mae = PretextConfig("masked_patch"), PretextConfig("mae")
    assert masked.predicted == "mean_color" and masked.outputs((16, 16), 3) == (1, 512)
    assert (masked.corrupted(196), mae.corrupted(196)) == (98, 147)
    decoder = mae.decoder_hidden_size, mae.decoder_num_layers, mae.decoder_num_heads
    assert decoder == (512, 8, 16)
    tuned, other = read("pretext/masked_patch_imagenet"), read("finetune/imagenet")
    same = ("batch", "total_steps", "data", "augment", "optimizer", "grid")
    assert all(getattr(tuned, name) == getattr(other, name) for name in same)
    assert tuned.model == dataclasses.replace(other.model, weights="runs/masked_patch_b16")


def test_augreg_presets_override_its_recipes():
    for preset, strength in AUGREG.items():
        for data, bias in (("imagenet", -6.9), ("imagenet21k", -10)):
            config = read(f"augreg/{data}", f"augreg/{preset}")
            augment = config.augment
            found = augment.randaugment_layers, augment.randaugment_magnitude, augment.mixup_alpha
            assert found == strength and augment.crop == "inception" and augment.flip
            assert config.loss == "sigmoid" and config.model.head_bias == bias
            assert config.optimizer.learning_rate == 1e-3 and config.batch == 4096


def test_each_recipe_is_valid_and_states_command_cost_and_result():
    for path in FILES:
        name = str(path.relative_to(CONFIGS).with_suffix(""))
        head = path.read_text().split("\nname:")[0].split("\naugment:")[0]
        assert all(line.startswith("#") for line in head.splitlines()), name
        assert re.search(rf"^#   .*python train.py .*--config {name}( |$)", head, re.M), name
        assert re.search(r"^# Cost[^:]*: \S", head, re.M), name
        assert re.search(r"Result[^:]*: \S|Result: \S", head), name
        assert read(name).name == path.stem or "/" in name


def test_the_page_has_the_heads_of_all_recipes():
    page = recipe_table.PAGE.read_text(encoding="utf-8")
    assert recipe_table.filled(page) == page, "run python -m tools.recipe_table"
    names = re.findall(r"^\| (`[\w/`, ]+) \|", page, re.MULTILINE)
    shown = re.findall(r"[\w/]+", " ".join(names))
    assert set(shown) == {str(path.relative_to(CONFIGS).with_suffix("")) for path in FILES}
