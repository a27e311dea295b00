"""The sizes that determine the names and shapes of a model's variables."""

import dataclasses
import inspect
import math
from collections.abc import Callable
from typing import Any, ClassVar

import keras

from vit_keras.layers import (
    BlockOptions,
    EncoderBlock,
    PatchEmbedding,
    ResNetStage,
    RootBlock,
    Rope,
    StdConv,
)
from vit_keras.layers.block_options import PAPER, QKV_BIASES
from vit_keras.models import HybridViT, ResNet, VisionTransformer, positions_of
from vit_keras.models.boxes import head_layers
from vit_keras.models.common import argument_names
from vit_keras.models.image_model import ImageModel
from vit_keras.models.layer_facts import classifier_of, facts_of, options_of
from vit_keras.models.options import ViTOptions
from vit_keras.models.position_embeddings import NAMES
from vit_keras.models.prefix import Prefix
from vit_keras.variants import ROOT_WIDTH, stem_stride

ATTENTION_PROJECTIONS = ("query", "key", "value", "out")
RELATIVE = {"relative": "relative/embedding", "relative_2d": "relative_2d/table"}


def block_paths(
    block: str, options: BlockOptions = PAPER, position_embedding: str | None = None
) -> list[str]:
    """The paths of one encoder block's variables."""
    attention, kind = f"{block}/MultiHeadDotProductAttention_1", options.norm
    relative = RELATIVE.get((position_embedding or "").removeprefix("learned_"))
    rope = options.rope
    scales = options.layer_scale is not None
    return [
        *norm_paths(f"{block}/LayerNorm_0", kind),
        *attention_paths(attention, options),
        *([f"{attention}/{relative}"] if relative else []),
        *([f"{attention}/rotary/frequencies"] if rope is not None and rope.mixed else []),
        *([f"{block}/LayerScale_0/gamma"] if scales else []),
        *([] if options.parallel else norm_paths(f"{block}/LayerNorm_2", kind)),
        *mlp_paths(f"{block}/MlpBlock_3", options),
        *([f"{block}/LayerScale_1/gamma"] if scales and not options.parallel else []),
    ]


def map_head_paths(head: str) -> list[str]:
    """The paths of an attention pooling head's variables."""
    return [
        f"{head}/probe",
        *attention_paths(f"{head}/MultiHeadDotProductAttention_0"),
        *norm_paths(f"{head}/LayerNorm_0"),
        *mlp_paths(f"{head}/MlpBlock_0"),
    ]


def dense_paths(name: str) -> list[str]:
    """The paths of a dense layer's kernel and bias."""
    return [f"{name}/kernel", f"{name}/bias"]


def norm_paths(name: str, kind: str = "layer") -> list[str]:
    """The paths of a normalization's gamma and beta, or of the scale of kind "rms"."""
    return [f"{name}/scale"] if kind == "rms" else [f"{name}/gamma", f"{name}/beta"]


def attention_paths(name: str, options: BlockOptions = PAPER) -> list[str]:
    """Returns the paths of the variables in attention's projections and normalizations."""
    biased = (*QKV_BIASES[options.qkv_bias], "out")
    paths = [
        path
        for part in ATTENTION_PROJECTIONS
        for path in dense_paths(f"{name}/{part}")[: 2 if part in biased else 1]
    ]
    norms = ["query_norm", "key_norm"] if options.qk_norm else []
    norms += ["norm"] if options.attention_norm else []
    return paths + [path for norm in norms for path in norm_paths(f"{name}/{norm}", options.norm)]


def mlp_paths(name: str, options: BlockOptions = PAPER) -> list[str]:
    """The paths of the variables in an MLP's dense layers and its normalization."""
    gate = dense_paths(f"{name}/gate") if options.mlp == "swiglu" else []
    norm = norm_paths(f"{name}/norm", options.norm) if options.mlp_norm else []
    return gate + dense_paths(f"{name}/Dense_0") + norm + dense_paths(f"{name}/Dense_1")


def stem_paths(resnet_layers: tuple[int, ...]) -> list[str]:
    """The paths of a hybrid's ResNet stem.

    A norm follows each convolution, and `unit1` of each stage has a projection.
    """
    paths = ["conv_root/kernel", *norm_paths("gn_root")]
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u}"
            for part in ("1", "2", "3", "_proj") if u == 1 else ("1", "2", "3"):
                paths += [f"{unit}/conv{part}/kernel", *norm_paths(f"{unit}/gn{part}")]
    return paths


def resnet_paths(resnet_layers: tuple[int, ...]) -> list[str]:
    """The paths of BiT's ResNet without its head.

    A norm precedes each convolution, and `unit01` of each stage has a projection.
    """
    paths = ["root_block/conv_root/kernel"]
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u:02d}"
            paths += [f"{unit}/conv_proj/kernel"] if u == 1 else []
            for part in "123":
                paths += [f"{unit}/conv{part}/kernel", *norm_paths(f"{unit}/gn{part}")]
    return paths + norm_paths("norm-pre-head")


@dataclasses.dataclass(frozen=True)
class ResNetArchitecture:
    """The arguments of `ResNet` that determine names and shapes.

    `VisionTransformerArchitecture` documents the class attributes.
    """

    constructor: ClassVar[Callable[..., ImageModel]] = staticmethod(ResNet)
    numerics_fields: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {"image_size": None, "num_classes": None}

    image_size: tuple[int | None, int | None]
    channels: int
    resnet_layers: tuple[int, ...]
    resnet_width: float
    num_classes: int | None

    @staticmethod
    def from_model(model: keras.Model) -> "ResNetArchitecture":
        """Reads the architecture from a built `ResNet`.

        Raises:
            ValueError: If the model is not a `ResNet`.
        """
        roots = [layer for layer in model.layers if isinstance(layer, RootBlock)]
        if len(roots) != 1:
            raise ValueError(
                f"BiT's files hold models of `ResNet`. Received: model {model.name!r}, which has "
                "no RootBlock"
            )
        stages = [layer for layer in model.layers if isinstance(layer, ResNetStage)]
        head = next((layer for layer in model.layers if layer.name == "head"), None)
        return ResNetArchitecture(
            image_size=tuple(model.input_shape[1:3]),
            channels=model.input_shape[-1],
            resnet_layers=tuple(stage.num_units for stage in stages),
            resnet_width=roots[0].filters / ROOT_WIDTH,
            num_classes=None if head is None else head.units,
        )

    @classmethod
    def argument_names(cls) -> set[str]:
        """The names of the constructor's arguments."""
        return set(inspect.signature(ResNet).parameters)

    @property
    def arguments(self) -> dict:
        """The arguments of the constructor."""
        return dataclasses.asdict(self)

    def paths(self) -> list[str]:
        """The paths of the model's variables, in the order of its layers."""
        head = dense_paths("head") if self.num_classes is not None else []
        return resnet_paths(self.resnet_layers) + head


# The positions that files of other projects can hold.
KINDS = ("learned", "none", "sincos2d", "rope2d", "relative_2d", "learned_relative_2d")
POSITIONS = [("learned", "every"), *((kind, "stem") for kind in KINDS)]


@dataclasses.dataclass(frozen=True)
class VisionTransformerArchitecture:
    """The arguments of `VisionTransformer` that determine names, shapes and values.

    Attributes:
        constructor: The function in `vit_keras.models` that builds such a model.
        numerics_fields: The fields of `Numerics` that are arguments of the constructor.
        required: The arguments that are needed to build a model.
        defaults: The constructor's arguments for what a file does not specify.
    """

    constructor: ClassVar[Callable[..., ImageModel]] = staticmethod(VisionTransformer)
    numerics_fields: ClassVar[tuple[str, ...]] = ("gelu", "layer_norm_epsilon")
    required: ClassVar[tuple[str, ...]] = (
        *("classifier", "image_size", "patch_size", "hidden_size", "num_layers"),
        *("num_heads", "mlp_dim"),
    )
    defaults: ClassVar[dict[str, Any]] = {"num_classes": None}

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
    position_embedding: str = dataclasses.field(default="learned", kw_only=True)
    position_embedding_at: str = dataclasses.field(default="stem", kw_only=True)
    options: ViTOptions = dataclasses.field(default=ViTOptions(), kw_only=True)
    classifier_activation: str | None = dataclasses.field(default=None, kw_only=True)

    @staticmethod
    def from_model(model: keras.Model) -> "VisionTransformerArchitecture":
        """Reads the architecture from a built model.

        Returns:
            A `HybridArchitecture` for a model with a ResNet stem.

        Raises:
            ValueError: If the model is not a Vision Transformer, or if no project's files can hold
                its positions.
        """
        _check_vision_transformer(model)
        stem = _stem_sizes(model)
        facts = facts_of(model)
        sizes = _transformer_sizes(model) | _design(model, facts)
        if sizes["num_classes"] is not None:
            sizes["num_classes"] -= sizes["options"].extra_classes
        return (
            HybridArchitecture(**sizes, **stem) if stem else VisionTransformerArchitecture(**sizes)
        )

    @classmethod
    def argument_names(cls) -> set[str]:
        """The names of the constructor's arguments."""
        return set(argument_names(VisionTransformer))

    @property
    def arguments(self) -> dict:
        """Returns the constructor's arguments; positions and options only if not the paper's.

        The activation of the classifier is included if Keras has it.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        options = fields.pop("options")
        if self.position_embedding == "learned":
            del fields["position_embedding"]
        if self.position_embedding_at == "stem":
            del fields["position_embedding_at"]
        if not hasattr(keras.activations, self.classifier_activation or ""):
            del fields["classifier_activation"]
        return {**fields, **options.changed()}

    @property
    def prefix(self) -> Prefix:
        """The tokens before the patches."""
        return Prefix.of(self.classifier, self.options)

    @property
    def num_positions(self) -> int:
        """The number of added positions."""
        return math.prod(self.grid) + self.prefix.positions(self.options.position_cover)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        rows, columns = (size // patch for size, patch in zip(self.image_size, self.patch_size))
        return rows, columns

    def position_paths(self) -> list[str]:
        """The paths of the learned positions that are added to tokens, in order."""
        if not self.position_embedding.startswith("learned"):
            return []
        name, every = NAMES[self.position_embedding_at], self.position_embedding_at == "every"
        return [f"{name.format(i)}/pos_embedding" for i in range(self.num_layers if every else 1)]

    def paths(self) -> list[str]:
        """The paths of the model's variables, in the order of its layers."""
        options, kind = self.options, self.options.norm
        paths = dense_paths("embedding")[: 1 if options.pre_norm else 2]
        paths += [f"{name}/cls" for name in self.prefix.names]
        paths += ["registers/registers"] if options.num_registers else []
        positions = self.position_paths()
        paths += positions[:1]
        paths += norm_paths("pre_norm", kind) if options.pre_norm else []
        for i in range(self.num_layers):
            paths += positions[i : i + 1] if i else []
            paths += block_paths(f"encoderblock_{i}", options, self.position_embedding)
        paths += norm_paths("encoder_norm", kind) if options.final_norm else []
        paths += map_head_paths("MAPHead_0") if self.classifier == "map" else []
        paths += dense_paths("pre_logits") if self.representation_size is not None else []
        if self.num_classes is not None and options.boxes is not None:
            for name in head_layers(options.boxes):
                paths += norm_paths(name, kind) if name == "head_norm" else dense_paths(name)
        elif self.num_classes is not None:
            paths += dense_paths("head")[: 2 if options.head_use_bias else 1]
            paths += dense_paths("head_dist") if self.classifier == "distilled" else []
        return paths


@dataclasses.dataclass(frozen=True)
class HybridArchitecture(VisionTransformerArchitecture):
    """The arguments of `HybridViT` that determine names, shapes and values."""

    constructor: ClassVar[Callable[..., ImageModel]] = staticmethod(HybridViT)
    numerics_fields: ClassVar[tuple[str, ...]] = (
        *VisionTransformerArchitecture.numerics_fields,
        "standardization",
        "group_norm_epsilon",
    )

    resnet_layers: tuple[int, ...]
    resnet_width: float
    standardization: str
    group_norm_epsilon: float

    @classmethod
    def argument_names(cls) -> set[str]:
        return super().argument_names() | set(inspect.signature(HybridViT).parameters)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches, with sizes in cells of the stem's map."""
        stride = stem_stride(self.resnet_layers)
        sizes = zip(self.image_size, self.patch_size)
        rows, columns = (size // (patch * stride) for size, patch in sizes)
        return rows, columns

    def paths(self) -> list[str]:
        return stem_paths(self.resnet_layers) + super().paths()


def _check_vision_transformer(model):
    patches = [layer for layer in model.layers if isinstance(layer, PatchEmbedding)]
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    if not blocks or len(patches) != 1:
        raise ValueError(
            "Other projects' formats hold Vision Transformers, which have one PatchEmbedding and "
            f"EncoderBlocks. Received: model {model.name!r}; save it as .keras or .weights.h5"
        )
    if (positions := positions_of(model)) not in POSITIONS:
        raise ValueError(
            "Other projects' formats hold models whose positions are added once and learned or "
            "fixed, rotary, or BEiT's. Received: model {!r} with position_embedding={!r}, "
            "position_embedding_at={!r}; save it as .keras or .weights.h5".format(
                model.name, *positions
            )
        )


def _design(model, facts):
    """Returns what the classifier reads, the positions and the options."""
    (kind, place), options = positions_of(model), options_of(facts)
    if kind == "rope2d":  # only rotary positions
        kind, options = "none", dataclasses.replace(options, rope=options.rope or Rope())
    return {
        "classifier": classifier_of(facts),
        "position_embedding": kind,
        "position_embedding_at": place,
        "options": options,
    }


def _transformer_sizes(model):
    layers = {layer.name: layer for layer in model.layers}
    embedding = next(layer for layer in model.layers if isinstance(layer, PatchEmbedding))
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    head, pre_logits = layers.get("head"), layers.get("pre_logits")
    images = layers.get("conv_root", embedding).input  # (B, H, W, C)
    return {
        "image_size": tuple(images.shape[1:3]),
        "patch_size": embedding.patch_size,
        "channels": images.shape[-1],
        "hidden_size": embedding.hidden_size,
        "num_layers": len(blocks),
        "num_heads": blocks[0].num_heads,
        "mlp_dim": blocks[0].mlp_dim,
        "num_classes": None if head is None else head.units,
        "representation_size": None if pre_logits is None else pre_logits.units,
        "classifier_activation": None if head is None else _name_of(head.activation),
        "gelu": blocks[0].gelu,
        "layer_norm_epsilon": blocks[0].layer_norm_epsilon,
    }


def _name_of(activation):
    """Returns the name of a Keras activation; None for any other function and for None."""
    name = getattr(activation, "__name__", "")
    if activation is keras.activations.linear:
        return None
    return name if getattr(keras.activations, name, None) is activation else repr(activation)


def _stem_sizes(model):
    """Returns the arguments of `HybridViT` for its stem; empty for a model without a stem."""
    root = next((layer for layer in model.layers if isinstance(layer, StdConv)), None)
    if root is None:
        return {}
    stages = [layer for layer in model.layers if isinstance(layer, ResNetStage)]
    return {
        "resnet_layers": tuple(stage.num_units for stage in stages),
        "resnet_width": root.filters / ROOT_WIDTH,
        "standardization": root.standardization,
        "group_norm_epsilon": model.get_layer("gn_root").epsilon,
    }
