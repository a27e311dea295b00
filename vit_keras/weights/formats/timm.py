"""timm's `VisionTransformer` state dicts (timm 1.0).

timm's `global_pool="avg"` normalizes after the mean, which is the classifier "gap_norm"; with
`fc_norm=False` timm normalizes before it, which is "gap". A note or a configuration says the heads.
"""

import re
from typing import Any

from vit_keras import variants
from vit_keras.models import Preprocessing
from vit_keras.weights.architectures import (
    HybridArchitecture,
    VisionTransformerArchitecture,
    count_blocks,
    count_units,
    guess_image_size,
)
from vit_keras.weights.architectures.paths import stem_paths
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_distilled, same
from vit_keras.weights.formats.timm_resizing import resizing_of
from vit_keras.weights.formats.torch_layouts import (
    conv,
    dense,
    fused,
    heads_in,
    heads_out,
    kernel,
    norm,
)

POOLS = {"token": "token", "gap": "avg", "gap_norm": "avg", "map": "map"}
TANH = ("gelu_tanh", "gelu_pytorch_tanh")


def canonical(name: str) -> str:
    """Removes the prefixes of wrappers; translates the old name of the head's hidden layer."""
    name = re.sub(r"^(module\.|_orig_mod\.)+", "", name)
    return name.replace("pre_logits.fc.", "pre_logits.")


def detect(names: set[str]) -> bool:
    return {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight"} <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    result = _stem(arch.resnet_layers) if isinstance(arch, HybridArchitecture) else []
    result += conv("patch_embed.proj", "embedding")
    result += [same("cls_token", "cls/cls")] if arch.classifier == "token" else []
    result += [same("pos_embed", "posembed_input/pos_embedding")]
    for i in range(arch.num_layers):
        result += _block(f"blocks.{i}", f"encoderblock_{i}", arch.num_heads)
    result += norm("fc_norm" if arch.classifier == "gap_norm" else "norm", "encoder_norm")
    result += _pool(arch.num_heads) if arch.classifier == "map" else []
    result += dense("pre_logits", "pre_logits") if arch.representation_size is not None else []
    return result + (dense("head", "head") if arch.num_classes is not None else [])


def _stem(resnet_layers):
    """Links the ResNet of a hybrid; a root without stages lies one level higher."""
    backbone = "patch_embed.backbone"
    root = f"{backbone}.stem" if resnet_layers else backbone
    result = [kernel(f"{root}.conv", "conv_root"), *norm(f"{root}.norm", "gn_root")]
    for path in stem_paths(resnet_layers)[3:]:
        block, unit, part, leaf = path.split("/")
        if leaf == "kernel":
            old = f"{backbone}.stages.{int(block[5:]) - 1}.blocks.{int(unit[4:]) - 1}"
            ours, number = f"{block}/{unit}", part[4:]
            projects = number == "_proj"
            theirs = ("downsample.conv", "downsample.norm") if projects else (part, f"norm{number}")
            result.append(kernel(f"{old}.{theirs[0]}", f"{ours}/{part}"))
            result += norm(f"{old}.{theirs[1]}", f"{ours}/gn{number}")
    return result


def _block(old, new, num_heads):
    attention = f"{new}/MultiHeadDotProductAttention_1"
    qkv = f"{old}.attn.qkv"
    return [
        *norm(f"{old}.norm1", f"{new}/LayerNorm_0"),
        *fused(f"{qkv}.weight", f"{qkv}.bias", attention, ("query", "key", "value"), num_heads),
        *heads_out(f"{old}.attn.proj", f"{attention}/out", num_heads),
        *norm(f"{old}.norm2", f"{new}/LayerNorm_2"),
        *dense(f"{old}.mlp.fc1", f"{new}/MlpBlock_3/Dense_0"),
        *dense(f"{old}.mlp.fc2", f"{new}/MlpBlock_3/Dense_1"),
    ]


def _pool(num_heads):
    attention, kv = "MAPHead_0/MultiHeadDotProductAttention_0", "attn_pool.kv"
    return [
        same("attn_pool.latent", "MAPHead_0/probe"),
        *heads_in("attn_pool.q", f"{attention}/query", num_heads),
        *fused(f"{kv}.weight", f"{kv}.bias", attention, ("key", "value"), num_heads),
        *heads_out("attn_pool.proj", f"{attention}/out", num_heads),
        *norm("attn_pool.norm", "MAPHead_0/LayerNorm_0"),
        *dense("attn_pool.mlp.fc1", "MAPHead_0/MlpBlock_0/Dense_0"),
        *dense("attn_pool.mlp.fc2", "MAPHead_0/MlpBlock_0/Dense_1"),
    ]


def infer(shapes: dict, config: dict) -> dict:
    hidden_size, channels, *patch_size = shapes["patch_embed.proj.weight"]
    classifier = _classifier(shapes)
    arguments = {
        "patch_size": tuple(patch_size),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": count_blocks(shapes, "blocks."),
        "mlp_dim": shapes["blocks.0.mlp.fc1.weight"][0],
        "num_classes": shapes.get("head.weight", (None,))[0],
        "classifier": classifier,
        "representation_size": shapes.get("pre_logits.weight", (None,))[0],
    }
    arguments |= _stem_sizes(shapes)
    positions, token = shapes["pos_embed"][1], classifier == "token"
    stages = arguments.get("resnet_layers")
    arguments |= guess_image_size(positions, arguments["patch_size"], token, stages)
    return arguments | _configured(hidden_size, config)


def _stem_sizes(shapes):
    backbone = "patch_embed.backbone"
    for root, pattern in (
        (f"{backbone}.conv.weight", None),
        (f"{backbone}.stem.conv.weight", r"^patch_embed\.backbone\.stages\.(\d+)\.blocks\.(\d+)\."),
    ):
        if root in shapes:
            width, channels, *_ = shapes[root]
            return {
                "resnet_layers": count_units(shapes, pattern) if pattern else (),
                "resnet_width": width / variants.ROOT_WIDTH,
                "channels": channels,
            }
    return {}


def _classifier(shapes):
    if "attn_pool.latent" in shapes:
        return "map"
    if "cls_token" in shapes:
        return "token"
    return "gap_norm" if "fc_norm.weight" in shapes else "gap"


def _configured(hidden_size, config):
    """The number of heads and the image size that `config.json` says."""
    arguments, timm_arguments = dict[str, Any](), config.get("model_args", {})
    input_size = config.get("pretrained_cfg", {}).get("input_size", [None])  # C, H, W
    size = timm_arguments.get("img_size", input_size[1:])
    if size:
        arguments["image_size"] = (size, size) if isinstance(size, int) else tuple(size)
    if "num_heads" in timm_arguments:
        arguments["num_heads"] = timm_arguments["num_heads"]
    elif re.match(r"vit_(tiny|small|base|large|huge)_", config.get("architecture", "")):
        rows = [row for row in variants.VARIANTS.values() if isinstance(row, variants.Variant)]
        heads = [row.num_heads for row in rows if row.hidden_size == hidden_size]
        arguments |= {"num_heads": heads[0]} if heads else {}
    return arguments


def numerics(config: dict) -> Numerics:
    source = config.get("pretrained_cfg", {})
    preprocessing = Preprocessing(
        mean=tuple(source.get("mean", (0.5, 0.5, 0.5))),
        std=tuple(source.get("std", (0.5, 0.5, 0.5))),
        interpolation=source.get("interpolation", "bicubic"),
        antialias=True,
        crop_fraction=source.get("crop_pct", 0.9),
    )
    tanh, names = config.get("model_args", {}).get("act_layer") in TANH, config.get("label_names")
    return Numerics(
        gelu="tanh" if tanh else "exact",
        preprocessing=preprocessing,
        resizing=resizing_of(config.get("architecture", "")),
        standardization="timm",
        group_norm_epsilon=1e-5,
        class_names=None if names is None else tuple(names),
    )


def check(arch: VisionTransformerArchitecture) -> None:
    if arch.representation_size is not None:
        raise ValueError(
            "timm's Vision Transformer has no hidden layer `pre_logits` before its head. "
            f"Received: representation_size={arch.representation_size}; torchvision's has one"
        )
    refuse_distilled(arch, "timm's VisionTransformer")


def _arguments(arch):
    """The arguments of timm's constructor."""
    return {
        "img_size": list(arch.image_size),
        "patch_size": list(arch.patch_size),
        "embed_dim": arch.hidden_size,
        "depth": arch.num_layers,
        "num_heads": arch.num_heads,
        "mlp_ratio": arch.mlp_dim / arch.hidden_size,
        "class_token": arch.classifier == "token",
        "global_pool": POOLS[arch.classifier],
        **({"in_chans": arch.channels} if arch.channels != 3 else {}),
        **({"fc_norm": False} if arch.classifier == "gap" else {}),
        **({"act_layer": "gelu_tanh"} if arch.gelu == "tanh" else {}),
    }


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    if isinstance(arch, HybridArchitecture):
        raise ValueError(
            "A timm folder describes a plain Vision Transformer; a hybrid is written to a "
            f".safetensors or .pth file. Received: resnet_layers={arch.resnet_layers}"
        )
    pixels, crop = numerics.preprocessing, numerics.preprocessing.crop_fraction
    source = {
        "input_size": [arch.channels, *arch.image_size],
        "interpolation": pixels.interpolation,
        "crop_pct": 1.0 if crop is None else crop,
        "crop_mode": "squash" if crop is None else "center",
        "mean": list(pixels.mean) * (arch.channels if len(pixels.mean) == 1 else 1),
        "std": list(pixels.std) * (arch.channels if len(pixels.std) == 1 else 1),
        "num_classes": arch.num_classes or 0,
        "first_conv": "patch_embed.proj",
        "classifier": "head",
    }
    config = {
        "architecture": "vit_base_patch16_224",
        "num_classes": arch.num_classes or 0,
        "num_features": arch.hidden_size,
        "global_pool": POOLS[arch.classifier],
        "model_args": _arguments(arch),
        "pretrained_cfg": source,
    }
    names = numerics.class_names
    return {"config.json": {**config, **({} if names is None else {"label_names": list(names)})}}


FORMAT = Format(
    name="timm",
    suffixes=(".safetensors", ".pth"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    slots_optional=True,
    canonical=canonical,
    head=("head.", "pre_logits."),
    check=check,
    config_files=config_files,
)
