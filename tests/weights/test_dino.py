"""Meta's DINO, DINOv2 and DINOv3: names, both ways, and DINOv3 against a formula in NumPy."""

import argparse
import math

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize
from tests.weights.builds import assert_equal_weights
from vit_keras import weights
from vit_keras.models import VisionTransformer
from vit_keras.weights.formats.registry import choose

pytestmark = pytest.mark.on("torch")

torch = pytest.importorskip("torch")

SIZES = (24, 8, 16, 2, 2, 40)  # image, patch, width, blocks, heads, MLP
V1: dict = {}
V2 = {"layer_scale": 1e-5}
REGISTERS = {**V2, "num_registers": 3, "position_cover": "class"}
GIANT = {**REGISTERS, "mlp": "swiglu"}
V3 = {
    "layer_scale": 1e-5,
    "num_registers": 2,
    "position_embedding": "none",
    "qkv_bias": "qv",
    "rope": {"centered": True, "rounded": True},
    "layer_norm_epsilon": 1e-5,
}
GATED = {**V3, "mlp": "swiglu", "qkv_bias": "none"}
EXACT = {**V3, "qkv_bias": "all", "rope": {"centered": True}}
DESIGNS = {"1": V1, "2": V2, "registers": REGISTERS, "g": GIANT, "3": V3, "7B": GATED, "e": EXACT}


def build(rng, design):
    model = VisionTransformer(*SIZES, num_classes=None, **design)
    return randomize(model, rng)


def saved(model, path):
    weights.save(model, path, format=source(model))
    return torch.load(path, weights_only=True)


def source(model):
    return "dino" if any(layer.name == "posembed_input" for layer in model.layers) else "dinov3"


@pytest.mark.parametrize("design", DESIGNS)
def test_files_give_the_model_back_bit_by_bit(rng, tmp_path, design):
    model = build(rng, DESIGNS[design])
    path = tmp_path / "model.pth"
    saved(model, path)
    known = {} if "rope" in DESIGNS[design] else {"num_heads": 2}
    other = vit_keras.open(path, source(model), image_size=24, **known)
    assert_equal_weights(model, other)
    images = rng.normal(size=(2, 24, 24, 3)).astype("float32")
    assert_close(other(images), model(images))


@pytest.mark.parametrize("design", set(DESIGNS) - {"1"})
def test_files_are_not_taken_for_timms(rng, tmp_path, design):
    model = build(rng, DESIGNS[design])
    state = saved(model, tmp_path / "model.pth")
    assert choose(state, None, "model.pth")[0].name == source(model)


def test_a_plain_file_of_dino_is_told_from_timms_by_its_name(rng, tmp_path):
    state = saved(build(rng, V1), tmp_path / "dino_deitsmall16_pretrain.pth")
    assert choose(state, None, str(tmp_path / "dino_deitsmall16_pretrain.pth"))[0].name == "dino"
    assert choose(state, None, str(tmp_path / "dino_" / "vit.pth"))[0].name == "timm"
    model = vit_keras.open(tmp_path / "dino_deitsmall16_pretrain.pth", num_heads=2)
    assert model.resizing.positions == "bicubic_offset"


def test_a_checkpoint_of_training_gives_its_teacher(rng, tmp_path):
    state = saved(build(rng, V2), tmp_path / "model.pth")
    chunked = {f"backbone.{k.replace('blocks.', 'blocks.0.')}": v for k, v in state.items()}
    heads = {"dino_head.mlp.0.weight": torch.ones(3, 16)}
    student = {f"module.{k}": torch.zeros_like(v) for k, v in chunked.items()}
    whole = {"student": student, "teacher": chunked | heads, "args": argparse.Namespace(lr=0.1)}
    torch.save(whole, tmp_path / "checkpoint.pth")
    model = vit_keras.open(tmp_path / "model.pth", num_heads=2)
    assert_equal_weights(model, vit_keras.open(tmp_path / "checkpoint.pth", num_heads=2))


def test_published_widths_say_their_heads(rng, tmp_path):
    model = VisionTransformer(16, 16, 384, 1, 6, 8, num_classes=None, **V2)
    saved(model, tmp_path / "small.pth")
    assert weights.describe(tmp_path / "small.pth")["architecture"]["num_heads"] == 6
    saved(build(rng, V2), tmp_path / "tiny.pth")
    with pytest.raises(ValueError, match="do not say `num_heads`; pass .*num_heads=..."):
        vit_keras.open(tmp_path / "tiny.pth")


def test_other_masks_and_periods_are_refused(rng, tmp_path):
    state = saved(build(rng, V3), tmp_path / "model.pth")
    ones = {**state, "blocks.1.attn.qkv.bias_mask": torch.ones(48)}
    torch.save(ones, tmp_path / "mask.pth")
    with pytest.raises(ValueError, match="must be 1 for queries and values and 0 for keys"):
        vit_keras.open(tmp_path / "mask.pth", image_size=24)
    torch.save({**state, "rope_embed.periods": torch.tensor([1.0, 9.0])}, tmp_path / "p.pth")
    with pytest.raises(ValueError, match="must be powers of 100"):
        vit_keras.open(tmp_path / "p.pth", image_size=24)


@pytest.mark.parametrize("design", ["3", "7B", "e"])
def test_dinov3_equals_a_formula_that_reads_the_file(rng, tmp_path, design):
    model = build(rng, {**DESIGNS[design], "num_registers": 2})
    state = saved(model, tmp_path / "model.pth")
    arrays = {name: x.double().numpy() for name, x in state.items()}
    images = rng.normal(size=(2, 24, 24, 3)).astype("float32")
    expected = dinov3(arrays, images.astype("float64"), num_heads=2, patch=8)
    assert_close(model(images), expected[:, 0], rtol=1e-5)


def dinov3(w, images, num_heads, patch):
    """All normalized tokens of DINOv3, from Meta's names."""
    batch, height, width, _ = images.shape
    rows, columns = height // patch, width // patch
    cut = images.reshape(batch, rows, patch, columns, patch, 3).transpose(0, 1, 3, 5, 2, 4)
    kernel = w["patch_embed.proj.weight"]
    x = cut.reshape(batch, rows * columns, -1) @ kernel.reshape(len(kernel), -1).T
    x = x + w["patch_embed.proj.bias"]
    prefix = np.concatenate([w["cls_token"], w["storage_tokens"]], axis=1)
    x = np.concatenate([np.repeat(prefix, batch, axis=0), x], axis=1)
    places = [(2 * np.pi * (2 * (np.arange(n) + 0.5) / n - 1)) for n in (rows, columns)]
    y, x_ = (axis.ravel()[:, None] for axis in np.meshgrid(*places, indexing="ij"))
    angles = np.concatenate([y / w["rope_embed.periods"], x_ / w["rope_embed.periods"]], axis=1)
    angles = np.pad(np.tile(angles, 2), [(prefix.shape[1], 0), (0, 0)])
    for i in range(2):
        block = {k[len(f"blocks.{i}.") :]: v for k, v in w.items() if k.startswith(f"blocks.{i}.")}
        y = attention(block, norm(block, "norm1", x), angles, num_heads)
        x = x + block["ls1.gamma"] * y
        x = x + block["ls2.gamma"] * mlp(block, norm(block, "norm2", x))
    return norm(w, "norm", x)


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)


def norm(w, name, x):
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]


def attention(w, x, angles, num_heads):
    bias = w.get("attn.qkv.bias", 0) * w.get("attn.qkv.bias_mask", 1)
    qkv = x @ w["attn.qkv.weight"].T + bias
    batch, tokens, _ = qkv.shape
    q, k, v = qkv.reshape(batch, tokens, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)
    half = q.shape[-1] // 2
    turn = lambda z: np.concatenate([-z[..., half:], z[..., :half]], axis=-1)
    q, k = (z * np.cos(angles) + turn(z) * np.sin(angles) for z in (q, k))
    logits = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    return linear(w, "attn.proj", (shares @ v).swapaxes(1, 2).reshape(batch, tokens, -1))


def mlp(w, x):
    if "mlp.w1.weight" in w:
        gate = linear(w, "mlp.w1", x)
        return linear(w, "mlp.w3", gate / (1 + np.exp(-gate)) * linear(w, "mlp.w2", x))
    hidden = linear(w, "mlp.fc1", x)
    erf = np.vectorize(math.erf)
    return linear(w, "mlp.fc2", hidden * (1 + erf(hidden / math.sqrt(2))) / 2)


def test_models_of_satellite_images_have_their_own_colors(rng, tmp_path):
    state = saved(build(rng, V3), tmp_path / "model.pth")
    torch.save({**state, "local_cls_norm.weight": torch.ones(16)}, tmp_path / "sat.pth")
    for name, mean in (("model", 0.485), ("sat", 0.430)):
        model = vit_keras.open(tmp_path / f"{name}.pth", image_size=24)
        assert model.preprocessing.mean[0] == mean
        assert model.get_layer("encoder_norm").epsilon == 1e-5
