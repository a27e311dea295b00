"""Meta's DINO, DINOv2, DINOv3 and Perception Encoder: their files, both ways.

Golden files say the values of DINOv2 and of the Perception Encoder, and timm those of DINOv3.
"""

import argparse
import importlib

import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, randomize
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, channels_first
from vit_keras import weights
from vit_keras.models import VisionTransformer
from vit_keras.weights.formats.registry import choose

pytestmark = pytest.mark.on("torch")

torch = pytest.importorskip("torch")

SIZES = (24, 8, 16, 2, 2, 40)  # image, patch, width, blocks, heads, MLP
SCALED = {"num_classes": None, "layer_scale": 1e-5}
REGISTERS = {**SCALED, "num_registers": 3, "position_cover": "class"}
V3 = {**SCALED, "num_registers": 4, "position_embedding": "none", "layer_norm_epsilon": 1e-5}
ROUNDED = {"rope": {"centered": True, "rounded": True}}
EXACT = {"rope": {"centered": True}}
STEM = {"pre_norm": True, "layer_norm_epsilon": 1e-5}
WITH_CLASS = {**STEM, "rope": {"base": 10000.0, "offset": 1.0}}
WITHOUT = {**STEM, "rope": {"base": 10000.0}}
CORE = {"classifier": "map", "pool_all_tokens": True, "map_heads": 8, "head_use_bias": False}
BARE = {"num_classes": None, "final_norm": False}
DESIGNS = {  # the format, and options of a model
    "1": ("dino", {"num_classes": None}),
    "2": ("dino", SCALED),
    "registers": ("dino", REGISTERS),
    "giant": ("dino", {**REGISTERS, "mlp": "swiglu"}),
    "3": ("dinov3", {**V3, **ROUNDED, "qkv_bias": "qv"}),
    "3 exact": ("dinov3", {**V3, **EXACT, "qkv_bias": "all"}),
    "7B": ("dinov3", {**V3, **ROUNDED, "mlp": "swiglu", "qkv_bias": "none"}),
    "core": ("perception_encoder", {**WITH_CLASS, **CORE, "class_token": True, "num_classes": 6}),
    "core G": ("perception_encoder", {**WITHOUT, **CORE, "map_mlp_dim": 64, "num_classes": 6}),
    "lang": ("perception_encoder", {**WITHOUT, **BARE, "classifier": "gap", "layer_scale": 0.1}),
    "spatial": ("perception_encoder", {**WITH_CLASS, **BARE}),
}


def saved(rng, path, name):
    """A model of random weights, and the tensors of its file."""
    source, design = DESIGNS[name]
    model = randomize(VisionTransformer(*SIZES, **design), rng)
    weights.save(model, path, format=source)
    return model, torch.load(path, weights_only=True)


@pytest.mark.parametrize("name", DESIGNS)
def test_files_give_the_model_back_bit_by_bit(rng, tmp_path, name):
    source = DESIGNS[name][0]
    path = tmp_path / ("model.pt" if source == "perception_encoder" else "model.pth")
    model, state = saved(rng, path, name)
    if name != "1":
        assert choose(state, None, "model.pth", None, {})[0].name == source  # and not timm
    known = {} if source == "dinov3" else {"num_heads": 2}
    other = vit_keras.open(path, source, image_size=24, **known)
    assert_equal_weights(model, other)
    images = rng.normal(size=(2, 24, 24, 3)).astype("float32")
    assert_close(other(images), model(images))


@pytest.mark.parametrize(
    ("name", "theirs", "changes"),
    [
        ("3", "vit_small_patch16_dinov3_qkvb", {"mlp_ratio": 2.5}),
        ("7B", "vit_7b_patch16_dinov3", {"mlp_ratio": 2.5, "swiglu_align_to": 8}),
    ],
)
def test_timm_reads_dinov3_alike(rng, tmp_path, name, theirs, changes):
    model, state = saved(rng, tmp_path / "model.pth", name)
    timm, eva = peer("timm"), importlib.import_module("timm.models.eva")
    sizes = {"img_size": 24, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    theirs = timm.create_model(theirs, **sizes, **changes, num_classes=0, global_pool="token")
    theirs.load_state_dict(eva.checkpoint_filter_fn(state, theirs))
    theirs.rope.periods.copy_(state["rope_embed.periods"])  # which timm leaves unrounded
    images = rng.normal(size=(2, 24, 24, 3)).astype("float32")
    with torch.no_grad():
        expected = theirs.eval()(channels_first(images)).numpy()
    assert_close(model(images), expected, rtol=1e-5)


def test_a_plain_file_of_dino_is_told_from_timms_by_its_name(rng, tmp_path):
    path = tmp_path / "dino_deitsmall16_pretrain.pth"
    _, state = saved(rng, path, "1")
    assert choose(state, None, str(path), None, {})[0].name == "dino"
    other = str(tmp_path / "dino_" / "vit.pth")
    assert choose(state, None, other, None, {})[0].name == "timm"
    assert vit_keras.open(path, num_heads=2).resizing.positions == "bicubic_offset"


def test_a_checkpoint_of_training_gives_its_teacher(rng, tmp_path):
    model, state = saved(rng, tmp_path / "model.pth", "2")
    chunked = {f"backbone.{k.replace('blocks.', 'blocks.0.')}": v for k, v in state.items()}
    heads = {"dino_head.mlp.0.weight": torch.ones(3, 16)}
    student = {f"module.{k}": torch.zeros_like(v) for k, v in chunked.items()}
    whole = {"student": student, "teacher": chunked | heads, "args": argparse.Namespace(lr=0.1)}
    torch.save(whole, tmp_path / "checkpoint.pth")
    assert_equal_weights(model, vit_keras.open(tmp_path / "checkpoint.pth", num_heads=2))


def test_published_widths_say_their_heads(rng, tmp_path):
    model = VisionTransformer(16, 16, 384, 1, 6, 8, **SCALED)
    weights.save(model, tmp_path / "small.pth", format="dino")
    assert weights.describe(tmp_path / "small.pth")["architecture"]["num_heads"] == 6
    saved(rng, tmp_path / "tiny.pth", "2")
    with pytest.raises(ValueError, match="do not give `num_heads`; call .*num_heads=..."):
        vit_keras.open(tmp_path / "tiny.pth")


def test_other_masks_and_periods_are_refused(rng, tmp_path):
    _, state = saved(rng, tmp_path / "model.pth", "3")
    for name, values, message in (
        ("blocks.1.attn.qkv.bias_mask", [1.0] * 48, "1 for queries and values and 0 for keys"),
        ("rope_embed.periods", [1.0, 9.0], "must be powers of 100"),
    ):
        torch.save({**state, name: torch.tensor(values)}, tmp_path / "other.pth")
        with pytest.raises(ValueError, match=message):
            vit_keras.open(tmp_path / "other.pth", image_size=24)


def test_models_of_satellite_images_have_their_own_colors(rng, tmp_path):
    _, state = saved(rng, tmp_path / "model.pth", "3")
    torch.save({**state, "local_cls_norm.weight": torch.ones(16)}, tmp_path / "sat.pth")
    for name, mean in (("model", 0.485), ("sat", 0.430)):
        model = vit_keras.open(tmp_path / f"{name}.pth", image_size=24)
        assert model.preprocessing.mean[0] == mean


def test_the_text_tower_is_left_out_and_the_image_tower_must_fit(tmp_path):
    (tmp_path / "config.json").write_text('{"heads": 2}')
    golden = GOLDEN / "families" / "meta_pe_core" / "PE-Core-B16-224.pt"
    state = torch.load(golden, weights_only=True)
    text = {"transformer.resblocks.0.ln_1.weight": torch.ones(4), "logit_scale": torch.ones(())}
    both = {f"visual.{name}": x for name, x in state.items()} | text
    torch.save(both, tmp_path / "both.pt")
    assert_equal_weights(vit_keras.open(golden), vit_keras.open(tmp_path / "both.pt"))
    torch.save({**state, "transformer.resblocks.0.other": torch.ones(4)}, tmp_path / "more.pt")
    with pytest.raises(ValueError, match="not in the model: transformer.resblocks.0.other"):
        vit_keras.open(tmp_path / "more.pt")
