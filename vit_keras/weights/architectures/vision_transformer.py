"""The sizes of a built model, read from its layers, and the paths of its variables."""

import dataclasses
import math
import re

import keras

from vit_keras import variants
from vit_keras.layers import EncoderBlock, MAPHead, PatchEmbedding
from vit_keras.models import positions_of
from vit_keras.weights.architectures import resnet as stems
from vit_keras.weights.numerics import Numerics

ATTENTION = ("query", "key", "value", "out")


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The arguments of `VisionTransformer` that decide names, shapes and values.

    A hybrid has `HybridViT`'s as well; `resnet_layers` is None without a stem.
    """

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
    resnet_layers: tuple[int, ...] | None = None
    resnet_width: float = 1.0
    standardization: str = "vit"
    group_norm_epsilon: float = 1e-6

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return grid_of(self.image_size, self.patch_size, self.resnet_layers)

    @property
    def arguments(self) -> dict:
        """Of the constructor: those of a stem only where there is one."""
        sizes = dataclasses.asdict(self)
        stem = ("resnet_layers", "resnet_width", "standardization", "group_norm_epsilon")
        skipped = stem if self.resnet_layers is None else ()
        return {name: value for name, value in sizes.items() if name not in skipped}


def grid_of(image_size, patch_size, resnet_layers=None) -> tuple[int, int]:
    """Rows and columns of patches; those of a hybrid are cells of its stem's map."""
    stride = 1 if resnet_layers is None else variants.stem_stride(tuple(resnet_layers))
    return tuple(size // (patch * stride) for size, patch in zip(image_size, patch_size))


def describe(model: keras.Model) -> Architecture:
    """The architecture of a `VisionTransformer`; ValueError for another model."""
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    patches = [layer for layer in model.layers if isinstance(layer, PatchEmbedding)]
    if not blocks or len(patches) != 1:
        raise ValueError(
            "Other projects' formats hold Vision Transformers, models of one PatchEmbedding and "
            f"EncoderBlocks. Received: model {model.name!r}; save it as .keras or .weights.h5"
        )
    if (positions := positions_of(model)) != ("learned", "stem"):
        raise ValueError(
            "Other projects' formats hold models whose positions are learned and added once. "
            "Received: model {!r} with position_embedding={!r}, position_embedding_at={!r}; save "
            "it as .keras or .weights.h5".format(model.name, *positions)
        )
    layers = {layer.name: layer for layer in model.layers}
    embedding, head, pre_logits = patches[0], layers.get("head"), layers.get("pre_logits")
    return Architecture(
        image_size=tuple(_images(model, embedding).shape[1:3]),
        patch_size=embedding.patch_size,
        channels=_images(model, embedding).shape[-1],
        hidden_size=embedding.hidden_size,
        num_layers=len(blocks),
        num_heads=blocks[0].num_heads,
        mlp_dim=blocks[0].mlp_dim,
        num_classes=None if head is None else head.units,
        classifier=_classifier(model.layers, layers),
        representation_size=None if pre_logits is None else pre_logits.units,
        gelu=blocks[0].gelu,
        layer_norm_epsilon=blocks[0].layer_norm_epsilon,
        **stems.stem_sizes(model),
    )


def _images(model, embedding):
    """What the first layer of the architecture reads."""
    first = {layer.name: layer for layer in model.layers}.get("conv_root", embedding)
    return first.input


def _classifier(ordered, layers):
    if "cls" in layers:
        return "token"
    if any(isinstance(layer, MAPHead) for layer in ordered):
        return "map"
    names = [layer.name for layer in ordered]
    last = "gap" in names and names.index("gap") < names.index("encoder_norm")
    return "gap_norm" if last else "gap"


def set_numerics(model: keras.Model, numerics: Numerics) -> None:
    """Makes the stem, blocks, pooling and norms compute as the source of the weights did."""
    gelu, epsilon = numerics.gelu, numerics.layer_norm_epsilon
    stems.set_stem_numerics(model, numerics)
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
    names = [] if arch.resnet_layers is None else stems.stem_paths(arch.resnet_layers)
    names += ["embedding/kernel", "embedding/bias"]
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
    sizes = {"resnet_layers": None, **sizes}
    for name, row in variants.VARIANTS.items():
        wanted = {"resnet_layers": None, "hidden_size": None, **dataclasses.asdict(row)}
        wanted.pop("num_heads", None)  # which some files do not say
        if "patch_size" in wanted:
            wanted["patch_size"] = (row.patch_size, row.patch_size)
        if all(_tuple(sizes.get(field)) == value for field, value in wanted.items()):
            return name
    return None


def _tuple(value):
    return tuple(value) if isinstance(value, list) else value


def refuse_stem(arch: Architecture, project: str) -> None:
    """ValueError for a hybrid."""
    if arch.resnet_layers is not None:
        raise ValueError(
            f"{project}'s Vision Transformer has no ResNet stem; Google's and timm's have. "
            f"Received: a hybrid, resnet_layers={arch.resnet_layers}"
        )


def check_plausible(sizes: dict, file) -> None:
    """ValueError where a model of such `sizes` would have far more weights than `file` has.

    A few small tensors of odd shapes could otherwise claim any amount of memory.
    """
    held = sum(math.prod(shape) for shape in file.shapes.values())
    claimed = _least_parameters({"image_size": (0, 0), **sizes})
    if claimed > 2 * held + 10**6:
        raise ValueError(
            f"The shapes in {file.path!r} and what is said beside it contradict each other: a "
            f"model of {sizes} has at least {claimed} weights, the file {held}"
        )


def _least_parameters(sizes):
    """The large kernels of a model."""
    root = int(64 * sizes.get("resnet_width", 0))
    stages = sizes.get("resnet_layers") or ()
    total = sum(17 * (root * 2**s) ** 2 * units for s, units in enumerate(stages))
    if "hidden_size" in sizes:
        width, patch, layers = (sizes[k] for k in ("hidden_size", "patch_size", "num_layers"))
        rows, columns = grid_of(sizes["image_size"], patch, sizes.get("resnet_layers"))
        total += width * (math.prod(patch) + rows * columns + (sizes["num_classes"] or 0))
        total += layers * width * (4 * width + 2 * sizes["mlp_dim"])
    return total


def square(positions: int) -> int | None:
    """The side of a square of `positions` patches, or None."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None


def guess_image_size(
    positions: int, patch_size: tuple[int, int], class_token: bool, resnet_layers=None
) -> dict:
    """`{"image_size": (h, w)}` in pixels of a square grid; empty where the grid is not square."""
    side = square(positions - class_token)
    if side is None:
        return {}
    stride = 1 if resnet_layers is None else variants.stem_stride(resnet_layers)
    return {"image_size": tuple(side * patch * stride for patch in patch_size)}


def count(names, prefix: str) -> int:
    """How many blocks are called `{prefix}{i}…` in `names`."""
    found = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(found.match, names) if match})
