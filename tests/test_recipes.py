"""Compares the recipes in configs/ with the tables of their papers."""

import dataclasses
import re

import pytest

from studies.results import published, rows_of
from tests.helpers import ROOT
from tools import recipe_table
from vit_keras.config import DinoConfig, OptimizerConfig, PretextConfig, parse_config

pytestmark = pytest.mark.once
CONFIGS = ROOT / "configs"

TABLE_3, TABLE_4 = ({row["config"]: row for row in rows_of(f"table{n}")} for n in (3, 4))
DEV_PERCENT = {"imagenet": 1, "cifar100": 2, "cifar10": 2, "pets": 10, "flowers": 10}
IMAGENET = published("table3")["images"]["ImageNet"]
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


def variants_of(models):
    """The variants of a row, such as B/16 and B/32 of "ViT-B/{16,32}"."""
    text = models.replace("ViT-", "").replace("*", "{B/16,L/16}")
    stem, *sizes = re.split("[{,}]", text)
    return [stem + size for size in sizes if size] or [stem]


@pytest.mark.parametrize("name", TABLE_3)
def test_pretraining_recipes_equal_table_3(name):
    row, (variant, *others) = TABLE_3[name], variants_of(TABLE_3[name]["models"])
    config, images = read(f"pretrain/{name}"), published("table3")["images"][row["dataset"]]
    head = (CONFIGS / "pretrain" / f"{name}.yaml").read_text().split("name:")[0]
    assert config.model.variant == variant and all(f" {other}" in head for other in others)
    assert config.total_steps == pytest.approx(images * row["epochs"][-1] / 4096, abs=0.5)
    optimizer, model = config.optimizer, config.model
    found = {"batch": config.batch, **vars(model), **vars(optimizer)}
    for field, value in published("table3")["shared"].items():
        assert found[field] == value
    assert (optimizer.name, optimizer.decay_type) == ("adamw", row["decay"])
    assert optimizer.grad_norm_clip == (1.0 if name == "imagenet_vit" else None)
    for field in ("learning_rate", "weight_decay"):
        assert found[field] == row[field]
    assert model.dropout_rate == row["dropout"]


@pytest.mark.parametrize("name", [*TABLE_4, "imagenet_l16_512", "imagenet_h14_518"])
def test_fine_tuning_recipes_equal_table_4(name):
    config, row = read(f"finetune/{name}"), TABLE_4.get(name, {"steps": 20_000})
    model, optimizer = config.model, config.optimizer
    found = {"batch": config.batch, **vars(model), **vars(optimizer)}
    shared = {**published("table4")["shared"]}
    if "learning_rates" not in row:  # Table 2
        shared["image_size"] = int(name[-3:])
        assert model.variant == {"l16": "L/16", "h14": "H/14"}[name.split("_")[1]]
        assert optimizer.ema_decay == 0.9999
    for field, value in shared.items():
        assert found[field] == value
    assert (optimizer.name, optimizer.decay_type) == ("sgd", "cosine")
    assert (config.total_steps, model.weights) == (row["steps"], "imagenet21k")
    assert optimizer.learning_rate in row.get("learning_rates", [optimizer.learning_rate])
    if name in DEV_PERCENT:
        assert list(config.grid.learning_rates) == row["learning_rates"]
        assert config.grid.dev_percent == DEV_PERCENT[name] and len(config.grid.seeds) == 3


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
