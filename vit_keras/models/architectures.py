"""The constructor's arguments that a model carries: those for names, shapes and numerics.

A constructor stores them in `ImageModel.architecture`; a function that makes a model from another
one stores them with its changes. They are saved in `.keras` files.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import keras

from vit_keras.layers import EncoderBlock, PatchEmbedding
from vit_keras.layers.common import READ_CLASS_TOKEN, WITH_NO_OBJECT, Prefix, Rope, ViTOptions
from vit_keras.layers.positions import ADDED
from vit_keras.support.checks import check_annotated, check_types
from vit_keras.support.preprocessing import (
    PUBLISHED_PREPROCESSING,
    Preprocessing,
    Resizing,
    with_tuples,
)
from vit_keras.support.tasks import CLASSES, Task
from vit_keras.variants import stem_stride

# The beginnings of the paths of variables that other projects' files can hold.
LAYERS = re.compile(
    r"(embedding|cls|dist|registers|posembed_\w+|pre_norm|encoderblock_\d+|encoder_norm|MAPHead_0|"
    r"pre_logits|head\w*|conv_root|gn_root|root_block|block\d+|norm-pre-head)/"
)
NUMERICS = ("gelu", "layer_norm_epsilon")
# The position embeddings that these files can hold.
KINDS = ("learned", "none", "sincos2d", "rope2d", "relative_2d", "learned_relative_2d")
POSITIONS = [("learned", "every"), *((kind, "stem") for kind in KINDS)]
Classifier = Literal["token", "gap", "map", "gap_norm", "token_gap", "distilled"]
Place = Literal["stem", "every", "shared"]
Positions = Literal[
    "learned", "none", "learned_2d", "sincos2d", "relative", "rope2d", "relative_2d",
    "learned_relative_2d",
]  # fmt: skip


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

    constructor: ClassVar[str] = "ResNet"
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
        """Reads the architecture of a `ResNet`, with the paths of its variables.

        Raises:
            ValueError: If the model is not a `ResNet`.
        """
        arch = architecture_of(model)
        if not isinstance(arch, ResNetArchitecture):
            raise ValueError(
                f"BiT's format holds only models built by `ResNet`. Received: model "
                f"{model.name!r}, which is not one"
            )
        return dataclasses.replace(arch, paths=_paths(model))

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return {name: value for name, value in vars(self).items() if name != "paths"}


@dataclasses.dataclass(frozen=True)
class VisionTransformerArchitecture:
    """The arguments of `VisionTransformer` that determine names, shapes and values.

    Attributes:
        constructor: The name of the function in `vit_keras.models` that builds such a model.
        numerics_fields: The fields of `Numerics` that are arguments of the constructor.
        required: The arguments that are needed to build a model.
        defaults: The constructor's arguments for what a file does not specify.
        paths: The paths of the model's variables, in the order of its layers.
    """

    constructor: ClassVar[str] = "VisionTransformer"
    numerics_fields: ClassVar[tuple[str, ...]] = NUMERICS
    required: ClassVar[tuple[str, ...]] = (
        *("classifier", "image_size", "patch_size", "hidden_size", "num_layers"),
        *("num_heads", "mlp_dim"),
    )
    defaults: ClassVar[dict[str, Any]] = {"num_classes": None}

    image_size: tuple[int | None, int | None]
    patch_size: tuple[int, int]
    channels: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    num_classes: int | None
    classifier: Classifier
    representation_size: int | None
    gelu: str
    layer_norm_epsilon: float
    position_embedding: Positions = dataclasses.field(default="learned", kw_only=True)
    position_embedding_at: Place = dataclasses.field(default="stem", kw_only=True)
    options: ViTOptions = dataclasses.field(default=ViTOptions(), kw_only=True)
    classifier_activation: str | None = dataclasses.field(default=None, kw_only=True)
    paths: tuple[str, ...] = dataclasses.field(default=(), kw_only=True, repr=False)

    @staticmethod
    def from_model(model: keras.Model) -> "VisionTransformerArchitecture":
        """Reads the architecture of a Vision Transformer or a hybrid for other projects' files.

        Returns:
            The architecture with the paths of the variables, and with rotary positions among the
            options.

        Raises:
            ValueError: If the model carries no such architecture, or if no project's files can hold
                its positions.
        """
        arch: Any = architecture_of(model)
        place = None
        if isinstance(arch, VisionTransformerArchitecture) and None not in arch.image_size:
            place = arch.position_embedding, arch.position_embedding_at
        if place not in POSITIONS:
            raise ValueError(
                "Other projects' formats hold only models built by `VisionTransformer` and "
                "`HybridViT` for images of one size, with rotary positions, BEiT's, or learned or "
                f"fixed ones that are added once. Received: model {model.name!r} with positions "
                f"{place}; save it as .keras or .weights.h5 or, if it is a clone, call "
                "`models.copy_description` first"
            )
        arch = dataclasses.replace(arch, paths=_paths(model))
        if arch.position_embedding == "rope2d":  # only rotary positions
            options = dataclasses.replace(arch.options, rope=arch.options.rope or Rope())
            arch = dataclasses.replace(arch, position_embedding="none", options=options)
        return arch

    @property
    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments; positions and options only if they differ from the paper's.

        The activation of the classifier is included if Keras has it.
        """
        usual = {field.name: field.default for field in dataclasses.fields(self)}
        del usual["options"], usual["paths"]
        if not hasattr(keras.activations, self.classifier_activation or ""):
            del usual["classifier_activation"]
        changed = {k: getattr(self, k) for k in usual if getattr(self, k) != usual[k]}
        return {**changed, **self.options.changed()}

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

    constructor: ClassVar[str] = "HybridViT"
    numerics_fields: ClassVar[tuple] = (*NUMERICS, "standardization", "group_norm_epsilon")

    resnet_layers: tuple[int, ...]
    resnet_width: float
    standardization: str
    group_norm_epsilon: float


Architecture = VisionTransformerArchitecture | ResNetArchitecture


def class_for(sizes: Mapping[str, Any]) -> type[Architecture]:
    """Returns the architecture class of a model with these `sizes`, which may be incomplete."""
    if "hidden_size" not in sizes:
        return ResNetArchitecture
    if sizes.get("resnet_layers") is None:
        return VisionTransformerArchitecture
    return HybridArchitecture


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raises ValueError if an argument, as JSON holds it, has the wrong type."""
    for annotated in (class_for(arguments), ViTOptions):
        check_annotated(arguments, annotated)


def of_arguments(arguments: Mapping[str, Any]) -> Architecture:
    """Returns the architecture with these `arguments`, as JSON holds them.

    Raises:
        ValueError: If a value has the wrong type, or an argument is missing or unknown.
    """
    kind = class_for(arguments)
    fields = with_tuples(arguments)
    names = {*fields} - {field.name for field in dataclasses.fields(kind)}
    options = {name: fields.pop(name) for name in names}
    try:
        arch = kind(**fields | ({"options": ViTOptions(**options)} if options else {}))
    except TypeError as error:
        raise ValueError(f"The arguments of a model are wrong or incomplete: {error}") from error
    check_types(arch)
    return arch


def canonical(arch: VisionTransformerArchitecture) -> VisionTransformerArchitecture:
    """Returns equal architectures for equal models: arguments without effect get defaults."""
    options, has_head, blocks = arch.options, bool(arch.num_classes), {*range(arch.num_layers)}
    boxes = options.boxes if has_head else None
    classifier, prefix = arch.classifier, arch.prefix
    names = prefix.names
    if boxes is not None:
        classifier = "token" if "cls" in names else "gap"
    elif classifier == "distilled" and not has_head:
        classifier = "token"
    elif classifier == "gap_norm" and not options.final_norm:
        classifier = "gap"
    pools = classifier == "map"
    other = lambda size, usual: size if pools and size != usual else None
    is_windowed = options.window_size is not None and {*options.global_blocks} != blocks
    options = dataclasses.replace(
        options,
        class_token="cls" in names and classifier not in READ_CLASS_TOKEN,
        distillation_token="dist" in names and classifier != "distilled",
        position_cover=_cover(arch, prefix),
        pool_all_tokens=pools and options.pool_all_tokens and bool(prefix.count),
        map_heads=other(options.map_heads, arch.num_heads),
        map_mlp_dim=other(options.map_mlp_dim, arch.mlp_dim),
        head_use_bias=options.head_use_bias or not has_head,
        boxes=boxes,
        window_size=options.window_size if is_windowed else None,
        global_blocks=options.global_blocks if is_windowed else (),
    )
    return dataclasses.replace(arch, classifier=classifier, options=options)


def _cover(arch, prefix):
    """The tokens that positions cover; "all" if no tokens follow the positions."""
    cover = arch.options.position_cover
    later = {"all": 0, "class": prefix.num_registers, "patches": prefix.count}[cover]
    are_added = arch.position_embedding in ADDED and arch.position_embedding_at == "stem"
    if not (later and are_added):
        return "all"
    return cover if prefix.names else "patches"


def with_boxes(
    arch: VisionTransformerArchitecture, head: str, num_classes: int, num_tokens: int
) -> VisionTransformerArchitecture:
    """Returns the architecture of a model from `models.detector`, given its backbone's."""
    options: dict[str, Any] = {"boxes": head, "head_use_bias": True}
    if head == "tokens" and not arch.options.num_registers:
        cover = "class" if arch.prefix.names else "patches"
        options |= {"num_registers": num_tokens, "position_cover": cover}
    changed = dataclasses.replace(arch.options, **options)
    return canonical(dataclasses.replace(arch, num_classes=num_classes, options=changed))


def architecture_of(model: keras.Model) -> Architecture | None:
    """Returns the architecture that a model carries, with its present head, patches and numerics.

    What you or other functions may have changed, such as the width and the activation of the
    classifier, GELU and the epsilons, is read from the model's layers. Returns None if the model
    carries no architecture, or no longer has the layers that it describes.
    """
    arch = getattr(model, "architecture", None)
    if arch is None:
        return None
    layers = {layer.name: layer for layer in model.layers}
    heads = (layers.get(name) for name in ("head", "pre_logits"))
    head, pre_logits = (x if isinstance(x, keras.layers.Dense) else None for x in heads)
    num_classes = None if head is None else head.units
    if isinstance(arch, ResNetArchitecture):
        return dataclasses.replace(arch, num_classes=num_classes)
    block = next((layer for layer in model.layers if isinstance(layer, EncoderBlock)), None)
    embedding = layers.get("embedding")
    if block is None or not isinstance(embedding, PatchEmbedding):  # as in `attention_maps`
        return None
    options = dataclasses.replace(
        arch.options,
        head_use_bias=head is None or head.use_bias,
        final_norm=arch.options.final_norm and "encoder_norm" in layers,
        crop_to_patches=embedding.crop,
    )
    changes: dict[str, Any] = {
        "num_classes": num_classes and num_classes - (arch.options.boxes in WITH_NO_OBJECT),
        "representation_size": None if pre_logits is None else pre_logits.units,
        "classifier_activation": None if head is None else _name_of(head.activation),
        "gelu": block.gelu,
        "layer_norm_epsilon": block.layer_norm_epsilon,
        "patch_size": embedding.patch_size,
        "options": options,
    }
    if isinstance(arch, HybridArchitecture) and "conv_root" in layers:
        changes["standardization"] = layers["conv_root"].standardization
        changes["group_norm_epsilon"] = layers["gn_root"].epsilon
    return dataclasses.replace(arch, **changes)


def _name_of(activation):
    """Returns the name of a Keras activation; None for any other function and for None."""
    name = getattr(activation, "__name__", "")
    if activation is keras.activations.linear:
        return None
    return name if getattr(keras.activations, name, None) is activation else repr(activation)


def _paths(model):
    return tuple(v.path for v in model.weights if LAYERS.match(v.path))


def positions_of(model: Any) -> tuple[str, str]:
    """Returns the kind and the placement of a model's position embeddings.

    Args:
        model: A `VisionTransformer` or a hybrid, built or loaded from a file.

    Returns:
        The arguments `position_embedding` and `position_embedding_at` that build such a model.

    Raises:
        AttributeError: If the model carries no architecture of this kind.

    Example:
        >>> positions_of(from_variant("B/16", image_size=224, num_classes=10))
        ('learned', 'stem')
    """
    return model.architecture.position_embedding, model.architecture.position_embedding_at


# The records that a model carries and that a file's metadata may hold.
RECORDS = {"preprocessing": Preprocessing, "task": Task, "resizing": Resizing}
PUBLISHED_RESIZING = Resizing()


def records_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the records among the values of a JSON object."""
    return {k: kind(**with_tuples(fields[k])) for k, kind in RECORDS.items() if k in fields}


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

    gelu: Literal["exact", "tanh", "quick"] = "exact"
    layer_norm_epsilon: float | None = 1e-6
    preprocessing: Preprocessing = PUBLISHED_PREPROCESSING
    resizing: Resizing = PUBLISHED_RESIZING
    standardization: Literal["vit", "timm", "bit"] = "vit"
    group_norm_epsilon: float = 1e-6
    class_names: tuple[str, ...] | None = None
    task: Task = CLASSES

    def __post_init__(self):
        check_types(self)
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
        """The inverse of `to_json`."""
        return cls(**with_tuples(fields) | records_in(fields))
