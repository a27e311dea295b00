"""The sizes of a built model, read from its layers, and the paths of its variables."""

import dataclasses
import math
import re

import keras

from vit_keras import variants
from vit_keras.layers import EncoderBlock, MAPHead, PatchEmbedding

ATTENTION = ("query", "key", "value", "out")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The arguments of `VisionTransformer` that decide names, shapes and values."""

    image_size: tuple[int, int]
    patch_size: tuple[int, int]
    channels: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    num_classes: int | None
    classifier: str
    representation_size: int | None
    gelu: str
    layer_norm_epsilon: float

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return tuple(size // patch for size, patch in zip(self.image_size, self.patch_size))


def describe(model: keras.Model) -> Architecture:
    """The architecture of a `VisionTransformer`; ValueError for another model."""
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    patches = [layer for layer in model.layers if isinstance(layer, PatchEmbedding)]
    if not blocks or len(patches) != 1:
        raise ValueError(
            "Other projects' formats hold Vision Transformers, models of one PatchEmbedding and "
            f"EncoderBlocks. Received: model {model.name!r}; save it as .keras or .weights.h5"
        )
    layers = {layer.name: layer for layer in model.layers}
    embedding, head, pre_logits = patches[0], layers.get("head"), layers.get("pre_logits")
    return Architecture(
        image_size=tuple(embedding.input.shape[1:3]),
        patch_size=embedding.patch_size,
        channels=embedding.input.shape[-1],
        hidden_size=embedding.hidden_size,
        num_layers=len(blocks),
        num_heads=blocks[0].num_heads,
        mlp_dim=blocks[0].mlp_dim,
        num_classes=None if head is None else head.units,
        classifier=_classifier(model.layers, layers),
        representation_size=None if pre_logits is None else pre_logits.units,
        gelu=blocks[0].gelu,
        layer_norm_epsilon=blocks[0].layer_norm_epsilon,
    )


def _classifier(ordered, layers):
    if "cls" in layers:
        return "token"
    if any(isinstance(layer, MAPHead) for layer in ordered):
        return "map"
    names = [layer.name for layer in ordered]
    last = "gap" in names and names.index("gap") < names.index("encoder_norm")
    return "gap_norm" if last else "gap"


def set_numerics(model: keras.Model, gelu: str, epsilon: float) -> None:
    """Makes the blocks, the pooling and the last norm compute as the source of the weights did."""
    for layer in model.layers:
        if isinstance(layer, (EncoderBlock, MAPHead)):
            layer.gelu = layer.mlp.gelu = gelu
            layer.layer_norm_epsilon = epsilon
            norms = (layer.norm,) if isinstance(layer, MAPHead) else (layer.norm_0, layer.norm_2)
            for norm in norms:
                norm.epsilon = epsilon
        elif layer.name == "encoder_norm":
            layer.epsilon = epsilon
    # Compiled steps hold the old numbers.
    model.train_function = model.test_function = model.predict_function = None


def paths(arch: Architecture) -> list[str]:
    """The paths of a model's variables, in the order of its layers."""
    names = ["embedding/kernel", "embedding/bias"]
    names += ["cls/cls"] if arch.classifier == "token" else []
    names += ["posembed_input/pos_embedding"]
    for i in range(arch.num_layers):
        names += block_paths(f"encoderblock_{i}")
    names += norm_paths("encoder_norm")
    if arch.classifier == "map":
        names += ["MAPHead_0/probe", *attention_paths("MAPHead_0/MultiHeadDotProductAttention_0")]
        names += norm_paths("MAPHead_0/LayerNorm_0") + mlp_paths("MAPHead_0/MlpBlock_0")
    names += dense_paths("pre_logits") if arch.representation_size is not None else []
    return names + (dense_paths("head") if arch.num_classes is not None else [])


def block_paths(block: str) -> list[str]:
    """Of one encoder block."""
    return [
        *norm_paths(f"{block}/LayerNorm_0"),
        *attention_paths(f"{block}/MultiHeadDotProductAttention_1"),
        *norm_paths(f"{block}/LayerNorm_2"),
        *mlp_paths(f"{block}/MlpBlock_3"),
    ]


def dense_paths(name: str) -> list[str]:
    """Of a dense layer."""
    return [f"{name}/kernel", f"{name}/bias"]


def norm_paths(name: str) -> list[str]:
    """Of a normalisation."""
    return [f"{name}/gamma", f"{name}/beta"]


def attention_paths(name: str) -> list[str]:
    """Of an attention layer's four projections."""
    return [path for part in ATTENTION for path in dense_paths(f"{name}/{part}")]


def mlp_paths(name: str) -> list[str]:
    """Of an MLP's two dense layers."""
    return dense_paths(f"{name}/Dense_0") + dense_paths(f"{name}/Dense_1")


def variant_name(sizes: dict) -> str | None:
    """The name of the variant of such sizes, as far as they are known: "L/16"."""
    fields = ("hidden_size", "num_layers", "mlp_dim")
    for name, row in variants.VARIANTS.items():
        patch = sizes.get("patch_size")
        same_patch = patch in (row.patch_size, (row.patch_size, row.patch_size))
        if same_patch and all(sizes.get(field) == getattr(row, field) for field in fields):
            return name
    return None


def square(positions: int) -> int | None:
    """The side of a square of `positions` patches, or None."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None


def guess_image_size(positions: int, patch_size: tuple[int, int], class_token: bool) -> dict:
    """`{"image_size": (h, w)}` in pixels of a square grid; empty where the grid is not square."""
    side = square(positions - class_token)
    return {} if side is None else {"image_size": tuple(side * patch for patch in patch_size)}


def count(names, prefix: str) -> int:
    """How many blocks are called `{prefix}{i}…` in `names`."""
    found = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(found.match, names) if match})
