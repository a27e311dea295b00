"""Google's `.npz` of the original ViT and of AugReg: `vit_jax`, arXiv 2010.11929 and 2106.10270.

This package uses the same names and layouts. Files of the Linen API number the layers of a block
from 0 for each class, and training states have the prefix `opt/target/`; both can be read. Files
are written with the original names.
"""

import re

from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, same, unpadded
from vit_keras.weights.recognition import count_blocks, guess_image_size, resnet_sizes

TRANSFORMER = ("encoderblock_", "encoder_norm/", "posembed_input/")
NORM_VARIABLE = re.compile(r"/(gamma|beta)$")
LINEN_NAMES = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
_LINEN_LAYER = re.compile(rf"(encoderblock(?:_\d+)?)/({'|'.join(LINEN_NAMES)})/")
STEM = "conv_root/kernel"
POSITIONS = "Transformer/posembed_input/pos_embedding"


def published_name(path: str) -> str:
    """Turns `encoderblock_0/…/gamma` into `Transformer/encoderblock_0/…/scale`."""
    name = NORM_VARIABLE.sub(lambda m: {"gamma": "/scale", "beta": "/bias"}[m[1]], path)
    name = {"cls/cls": "cls"}.get(name, name)
    return f"Transformer/{name}" if name.startswith(TRANSFORMER) else name


def canonical(name: str) -> str:
    """Removes prefixes and restores the original numbering."""
    name = re.sub(r"^(opt/target/|params/)", "", name)
    return _LINEN_LAYER.sub(lambda m: f"{m[1]}/{LINEN_NAMES[m[2]]}/", name)


def detect(names: set[str]) -> bool:
    return POSITIONS in names and "embedding/kernel" in names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    return [
        (unpadded if "gn" in path else same)(published_name(path), path)  # GroupNorm, (1, 1, 1, C)
        for path in arch.paths
    ]


def sizes(shapes: dict, num_layers: int, block: str) -> dict:
    """Returns the arguments from names and shapes; `block` is the prefix of one block."""
    height, width, channels, hidden_size = shapes["embedding/kernel"]
    token, pooled = "cls" in shapes, "MAPHead_0/probe" in shapes
    heads = shapes[f"{block}/MultiHeadDotProductAttention_1/query/kernel"][-2]
    return {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": num_layers,
        "num_heads": heads,
        "mlp_dim": shapes[f"{block}/MlpBlock_3/Dense_0/kernel"][-1],
        "num_classes": shapes["head/kernel"][-1] if "head/kernel" in shapes else None,
        "classifier": "token" if token else "map" if pooled else "gap",
        "representation_size": shapes.get("pre_logits/kernel", (None,))[-1],
    }


def infer(shapes: dict, config: dict) -> dict:
    num_layers = count_blocks(shapes, "Transformer/encoderblock_")
    arguments = sizes(shapes, num_layers, "Transformer/encoderblock_0")
    arguments |= resnet_sizes(shapes, STEM) if STEM in shapes else {}
    return arguments | guess_image_size(
        shapes[POSITIONS][1],
        arguments["patch_size"],
        arguments["classifier"] == "token",
        arguments.get("resnet_layers"),
    )


NUMERICS = Numerics(gelu="tanh", preprocessing=PUBLISHED_PREPROCESSING)

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
    classifiers=("token", "gap"),
    hybrids=True,
)
