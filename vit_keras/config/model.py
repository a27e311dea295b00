"""The configuration of a run's model and of its low-rank adapters."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from vit_keras import variants
from vit_keras.config.base import Count, Positive, Range, Rate, Section, Share, Sides, Size
from vit_keras.support.checks import NEEDS, pair

RESNET = ("image_size", "channels", "dtype", "head_bias")  # the fields that a ResNet has
SIZES = tuple(field.name for field in dataclasses.fields(variants.Variant))
# Fields that are not arguments of a constructor.
NO_ARGUMENTS = (
    *("weights", "decoder", "detector", "num_boxes", "options", "antialias", "rounding"),
    *("labels", "adapter_dim", "variant"),
)
STEM = tuple(field.name for field in dataclasses.fields(variants.ResNetVariant))
# The meaning of null in a model that does not start from weights.
DEFAULTS = {
    "image_size": 224,
    "channels": 3,
    "classifier": "token",
    "position_embedding": "learned",
    "position_embedding_at": "stem",
    "gelu": "tanh",
}

if TYPE_CHECKING:  # null fields are filled before they are used
    LaterCount: TypeAlias = int
    LaterSize: TypeAlias = int
    LaterSides: TypeAlias = int | tuple[int, int]
else:
    LaterCount, LaterSize, LaterSides = Count | None, Size | None, Sides | None
LATER: Any = None


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section, name="model"):
    """The model.

    With `weights`, null fields take their values from the weights; otherwise, they have the values
    below.

    Attributes:
        variant: row of the table of variants, such as B/16 or DINOv2-S/14; null for B/16, or if all
            sizes below are given
        image_size: pixels, one number or [height, width]; null for the variant's, which is 224
            except in some families
        channels: channels of the images: 1, 3, or any other number; null for 3. Weights for RGB are
            adapted: the kernels of red, green and blue are repeated in turn and scaled by 3 / N
        patch_size: height and width in pixels, one number or [height, width]; null for the
            variant's
        hidden_size: width D of the tokens; null for the variant's
        num_layers: number of transformer blocks; null for the variant's
        num_heads: number of attention heads; null for the variant's
        mlp_dim: hidden width of the MLP blocks; null for the variant's
        resnet_layers: units in each stage of a ResNet or of a hybrid's stem; null for the variant's
        resnet_width: width factor of a ResNet or of a hybrid's stem; null for the variant's
        classifier: input of the classifier: the class token, the mean of all tokens (gap, or
            gap_norm if taken before encoder_norm), their attention pooling (map), both class token
            and mean (token_gap), or the class token and DeiT's distillation token, each with its
            own head (distilled); null for the variant's, or token
        representation_size: width of the pre-training head's tanh layer; null for none
        position_embedding: learned (1-D), none, learned_2d (columns and rows), relative (1-D, in
            the attention), sincos2d (fixed), rope2d (rotations in the attention), relative_2d
            (BEiT's biases in the attention) or learned_relative_2d (both); null for the variant's,
            or learned
        position_embedding_at: where embeddings are added: once at the stem, before every block with
            separate weights, or before every block with shared weights; null for stem
        dropout_rate: dropout after position embeddings and after dense layers other than query, key
            and value
        attention_dropout_rate: dropout of the attention weights
        stochastic_depth_rate: drop rate of the last block; rates grow linearly from 0 at the first
        patch_keep_rate: fraction of an image's patches that a training step sees (PatchDropout);
            0.5 nearly halves the cost
        gelu: exact (erf), tanh as in the published Flax code, or quick as in CLIP; null for the
            family's, or tanh
        options: differences from the variant's model, a mapping of fields of ViTOptions such as
            {num_registers: 4, layer_scale: 1.0e-5}; null for none
        dtype: Keras dtype policy: float32, mixed_bfloat16 or mixed_float16
        head_bias: initial bias of the classifier, such as -10 or -6.9 for a sigmoid loss
        decoder: decoder from blocks to masks, only for task masks: multilevel, which sums the
            outputs of four blocks and doubles their resolution twice, or linear, one layer on the
            last block
        detector: source of the boxes, only for task boxes: the patches, each with a box
            relative to its place, or learned tokens
        num_boxes: number of tokens if `detector` is tokens, which limits the objects found in a
            picture
        antialias: whether resizing averages the pixels that it would otherwise skip; null for the
            setting of the weights or the family, or true
        rounding: values that resizing rounds to whole numbers, as in `Preprocessing.rounding`:
            none, torchvision or transformers; null for the setting of the weights, or torchvision
        rematerialize: recompute the blocks' activations in the backward pass, which saves memory
        weights: checkpoint to start from: a run, a file or folder of any format, or a published
            name; it sets the architecture, and the head is new
        labels: file from `vit-keras labels` whose embeddings become the head, so that training
            starts from the zero-shot answers; `weights` must be the image tower of the same model
        adapter_dim: hidden units of an adapter between the tower and the embeddings of `labels`
            (CLIP-Adapter), such as a quarter of their width; null for none
    """

    variant: str | None = None
    image_size: LaterSides = LATER
    channels: LaterSize = LATER
    patch_size: Sides | None = None
    hidden_size: Size | None = None
    num_layers: Size | None = None
    num_heads: Size | None = None
    mlp_dim: Size | None = None
    resnet_layers: Annotated[tuple[int, ...], Range(1)] | None = None
    resnet_width: Positive | None = None
    classifier: Literal["token", "gap", "map", "gap_norm", "token_gap", "distilled"] | None = None
    representation_size: Size | None = None
    position_embedding: (
        Literal["learned", "none", "learned_2d", "relative", "sincos2d", "rope2d"]
        | Literal["relative_2d", "learned_relative_2d"]
        | None
    ) = None
    position_embedding_at: Literal["stem", "every", "shared"] | None = None
    dropout_rate: Rate = 0.0
    attention_dropout_rate: Rate = 0.0
    stochastic_depth_rate: Rate = 0.0
    patch_keep_rate: Share = 1.0
    gelu: Literal["exact", "tanh", "quick"] | None = None
    options: dict[str, Any] | None = None
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    head_bias: float = 0.0
    decoder: Literal["multilevel", "linear"] = "multilevel"
    detector: Literal["patches", "tokens"] = "patches"
    num_boxes: Size = 100
    antialias: bool | None = None
    rounding: Literal["none", "torchvision", "transformers"] | None = None
    rematerialize: bool = False
    weights: str | None = None
    labels: str | None = None
    adapter_dim: Size | None = None

    RULES = ((("labels", "weights"), *NEEDS), (("adapter_dim", "labels"), *NEEDS))

    def __post_init__(self):
        super().__post_init__()
        if self.weights is None:
            if not any(getattr(self, size) for size in SIZES):
                fill(self, {"variant": variants.DEFAULT})
            row = variants.VARIANTS.get(self.variant or "")
            preset = row.constructor_arguments() if isinstance(row, variants.FamilyVariant) else {}
            fill(self, {name: preset.get(name, value) for name, value in DEFAULTS.items()})

    @property
    def is_complete(self) -> bool:
        """Whether all fields have values that no longer depend on `weights`."""
        return all(getattr(self, name) is not None for name in DEFAULTS)

    @property
    def patch(self) -> tuple[int, int]:
        """The height and width of a patch, for a model with patches."""
        row = variants.architecture(self.variant) if self.variant else {}
        return pair({**row, **self.arguments()}["patch_size"], "patch_size")

    def summary(self) -> str:
        """Returns the architecture in words, such as "B/16 with num_layers=2, 224x224x3 images"."""
        fields = {name: getattr(self, name) for name in (*SIZES, *STEM)}
        sizes = " ".join(f"{name}={size}" for name, size in fields.items() if size is not None)
        name = " with ".join(filter(None, [self.variant or "ViT", sizes]))
        height, width = pair(self.image_size, "image_size")
        return f"{name}, {height}x{width}x{self.channels} images"

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments of the model's constructor that replace those of the variant.

        Raises:
            ValueError: The variant is unknown; sizes are missing without a variant; or the variant
                does not have a field that was set.
        """
        null = [name for name in (*SIZES, *STEM) if getattr(self, name) is None]
        items = dataclasses.asdict(self).items()
        fields = {name: value for name, value in items if name not in (*NO_ARGUMENTS, *null)}
        missing = [f"model.{name}" for name in SIZES if name in null]
        if self.variant is None and missing:
            raise ValueError(f"Give `model.variant`, or all sizes. Missing: {', '.join(missing)}")
        kind = type(variants.get(self.variant)) if self.variant else None
        lacks = ["options"] if kind in (variants.HybridVariant, variants.ResNetVariant) else []
        if kind is variants.ResNetVariant:
            lacks += [name for name in fields if name not in (*RESNET, *STEM)]
        plain = ModelConfig()
        if wrong := [f"model.{n}" for n in lacks if getattr(self, n) != getattr(plain, n)]:
            raise ValueError(f"`model.variant` {self.variant} has no {', '.join(wrong)}")
        return {n: v for n, v in fields.items() if n not in lacks} | (self.options or {})


REQUIRED = "REQUIRED"  # in a recipe: weights that the command must name


def fill(config: Any, values: dict[str, Any]) -> None:
    """Sets the fields of a frozen `config` that are None to their `values`."""
    for name, value in values.items():
        if getattr(config, name) is None:
            object.__setattr__(config, name, value)


DenseLayer = Literal["query", "key", "value", "out", "gate", "Dense_0", "Dense_1"]


@dataclasses.dataclass(frozen=True)
class LoraConfig(Section, name="lora"):
    """Low-rank adapters (LoRA), which are trained while the initial weights stay fixed.

    Attributes:
        rank: rank of the adapters, such as 8; null or 0 for none, which trains all weights
        alpha: scale of the adapters' product, divided by the rank; null for the rank
        layers: dense layers that get adapters, in every block
        train: names of layers, with wildcards * and ?, to train fully besides the adapters
    """

    rank: Count | None = None
    alpha: Positive | None = None
    layers: tuple[DenseLayer, ...] = ("query", "value")
    train: tuple[str, ...] = ("head*",)

    RULES = (("layers", bool, "names of dense layers, such as [query, value]"),)
