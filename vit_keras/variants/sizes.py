"""The rows of the tables of variants: sizes of models, and other arguments."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

ROOT_WIDTH = 64  # channels of the root of a ResNet of width 1
IMAGE_SIZE = 224  # pixels


@dataclasses.dataclass(frozen=True)
class Variant:
    """The dimensions of a Vision Transformer.

    Attributes:
        patch_size: The side of a patch in pixels.
        hidden_size: The width of the tokens.
        num_layers: The number of encoder blocks.
        num_heads: The number of attention heads in each block.
        mlp_dim: The width of the hidden layer in each block's MLP.
    """

    patch_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int

    @property
    def stride(self) -> int:
        """The number of pixels that must divide the sides of an image."""
        return self.patch_size

    @property
    def image_size(self) -> int | tuple[int, int]:
        """The default side in pixels of a model's images, or their height and width."""
        return IMAGE_SIZE

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor in `vit_keras.models`."""
        return dataclasses.asdict(self)

    @property
    def feature_size(self) -> int:
        """The width of the features that the classifier reads."""
        return self.hidden_size


@dataclasses.dataclass(frozen=True)
class FamilyVariant(Variant):
    """The dimensions of a model of another family, and how it differs from the paper's model.

    Attributes:
        family: The name of the family in `vit_keras.variants.families`, such as "DINOv2".
        size: The name of the size in the family, such as "S/14".
        arguments: The other arguments of the constructor, such as `{"layer_scale": 1e-5}`.
    """

    family: str
    size: str
    arguments: Mapping[str, Any] = dataclasses.field(hash=False)

    @property
    def image_size(self) -> int | tuple[int, int]:
        return self.arguments["image_size"]

    def constructor_arguments(self) -> dict[str, Any]:
        sizes = {field.name: getattr(self, field.name) for field in dataclasses.fields(Variant)}
        return {**sizes, **self.arguments}


@dataclasses.dataclass(frozen=True)
class HybridVariant(Variant):
    """The dimensions of a transformer that reads the feature map of a ResNet.

    Attributes:
        patch_size: The side of a patch in cells of the ResNet's map.
        resnet_layers: The number of units in each stage of the ResNet; empty for the root alone.
        resnet_width: The multiplier of the ResNet's widths.
    """

    resnet_layers: tuple[int, ...]
    resnet_width: float = 1

    @property
    def stride(self) -> int:
        return self.patch_size * stem_stride(self.resnet_layers)


@dataclasses.dataclass(frozen=True)
class ResNetVariant:
    """The dimensions of a ResNet, which takes images of any size.

    Attributes:
        resnet_layers: The number of units in each stage.
        resnet_width: The multiplier of all widths.
    """

    resnet_layers: tuple[int, ...]
    resnet_width: float
    image_size: ClassVar[int] = IMAGE_SIZE
    stride: ClassVar[int] = 1

    @property
    def feature_size(self) -> int:
        return int(4 * ROOT_WIDTH * self.resnet_width) * 2 ** (len(self.resnet_layers) - 1)

    def constructor_arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor in `vit_keras.models`."""
        return dataclasses.asdict(self)


def stem_stride(resnet_layers: tuple[int, ...]) -> int:
    """The side in pixels of a cell in a ResNet's map: 4, doubled by each stage after the first."""
    return 4 * 2 ** max(len(resnet_layers) - 1, 0)


# Width, blocks, heads and hidden units, by the name of a size.
SIZES = {
    "mu": (32, 1, 2, 128),
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "b": (384, 12, 6, 1536),
    "S+": (384, 12, 6, 1536),
    "M": (512, 12, 8, 2048),
    "betwixt": (640, 12, 10, 2560),
    "B": (768, 12, 12, 3072),
    "So150m": (896, 18, 14, 2304),
    "L": (1024, 24, 16, 4096),
    "So400m": (1152, 27, 16, 4304),
    "H": (1280, 32, 16, 5120),
    "H+": (1280, 32, 20, 5120),
    "g": (1408, 40, 16, 6144),
    "g-opt": (1536, 40, 16, 6144),
    "G-opt": (1536, 48, 16, 8192),
    "G": (1664, 48, 16, 8192),
    "bigG": (1664, 48, 16, 8192),
    "e": (1792, 56, 16, 15360),
    "7B": (4096, 40, 32, 8192),
}


def sized(names: str) -> dict[str, Variant]:
    """Returns `{name: row}` for names of a size and a patch, such as "S/16 B/16"."""
    rows = {}
    for name in names.split():
        size, patch = name.split("/")
        rows[name] = Variant(int(patch.partition("-")[0]), *SIZES[size])
    return rows
