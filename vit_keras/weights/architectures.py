"""The sizes that determine the names and shapes of a model's variables, and its computation."""

import dataclasses
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

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
from vit_keras.layers.base import GELUS
from vit_keras.layers.common import READ_CLASS_TOKEN, Prefix, ViTOptions
from vit_keras.layers.residual import STANDARDIZATIONS
from vit_keras.models import HybridViT, Preprocessing, ResNet, VisionTransformer, positions_of
from vit_keras.models.image_model import ImageModel
from vit_keras.support.checks import check_choices, check_types
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, Resizing, with_tuples
from vit_keras.support.tasks import CLASSES, Task
from vit_keras.variants import ROOT_WIDTH, stem_stride

# How the paths of the variables that other projects' files can hold begin.
LAYERS = re.compile(
    r"(embedding|cls|dist|registers|posembed_\w+|pre_norm|encoderblock_\d+|encoder_norm|MAPHead_0|"
    r"pre_logits|head\w*|conv_root|gn_root|root_block|block\d+|norm-pre-head)/"
)


def _paths(model):
    return tuple(v.path for v in model.weights if LAYERS.match(v.path))


def grid_of(sizes: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the rows and columns of patches of a model with these `sizes`."""
    stages = sizes.get("resnet_layers")
    stride = 1 if stages is None else stem_stride(tuple(stages))
    pairs = zip(sizes["image_size"], sizes["patch_size"])
    rows, columns = (size // (patch * stride) for size, patch in pairs)
    return rows, columns


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
    paths: tuple[str, ...] = dataclasses.field(default=(), kw_only=True, repr=False)

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
            paths=_paths(model),
        )

    @property
    def arguments(self) -> dict:
        """The arguments of the constructor."""
        fields = vars(self).items()
        return {name: value for name, value in fields if name != "paths"}


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
        paths: The paths of the model's variables, in the order of its layers.
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
    paths: tuple[str, ...] = dataclasses.field(default=(), kw_only=True, repr=False)

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

    @property
    def arguments(self) -> dict:
        """Returns the constructor's arguments; positions and options only if unlike the paper's.

        The activation of the classifier is included if Keras has it.
        """
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        options, _ = fields.pop("options"), fields.pop("paths")
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
        return grid_of(vars(self))


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
    """Returns the variables, what the classifier reads, the positions and the options."""
    (kind, place), options = positions_of(model), options_of(facts)
    if kind == "rope2d":  # only rotary positions
        kind, options = "none", dataclasses.replace(options, rope=options.rope or Rope())
    return {
        "paths": _paths(model),
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


# The arguments of `VisionTransformer` that built a model follow from its layers, as `LayerFacts` in
# the order of computation. These come from a built model, or from the configuration in a `.keras`
# file.
class LayerFacts(NamedTuple):
    """A layer's name, the name of its class, and its arguments, perhaps with other attributes."""

    name: str
    kind: str
    config: dict[str, Any]


def facts_of(model: keras.Model) -> list[LayerFacts]:
    """Returns the facts of a built model's layers, in the order of computation."""
    return [LayerFacts(x.name, type(x).__name__, vars(x)) for x in model.layers]


def classifier_of(layers: Sequence[LayerFacts]) -> str:
    """Returns the argument `classifier` of the model with these layers."""
    names = [layer.name for layer in layers]
    if any(layer.kind == "MAPHead" for layer in layers):
        return "map"
    for name, classifier in (("dist_token", "distilled"), ("token_gap", "token_gap")):
        if name in names:
            return classifier
    if any(layer.kind == "TakeClassToken" for layer in layers):
        return "token"
    if "gap" not in names and "cls" in names:
        return "token"
    pooled_first = {"gap", "encoder_norm"} <= {*names} and (
        names.index("gap") < names.index("encoder_norm")
    )
    return "gap_norm" if pooled_first else "gap"


def options_of(layers: Sequence[LayerFacts]) -> ViTOptions:
    """Returns the `ViTOptions` of the model with these layers."""
    by_name = {layer.name: layer for layer in layers}
    by_kind = {layer.kind: layer.config for layer in reversed(layers)}
    classifier, (block, global_blocks) = classifier_of(layers), _blocks(layers)
    embedding, pool = by_kind.get("PatchEmbedding", {}), by_kind.get("MAPHead")
    registers = by_kind.get("RegisterTokens", {}).get("num_registers", 0)
    has_prefix = registers or "cls" in by_name or "dist" in by_name
    return ViTOptions(
        **vars(BlockOptions.of(block.get("options"))),
        global_blocks=global_blocks,
        class_token="cls" in by_name and classifier not in READ_CLASS_TOKEN,
        distillation_token="dist" in by_name and classifier != "distilled",
        num_registers=registers,
        position_cover=_position_cover([layer.name for layer in layers]),
        crop_to_patches=embedding.get("crop", False),
        pre_norm="pre_norm" in by_name,
        final_norm="encoder_norm" in by_name,
        pool_all_tokens=bool(pool and has_prefix and "patch_tokens" not in by_name),
        map_heads=_other("num_heads", pool, block),
        map_mlp_dim=_other("mlp_dim", pool, block),
        boxes=_boxes(by_name),
        head_use_bias="head" not in by_name or by_name["head"].config.get("use_bias", True),
    )


def _blocks(layers):
    """The arguments of a block, with windows if any has them, and the indices of those without."""
    blocks = [layer.config for layer in layers if layer.kind == "EncoderBlock"] or [{}]
    options = [BlockOptions.of(block.get("options")) for block in blocks]
    windowed = [of_block.window_size is not None for of_block in options]
    if not any(windowed):
        return blocks[0], ()
    return blocks[windowed.index(True)], tuple(i for i, is_in in enumerate(windowed) if not is_in)


def _boxes(names):
    """Returns the option `boxes` from the names of the layers."""
    if "head_boxes" not in names:
        return None
    if "head_scale" in names:
        return "texts_objectness" if "head_objectness" in names else "texts"
    return "tokens" if "detection_tokens" in names else "patches"


def _other(size, pool, block):
    """A size of the attention pool, or None if it equals the blocks'."""
    value = None if pool is None else pool[size]
    return None if value == block.get(size) else value


def _position_cover(names):
    """The tokens that positions cover; "all" if no tokens follow the positions."""
    place = names.index("posembed_input") if "posembed_input" in names else len(names)
    later = [name for name in ("cls", "dist", "registers") if name in names[place:]]
    if not later:
        return "all"
    return "class" if later == ["registers"] and "cls" in names else "patches"


def class_for(sizes: dict) -> type[VisionTransformerArchitecture] | type[ResNetArchitecture]:
    """Returns the architecture class of a model with these `sizes`, which may be incomplete."""
    if "hidden_size" not in sizes:
        return ResNetArchitecture
    if sizes.get("resnet_layers") is None:
        return VisionTransformerArchitecture
    return HybridArchitecture


PUBLISHED_RESIZING = Resizing()


@dataclasses.dataclass(frozen=True)
class Numerics:
    """How a format's original code computes, prepares images and resizes a grid.

    Attributes:
        gelu: "exact", "tanh" or "quick".
        layer_norm_epsilon: The epsilon of all layer normalizations; None if the file does not give
            it, so a model keeps its own.
        preprocessing: How pixels become the model's input.
        resizing: The rules for position embeddings and patch kernels of other sizes.
        standardization: How the convolutions of a hybrid's stem standardize their kernels.
        group_norm_epsilon: The epsilon of all group normalizations in a hybrid's stem.
        class_names: Names of the classes in the order of the logits, or None.
        task: What the outputs mean.
    """

    gelu: str = "exact"
    layer_norm_epsilon: float | None = 1e-6
    preprocessing: Preprocessing = PUBLISHED_PREPROCESSING
    resizing: Resizing = PUBLISHED_RESIZING
    standardization: str = "vit"
    group_norm_epsilon: float = 1e-6
    class_names: tuple[str, ...] | None = None
    task: Task = CLASSES

    def __post_init__(self):
        check_types(self)
        check_choices(self, {"gelu": GELUS, "standardization": STANDARDIZATIONS})
        for name in ("layer_norm_epsilon", "group_norm_epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {value!r}")

    def to_json(self) -> dict:
        """Returns the fields as JSON values for a file's metadata; a task of classes is omitted."""
        fields = dataclasses.asdict(self)
        if self.task == CLASSES:
            del fields["task"]
        return fields

    @classmethod
    def from_json(cls, fields: dict) -> "Numerics":
        """The reverse of `to_json`."""
        fields = with_tuples(fields)
        fields["task"] = Task(**with_tuples(fields["task"])) if "task" in fields else CLASSES
        fields["preprocessing"] = Preprocessing(**with_tuples(fields["preprocessing"]))
        fields["resizing"] = Resizing(**fields["resizing"])
        return cls(**fields)
