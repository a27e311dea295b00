"""The configuration of a run's model."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

from vit_keras import variants

RESNET = ("image_size", "channels", "dtype", "head_bias")  # the fields that a ResNet has
SIZES = tuple(field.name for field in dataclasses.fields(variants.Variant))
STEM = tuple(field.name for field in dataclasses.fields(variants.ResNetVariant))


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model.

    Attributes:
        variant: row of the table of variants, such as B/16; null to give all sizes below
        image_size: height and width in pixels, one number or [height, width]
        channels: channels of the images, 1 or 3
        patch_size: height and width in pixels, one number or [height, width]; null for the
            variant's
        hidden_size: width D of the tokens; null for the variant's
        num_layers: number of transformer blocks; null for the variant's
        num_heads: number of attention heads; null for the variant's
        mlp_dim: hidden width of the MLP blocks; null for the variant's
        resnet_layers: units in each stage of a ResNet or of a hybrid's stem; null for the variant's
        resnet_width: factor of the widths of a ResNet or of a hybrid's stem; null for the variant's
        classifier: what the classifier reads: the class token, the mean of all tokens (gap) or
            their attention pooling (map)
        representation_size: width of the pre-training head's tanh layer; null for none
        position_embedding: learned (1-D), none, learned_2d (columns and rows), relative (1-D, in
            the attention), sincos2d (fixed) or rope2d (rotations in the attention)
        position_embedding_at: where embeddings are added: once at the stem, before every block with
            weights for each block, or before every block with shared weights
        dropout_rate: dropout after dense layers (not query, key, value) and position embeddings
        attention_dropout_rate: dropout of the attention weights
        stochastic_depth_rate: rate of the last block; it grows linearly from 0
        patch_keep_rate: fraction of an image's patches that a training step sees (PatchDropout);
            0.5 nearly halves the cost
        gelu: exact (erf), or tanh as in the published Flax code
        dtype: Keras dtype policy: float32, mixed_bfloat16 or mixed_float16
        head_bias: initial bias of the classifier, -10 or -6.9 for a sigmoid loss
        rematerialise: recompute the blocks' activations in the backward pass, which saves memory
        weights: checkpoint to start from: a run, a file or a published name; the head starts anew
    """

    variant: str | None = "B/16"
    image_size: int | tuple[int, int] = 224
    channels: int = 3
    patch_size: int | tuple[int, int] | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    mlp_dim: int | None = None
    resnet_layers: tuple[int, ...] | None = None
    resnet_width: float | None = None
    classifier: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    position_embedding: Literal[
        "learned", "none", "learned_2d", "relative", "sincos2d", "rope2d"
    ] = "learned"
    position_embedding_at: Literal["stem", "every", "shared"] = "stem"
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    patch_keep_rate: float = 1.0
    gelu: Literal["exact", "tanh"] = "tanh"
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    head_bias: float = 0.0
    rematerialise: bool = False
    weights: str | None = None

    def __post_init__(self):
        for name, holds, rule in RULES:
            value = getattr(self, name)
            if value is not None and not holds(value):
                raise ValueError(f"`model.{name}` must be {rule}. Received: {value}")

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch, for a model that has patches."""
        row = variants.architecture(self.variant) if self.variant else {}
        size = {**row, **self.arguments()}["patch_size"]
        return size if isinstance(size, tuple) else (size, size)

    def arguments(self) -> dict[str, Any]:
        """The arguments of the model's constructor that replace the values of the variant's row.

        Raises:
            ValueError: the variant is unknown; sizes are missing without a variant; or the variant
                does not have a field that was set.
        """
        arguments = dataclasses.asdict(self)
        variant, _ = arguments.pop("variant"), arguments.pop("weights")
        sizes = {name: size for name in SIZES if (size := arguments.pop(name)) is not None}
        stem = {name: size for name in STEM if (size := arguments.pop(name)) is not None}
        row = variant and variants.get(variant)
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
        return {**arguments, **sizes, **stem}


def _is_positive(sizes: Any) -> bool:
    return all(size >= 1 for size in (sizes if isinstance(sizes, tuple) else (sizes,)))


_SIZE = (_is_positive, "at least 1")
_SIDES = (_is_positive, "a side of at least 1 pixel, or [height, width]")
_RATE = (lambda value: 0 <= value < 1, "at least 0 and below 1")
RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("image_size", *_SIDES),
    ("channels", lambda value: value in (1, 3), "1 or 3"),
    ("patch_size", *_SIDES),
    *((name, *_SIZE) for name in ("hidden_size", "num_layers", "num_heads", "mlp_dim")),
    ("resnet_layers", _is_positive, "units of at least 1 in each stage"),
    ("resnet_width", lambda value: value > 0, "above 0"),
    ("representation_size", _is_positive, "at least 1, or null for no such layer"),
    *((f"{name}_rate", *_RATE) for name in ("dropout", "attention_dropout", "stochastic_depth")),
    ("patch_keep_rate", lambda value: 0 < value <= 1, "above 0 and at most 1"),
)
