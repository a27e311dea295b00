"""Google's `.npz` of the original ViT and of AugReg: `vit_jax`, arXiv 2010.11929 and 2106.10270.

Our names and layouts are theirs. Files of the Linen API number a block's parts from 0 per class,
and training states have the prefix `opt/target/`; both are read, the original is written.
"""

import re

from vit_keras.models import Preprocessing
from vit_keras.weights.architectures import resnet as stems
from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.formats.base import Format, Link, Numerics, same, unpadded

TRANSFORMER = ("encoderblock_", "encoder_norm/", "posembed_input/")
NORM = re.compile(r"/(gamma|beta)$")
LINEN = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
_LINEN = re.compile(rf"(encoderblock(?:_\d+)?)/({'|'.join(LINEN)})/")
POSITIONS = "Transformer/posembed_input/pos_embedding"


def published_name(path: str) -> str:
    """`encoderblock_0/LayerNorm_0/gamma` as `Transformer/encoderblock_0/LayerNorm_0/scale`."""
    name = NORM.sub(lambda m: {"gamma": "/scale", "beta": "/bias"}[m[1]], path)
    name = {"cls/cls": "cls"}.get(name, name)
    return f"Transformer/{name}" if name.startswith(TRANSFORMER) else name


def canonical(name: str) -> str:
    """The original numbering, without a prefix."""
    name = re.sub(r"^(opt/target/|params/)", "", name)
    return _LINEN.sub(lambda m: f"{m[1]}/{LINEN[m[2]]}/", name)


def detect(names: set[str]) -> bool:
    return POSITIONS in names and "embedding/kernel" in names


def links(arch: architecture.Architecture, names=None) -> list[Link]:
    return [
        (unpadded if "gn" in path else same)(published_name(path), path)  # GroupNorm, (1, 1, 1, C)
        for path in architecture.paths(arch)
    ]


def sizes(shapes: dict, blocks: int, block: str) -> dict:
    """The arguments that names and shapes give; `block` is the prefix of one block."""
    height, width, channels, hidden_size = shapes["embedding/kernel"]
    token, pooled = "cls" in shapes, "MAPHead_0/probe" in shapes
    heads = shapes[f"{block}/MultiHeadDotProductAttention_1/query/kernel"][-2]
    return {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": blocks,
        "num_heads": heads,
        "mlp_dim": shapes[f"{block}/MlpBlock_3/Dense_0/kernel"][-1],
        "num_classes": shapes["head/kernel"][-1] if "head/kernel" in shapes else None,
        "classifier": "token" if token else "map" if pooled else "gap",
        "representation_size": shapes.get("pre_logits/kernel", (None,))[-1],
    }


def infer(shapes: dict, config: dict) -> dict:
    blocks = architecture.count(shapes, "Transformer/encoderblock_")
    found = sizes(shapes, blocks, "Transformer/encoderblock_0")
    token = found["classifier"] == "token"
    found |= _stem(shapes)
    patch_size, positions = found["patch_size"], shapes[POSITIONS][1]
    stages = found.get("resnet_layers")
    return {**found, **architecture.guess_image_size(positions, patch_size, token, stages)}


def _stem(shapes):
    if "conv_root/kernel" not in shapes:
        return {}
    *_, channels, width = shapes["conv_root/kernel"]
    return {
        "resnet_layers": stems.count_units(shapes, r"^block(\d+)/unit(\d+)/conv1/"),
        "resnet_width": width / stems.WIDTH,
        "channels": channels,
    }


def check(arch: architecture.Architecture) -> None:
    if arch.classifier not in ("token", "gap"):
        raise ValueError(
            'Google\'s files hold models with classifier "token" or "gap". '
            f"Received: classifier={arch.classifier!r}; big_vision's format holds attention pooling"
        )


NUMERICS = Numerics(gelu="tanh", preprocessing=Preprocessing())

FORMAT = Format(
    name="google",
    suffixes=(".npz",),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: NUMERICS,
    canonical=canonical,
    head=("head/", "pre_logits/"),
    ignored=("opt/state/",),
    check=check,
)
