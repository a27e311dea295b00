"""What a run is, as frozen dataclasses."""

import dataclasses
from typing import Any, Literal

from vit_keras import variants

SIZES = tuple(field.name for field in dataclasses.fields(variants.Variant))


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
        classifier: what the classifier reads
        representation_size: width of the pre-training head's tanh layer; null for none
        dropout_rate: after dense layers (not query, key, value) and the position embeddings
        attention_dropout_rate: of the attention weights
        stochastic_depth_rate: of the last block, growing linearly from 0
        gelu: exact (erf), or tanh as in the published Flax code
        dtype: a Keras dtype policy: float32, mixed_bfloat16 or mixed_float16
    """

    variant: str | None = "B/16"
    image_size: int | tuple[int, int] = 224
    channels: int = 3
    patch_size: int | tuple[int, int] | None = None
    hidden_size: int | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    mlp_dim: int | None = None
    classifier: Literal["token", "gap", "map"] = "token"
    representation_size: int | None = None
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stochastic_depth_rate: float = 0.0
    gelu: Literal["exact", "tanh"] = "tanh"
    dtype: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"

    def architecture(self) -> dict[str, Any]:
        """Arguments of `VisionTransformer`: the variant's row, with what is given here over it."""
        given = dataclasses.asdict(self)
        sizes = {
            field.name: given.pop(field.name) for field in dataclasses.fields(variants.Variant)
        }
        sizes = {name: size for name, size in sizes.items() if size is not None}
        variant = given.pop("variant")
        if variant is not None:
            return variants.architecture(variant, **{**given, **sizes})
        if missing := [f"model.{name}" for name in SIZES if name not in sizes]:
            raise ValueError(f"Give `model.variant`, or all sizes. Missing: {', '.join(missing)}")
        return {**given, **sizes}


@dataclasses.dataclass(frozen=True)
class AugmentConfig:
    """Random changes of the training images, drawn anew for each.

    Attributes:
        rotation_degrees: turned by up to this much either way
        scale: sides scaled by up to this fraction either way
        shift: moved by up to this fraction of the side either way, on each axis
        flip: mirrored left to right half of the time
    """

    rotation_degrees: float = 0.0
    scale: float = 0.0
    shift: float = 0.0
    flip: bool = False


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimiser and its learning rate.

    Attributes:
        name: adamw, or sgd with momentum
        learning_rate: peak of the schedule, per update
        weight_decay: decoupled, times the learning rate; kernels only, as published
        beta_1: decay of the first moment of adamw
        beta_2: decay of the second moment of adamw
        momentum: of sgd
        decay_type: of the learning rate after the warmup, to 0 at total_steps
        warmup_steps: updates over which the learning rate grows linearly from 0
        grad_norm_clip: largest global norm of the gradients; null for no limit
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    momentum: float = 0.9
    decay_type: Literal["cosine", "linear"] = "cosine"
    warmup_steps: int = 0
    grad_norm_clip: float | None = 1.0


@dataclasses.dataclass(frozen=True)
class Config:
    """A run.

    Attributes:
        name: of the run, the first part of its default folder
        dataset: a row of the table of data sets
        batch: images per update
        batch_eval: images per step of an evaluation
        total_steps: updates in all
        eval_every: updates between evaluations on the held-out images
        checkpoint_every: updates between checkpoints
        keep_checkpoints: how many of the newest checkpoints stay
        label_smoothing: probability taken from the right class and spread over all
        seed: decides initial weights, dropout, the order of images and their changes
        workdir: folder of the run; null for runs/NAME-BACKEND-HASH
        model: the model
        augment: random changes of the training images
        optimizer: the optimiser and its learning rate
    """

    name: str = "run"
    dataset: str = "digits"
    batch: int = 512
    batch_eval: int = 512
    total_steps: int = 10_000
    eval_every: int = 500
    checkpoint_every: int = 1_000
    keep_checkpoints: int = 2
    label_smoothing: float = 0.0
    seed: int = 0
    workdir: str | None = None
    model: ModelConfig = ModelConfig()
    augment: AugmentConfig = AugmentConfig()
    optimizer: OptimizerConfig = OptimizerConfig()

    def __post_init__(self):
        for name in ("batch", "batch_eval", "eval_every", "checkpoint_every", "keep_checkpoints"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {getattr(self, name)}")
        for name in ("total_steps", "seed"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {getattr(self, name)}")
        self.model.architecture()
