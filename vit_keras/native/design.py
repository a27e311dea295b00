"""What a model computes, as numbers and names that every framework can follow."""

import dataclasses
import math

import keras

from vit_keras.layers import EncoderBlock, PatchDropout, PatchEmbedding
from vit_keras.layers.positions import ADDED
from vit_keras.layers.quantization import refuse_quantized
from vit_keras.models import VisionTransformer, lora_layers, merge_lora, positions_of
from vit_keras.models.surgery import windowed_blocks
from vit_keras.weights.architectures import HybridArchitecture, VisionTransformerArchitecture

ACTIVATIONS = ("linear", "softmax", "sigmoid")
REFUSED_POSITIONS = ("learned_2d", "relative")


@dataclasses.dataclass(frozen=True)
class Design:
    """An architecture, and what it does not say: the rates of dropouts and the last activation.

    Attributes:
        arch: The sizes and options of the model.
        dropout_rate: The rate of the dropout after the embedding and after dense layers.
        attention_dropout_rate: The rate of the dropout of attention weights.
        stochastic_depth_rates: For each block the rate at which it drops its residual branches.
        patch_keep_rate: The part of the patches that a training step sees.
        activation: The activation of the classifier, a name in `ACTIVATIONS`.
    """

    arch: VisionTransformerArchitecture
    dropout_rate: float
    attention_dropout_rate: float
    stochastic_depth_rates: tuple[float, ...]
    patch_keep_rate: float
    activation: str

    @property
    def kept_patches(self) -> int:
        """The number of patches of an image that a training step sees."""
        return max(1, round(math.prod(self.arch.grid) * self.patch_keep_rate))


def with_plain_kernels(model: keras.Model) -> keras.Model:
    """Returns the model, or a copy of it with low-rank adapters merged."""
    refuse_quantized(model, "A native object")
    return merge_lora(model) if lora_layers(model) else model


def design_of(model: keras.Model) -> Design:
    """Reads the design off a built model.

    Raises:
        ValueError: The model is not what `VisionTransformer` builds, or has an option that native
            objects do not compute.
    """
    refuse_quantized(model, "A native object")
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    patches = [layer for layer in model.layers if isinstance(layer, PatchEmbedding)]
    if not blocks or len(patches) != 1:
        raise ValueError(
            "Native objects are made of Vision Transformers, which have one PatchEmbedding and "
            f"EncoderBlocks. Received: model {model.name!r}. Give a model that "
            "`VisionTransformer` built"
        )
    _check_positions(model)
    _check_no_windows(model)
    arch = VisionTransformerArchitecture.from_model(model)
    if isinstance(arch, HybridArchitecture):
        raise ValueError(
            "Native objects have no ResNet stem. Received: a hybrid, "
            f"resnet_layers={arch.resnet_layers}. `vit_keras.exporting` exports hybrids"
        )
    layers = {layer.name: layer for layer in model.layers}
    dropped = [layer for layer in model.layers if isinstance(layer, PatchDropout)]
    design = Design(
        arch=arch,
        dropout_rate=blocks[0].dropout_rate,
        attention_dropout_rate=blocks[0].attention_dropout_rate,
        stochastic_depth_rates=tuple(block.stochastic_depth_rate for block in blocks),
        patch_keep_rate=dropped[0].keep_rate if dropped else 1.0,
        activation=_activation(layers.get("head")),
    )
    _check_layers(model, design)
    return design


def _check_positions(model):
    kind, place = positions_of(model)
    if kind in REFUSED_POSITIONS or place != "stem":
        choices = [name for name in ("none", *ADDED) if name not in REFUSED_POSITIONS]
        raise ValueError(
            f"Native objects add {', '.join(map(repr, choices))} positions once, before the "
            "blocks, or have 'rope2d' or 'relative_2d' ones in attention. Received: model "
            f"{model.name!r} with position_embedding={kind!r}, position_embedding_at={place!r}"
        )


def _check_no_windows(model):
    if blocks := windowed_blocks(model.layers):
        raise ValueError(
            "Native objects attend to all tokens, so `window_size` must be None. Received: model "
            f"{model.name!r} with window_size={blocks[0].options.window_size}. "
            "`vit_keras.exporting` exports such models"
        )


def _activation(head):
    name = "linear" if head is None else keras.activations.serialize(head.activation)
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`classifier_activation` must be one of {', '.join(map(repr, ACTIVATIONS))} in a "
            f"native object. Received: {name!r}"
        )
    return name


def _check_layers(model, design):
    """Raises ValueError unless a model has the layers that its design would be built with."""
    expected = _layers_of(design)
    layers = model.layers[1:] if isinstance(model.layers[0], keras.layers.InputLayer) else []
    received = [(layer.name, type(layer).__name__) for layer in layers]
    if received != expected or len(model.outputs) != 1:
        surplus = [f"{kind} {name!r}" for name, kind in received if (name, kind) not in expected]
        missing = [f"{kind} {name!r}" for name, kind in expected if (name, kind) not in received]
        raise ValueError(
            "A native object computes what `VisionTransformer` builds, from images to one output. "
            f"Received: model {model.name!r} with {len(model.outputs)} outputs; layers that such "
            f"a model has not: {', '.join(surplus) or 'none'}; missing layers: "
            f"{', '.join(missing) or 'none'}. Give the model as it was built"
        )


def _layers_of(design):
    """The names and kinds of the layers, read off a small model with the same options."""
    arch = design.arch
    sizes = {"hidden_size": 4 * math.lcm(arch.num_heads, arch.options.map_heads or 1)}
    sizes |= {"mlp_dim": 1, "num_layers": 1}
    if arch.options.map_mlp_dim is not None:
        sizes["map_mlp_dim"] = 1
    small = VisionTransformer(
        **{**arch.arguments, **sizes}, patch_keep_rate=design.patch_keep_rate, seed=0
    )
    layers = [(layer.name, type(layer).__name__) for layer in small.layers[1:]]
    place = next(i for i, (name, _) in enumerate(layers) if name == "encoderblock_0")
    blocks = [(f"encoderblock_{i}", "EncoderBlock") for i in range(arch.num_layers)]
    return layers[:place] + blocks + layers[place + 1 :]


def check_images(arch: VisionTransformerArchitecture, shape, channels_first: bool) -> None:
    """Raises ValueError unless `shape` belongs to images of the model's size.

    Args:
        arch: The architecture of the model.
        shape: `(B, C, H, W)` or `(B, H, W, C)`.
        channels_first: Whether it is the first.
    """
    size = (*arch.image_size, arch.channels)
    size = (arch.channels, *arch.image_size) if channels_first else size
    if tuple(shape[1:]) != size:
        raise ValueError(
            f"Images must be (B, {', '.join(map(str, size))}). Received: {tuple(shape)}. "
            "`vit_keras.models.with_image_size` makes a model for images of another size"
        )
