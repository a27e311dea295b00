"""The configuration of a run's model."""

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from vit_keras import variants
from vit_keras.config.rules import Rule, check_rules

RESNET = ("image_size", "channels", "dtype", "head_bias")  # the fields that a ResNet has
SIZES = tuple(field.name for field in dataclasses.fields(variants.Variant))
NO_ARGUMENTS = ("weights", "decoder", "options", "antialias", "rounding")  # of a constructor
STEM = tuple(field.name for field in dataclasses.fields(variants.ResNetVariant))
# What null stands for in a model that does not start from weights.
DEFAULTS = {
    "image_size": 224,
    "channels": 3,
    "classifier": "token",
    "position_embedding": "learned",
    "position_embedding_at": "stem",
    "gelu": "tanh",
}

if TYPE_CHECKING:  # null fields have their values before they are used
    Count: TypeAlias = int
    Sides: TypeAlias = int | tuple[int, int]
else:
    Count, Sides = int | None, int | tuple[int, int] | None
LATER: Any = None


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model.

    With `weights`, null fields take the values of the weights. Without, they take the ones below.

    Attributes:
        variant: row of the table of variants, such as B/16 or DINOv2-S/14; null for B/16, or if all
            sizes below are given
        image_size: pixels, one number or [height, width]; null for the variant's, which is 224 but
            in some families
        channels: channels of the images: 1, 3, or any other number; null for 3. Weights of RGB are
            adapted: the kernels of red, green and blue are repeated in turn and scaled by 3 / N
        patch_size: height and width in pixels, one number or [height, width]; null for the
            variant's
        hidden_size: width D of the tokens; null for the variant's
        num_layers: number of transformer blocks; null for the variant's
        num_heads: number of attention heads; null for the variant's
        mlp_dim: hidden width of the MLP blocks; null for the variant's
        resnet_layers: units in each stage of a ResNet or of a hybrid's stem; null for the variant's
        resnet_width: factor of the widths of a ResNet or of a hybrid's stem; null for the variant's
        classifier: what the classifier reads: the class token, the mean of all tokens (gap, or
            gap_norm before encoder_norm), their attention pooling (map), class token and mean
            (token_gap), or the class token and DeiT's distillation token with a head each
            (distilled); null for the variant's, or token
        representation_size: width of the pre-training head's tanh layer; null for none
        position_embedding: learned (1-D), none, learned_2d (columns and rows), relative (1-D, in
            the attention), sincos2d (fixed), rope2d (rotations in the attention) or relative_2d
            (BEiT's biases in the attention); null for the variant's, or learned
        position_embedding_at: where embeddings are added: once at the stem, before every block with
            weights for each block, or before every block with shared weights; null for stem
        dropout_rate: dropout after dense layers (not query, key, value) and position embeddings
        attention_dropout_rate: dropout of the attention weights
        stochastic_depth_rate: rate of the last block; it grows linearly from 0
        patch_keep_rate: fraction of an image's patches that a training step sees (PatchDropout);
            0.5 nearly halves the cost
        gelu: exact (erf), tanh as in the published Flax code, or quick as in CLIP; null for the
            family's, or tanh
        options: how the model differs from the variant's, a mapping of fields of ViTOptions such as
            {num_registers: 4, layer_scale: 1.0e-5}; null for no difference
        dtype: Keras dtype policy: float32, mixed_bfloat16 or mixed_float16
        head_bias: initial bias of the classifier, -10 or -6.9 for a sigmoid loss
        decoder: what reads masks from the blocks, for task masks alone: multilevel adds up four of
            them and doubles their resolution twice, linear is one layer on the last one
        antialias: whether the resize of the pictures averages the pixels that it would skip; null
            for what the weights or the family say, or true
        rounding: what the resize rounds to whole numbers, as `Preprocessing.rounding`: none,
            torchvision or transformers; null for what the weights say, or torchvision
        rematerialise: recompute the blocks' activations in the backward pass, which saves memory
        weights: checkpoint to start from: a run, a file or folder of any format, or a published
            name; it brings its architecture, and the head starts anew
    """

    variant: str | None = None
    image_size: Sides = LATER
    channels: Count = LATER
    patch_size: int | tuple[int, int] | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    mlp_dim: int | None = None
    resnet_layers: tuple[int, ...] | None = None
    resnet_width: float | None = None
    classifier: Literal["token", "gap", "map", "gap_norm", "token_gap", "distilled"] | None = None
    representation_size: int | None = None
    position_embedding: (
        Literal["learned", "none", "learned_2d", "relative", "sincos2d", "rope2d", "relative_2d"]
        | None
    ) = None
    position_embedding_at: Literal["stem", "every", "shared"] | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    patch_keep_rate: float = 1.0
    gelu: Literal["exact", "tanh", "quick"] | None = None
    options: dict[str, Any] | None = None
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    head_bias: float = 0.0
    decoder: Literal["multilevel", "linear"] = "multilevel"
    antialias: bool | None = None
    rounding: Literal["none", "torchvision", "transformers"] | None = None
    rematerialise: bool = False
    weights: str | None = None

    def __post_init__(self):
        check_rules(self, "model", RULES)
        if self.weights is None:
            if not any(getattr(self, size) for size in SIZES):
                fill(self, {"variant": variants.DEFAULT})
            fill(self, {**DEFAULTS, **of_family(self.variant, DEFAULTS)})

    @property
    def is_complete(self) -> bool:
        """Whether all fields have values, and none still depends on `weights`."""
        return all(getattr(self, name) is not None for name in DEFAULTS)

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch, for a model that has patches."""
        row = variants.architecture(self.variant) if self.variant else {}
        return both_sides({**row, **self.arguments()}["patch_size"])

    def summary(self) -> str:
        """The architecture in a few words, such as "B/16 with num_layers=2, 224x224x3 images"."""
        fields = {name: getattr(self, name) for name in (*SIZES, *STEM)}
        sizes = " ".join(f"{name}={size}" for name, size in fields.items() if size is not None)
        name = " with ".join(filter(None, [self.variant or "ViT", sizes]))
        height, width = both_sides(self.image_size)
        return f"{name}, {height}x{width}x{self.channels} images"

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's constructor that replace the values of the variant's row.

        Raises:
            ValueError: the variant is unknown; sizes are missing without a variant; or the variant
                does not have a field that was set.
        """
        arguments = dataclasses.asdict(self)
        variant = arguments.pop("variant")
        for name in NO_ARGUMENTS:
            arguments.pop(name)
        sizes = {name: size for name in SIZES if (size := arguments.pop(name)) is not None}
        stem = {name: size for name in STEM if (size := arguments.pop(name)) is not None}
        row = variant and variants.get(variant)
        if self.options and hasattr(row, "resnet_layers"):
            raise ValueError(
                "`model.options` need a plain Vision Transformer as `model.variant`. Received: "
                f"variant={variant!r} with options {self.options}"
            )
        if stem and not hasattr(row, "resnet_layers"):
            raise ValueError(
                f"{' and '.join(f'`model.{name}`' for name in stem)} need a hybrid or a ResNet as "
                f"`model.variant`. Received: variant={variant!r}"
            )
        if variant is None:
            if missing := [f"model.{name}" for name in SIZES if name not in sizes]:
                raise ValueError(
                    f"Give `model.variant`, or all sizes. Missing: {', '.join(missing)}"
                )
        elif isinstance(row, variants.ResNetVariant):
            plain = dataclasses.asdict(ModelConfig())
            arguments |= sizes
            shared = {name: arguments.pop(name) for name in RESNET}
            if other := [f"model.{name}" for name in arguments if arguments[name] != plain[name]]:
                raise ValueError(f"ResNet {variant!r} has no {', '.join(other)}")
            return {**shared, **stem}
        return {**arguments, **sizes, **stem, **(self.options or {})}


def _is_positive(sizes: Any) -> bool:
    return all(size >= 1 for size in (sizes if isinstance(sizes, tuple) else (sizes,)))


_SIZE = (_is_positive, "at least 1")
_SIDES = (_is_positive, "a side of at least 1 pixel, or [height, width]")
_RATE = (lambda value: 0 <= value < 1, "at least 0 and below 1")
RULES: tuple[Rule, ...] = (
    ("image_size", *_SIDES),
    ("patch_size", *_SIDES),
    *((name, *_SIZE) for name in ("channels", "hidden_size", "num_layers", "num_heads", "mlp_dim")),
    ("resnet_layers", _is_positive, "units of at least 1 in each stage"),
    ("resnet_width", lambda value: value > 0, "above 0"),
    ("representation_size", _is_positive, "at least 1, or null for no such layer"),
    *((f"{name}_rate", *_RATE) for name in ("dropout", "attention_dropout", "stochastic_depth")),
    ("patch_keep_rate", lambda value: 0 < value <= 1, "above 0 and at most 1"),
)


REQUIRED = "REQUIRED"  # weights of a recipe that a command must name


def of_family(variant: str | None, names: Iterable[str]) -> dict[str, Any]:
    """The arguments called `names` of a family's variant; empty for variants of the paper."""
    row = variants.VARIANTS.get(variant or "")
    if not isinstance(row, variants.FamilyVariant):
        return {}
    arguments = row.constructor_arguments()
    return {name: arguments[name] for name in names if name in arguments}


def both_sides(size: Sides) -> tuple[int, int]:
    """The height and width of a size, which is one number for both or `(height, width)`."""
    return size if isinstance(size, tuple) else (size, size)


def fill(config: Any, values: dict[str, Any]) -> None:
    """Gives the fields of a frozen `config` that are None their `values`."""
    for name, value in values.items():
        if getattr(config, name) is None:
            object.__setattr__(config, name, value)
