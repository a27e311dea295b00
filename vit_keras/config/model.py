"""The model of a run."""

import dataclasses
from typing import Any, Literal

from vit_keras import variants

RESNET = ("image_size", "channels", "dtype", "head_bias")  # what a ResNet has of the fields
SIZES = tuple(field.name for field in dataclasses.fields(variants.Variant))
STEM = tuple(field.name for field in dataclasses.fields(variants.ResNetVariant))


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The model.

    Attributes:
        variant: a row of the table of variants, such as B/16; null to give the sizes below
        image_size: pixels, one number or [height, width]
        channels: of the images, 1 or 3
        patch_size: pixels, one number or [height, width]; null for the variant's
        hidden_size: width D of the tokens; null for the variant's
        num_layers: transformer blocks; null for the variant's
        num_heads: attention heads; null for the variant's
        mlp_dim: hidden width of the MLP blocks; null for the variant's
        resnet_layers: units of each stage of a ResNet or a hybrid's; null for the variant's
        resnet_width: factor of their widths; null for the variant's
        classifier: what the classifier reads
        representation_size: width of the pre-training head's tanh layer; null for none
        position_embedding: learned (1-D), none, learned_2d (of columns and rows), relative (1-D, in
            the attention), sincos2d (fixed), or rope2d (rotations in the attention)
        position_embedding_at: what is added is added once, before every block with weights of each
            block's own, or before every block the same
        dropout_rate: after dense layers (not query, key, value) and the position embeddings
        attention_dropout_rate: of the attention weights
        stochastic_depth_rate: of the last block, growing linearly from 0
        patch_keep_rate: part of an image's patches that a step of training sees (PatchDropout);
            0.5 nearly halves its cost
        gelu: exact (erf), or tanh as in the published Flax code
        dtype: a Keras dtype policy: float32, mixed_bfloat16 or mixed_float16
        head_bias: initial bias of the classifier, -10 or -6.9 for a sigmoid loss
        rematerialise: compute the blocks' activations again in the backward pass: less memory
        weights: checkpoint to start from, a file or a published name; its head is left behind
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

    @property
    def patch(self) -> tuple[int, int]:
        """Height and width of a patch, of a model that has them."""
        size = self.patch_size or variants.get(self.variant).patch_size
        return size if isinstance(size, tuple) else (size, size)

    def arguments(self) -> dict[str, Any]:
        """What is given to the constructor of the model, over the variant's row where there is one.

        Raises ValueError for an unknown variant, for missing sizes without one, for arguments of
        transformers that a ResNet does not have, and for those of ResNets where there is none.
        """
        given = dataclasses.asdict(self)
        variant, _ = given.pop("variant"), given.pop("weights")
        sizes = {name: size for name in SIZES if (size := given.pop(name)) is not None}
        stem = {name: size for name in STEM if (size := given.pop(name)) is not None}
        row = variant and variants.get(variant)
        if stem and not hasattr(row, "resnet_layers"):
            raise ValueError(
                f"{' and '.join(f'`model.{name}`' for name in stem)} are of a hybrid's or a "
                f"ResNet's `model.variant`. Received: variant={variant!r}"
            )
        if variant is None:
            if missing := [f"model.{name}" for name in SIZES if name not in sizes]:
                raise ValueError(
                    f"Give `model.variant`, or all sizes. Missing: {', '.join(missing)}"
                )
        elif isinstance(row, variants.ResNetVariant):
            plain = dataclasses.asdict(ModelConfig())
            given = {**given, **sizes}
            shared = {name: given.pop(name) for name in RESNET}
            if other := [f"model.{name}" for name in given if given[name] != plain[name]]:
                raise ValueError(f"ResNet {variant!r} has no {', '.join(other)}")
            return {**shared, **stem}
        return {**given, **sizes, **stem}
