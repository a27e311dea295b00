"""The table of variants, one row for each.

The variants come from Table 1 of the paper (B, L, H), from AugReg (Ti and S, arXiv 2106.10270),
from Figure 4 (b, the halved B), from both papers (hybrids), and from BiT (ResNets, arXiv
1912.11370).
"""

import dataclasses
import difflib
import re
from typing import Any

DEFAULT = "B/16"  # the variant of a run that names none
ROOT_WIDTH = 64  # channels of the root of a ResNet of width 1


@dataclasses.dataclass(frozen=True)
class Variant:
    """The dimensions of a Vision Transformer.

    Attributes:
        patch_size: Side of a patch in pixels.
        hidden_size: Width of the tokens.
        num_layers: Number of encoder blocks.
        num_heads: Number of attention heads in each block.
        mlp_dim: Width of the hidden layer in each block's MLP.
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
    def feature_size(self) -> int:
        """The width of the features that the classifier reads."""
        return self.hidden_size


@dataclasses.dataclass(frozen=True)
class HybridVariant(Variant):
    """The dimensions of a transformer that reads the map of a ResNet.

    Attributes:
        patch_size: Side of a patch in cells of the ResNet's map.
        resnet_layers: Number of units in each stage of the ResNet; empty for the root alone.
        resnet_width: Factor of the ResNet's widths.
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
        resnet_layers: Number of units in each stage.
        resnet_width: Factor of all widths.
    """

    resnet_layers: tuple[int, ...]
    resnet_width: float

    @property
    def stride(self) -> int:
        return 1

    @property
    def feature_size(self) -> int:
        return int(4 * ROOT_WIDTH * self.resnet_width) * 2 ** (len(self.resnet_layers) - 1)


_TI, _S, _B = (192, 12, 3, 768), (384, 12, 6, 1536), (768, 12, 12, 3072)
_L, _H = (1024, 24, 16, 4096), (1280, 32, 16, 5120)

VISION_TRANSFORMERS = {
    "Ti/16": Variant(16, *_TI),
    "S/16": Variant(16, *_S),
    "S/32": Variant(32, *_S),
    "b/32": Variant(32, *_S),
    "B/8": Variant(8, *_B),
    "B/16": Variant(16, *_B),
    "B/32": Variant(32, *_B),
    "L/16": Variant(16, *_L),
    "L/32": Variant(32, *_L),
    "H/14": Variant(14, *_H),
}
HYBRIDS = {
    "R+Ti/16": HybridVariant(8, *_TI, resnet_layers=()),  # a token has 32 pixels, despite the name
    "R26+S/32": HybridVariant(1, *_S, resnet_layers=(2, 2, 2, 2)),
    "R26+B/32": HybridVariant(1, *_B, resnet_layers=(2, 2, 2, 2)),
    "R50+B/16": HybridVariant(1, *_B, resnet_layers=(3, 4, 9)),
    "R50+B/32": HybridVariant(1, *_B, resnet_layers=(3, 4, 6, 3)),
    "R50+L/16": HybridVariant(1, *_L, resnet_layers=(3, 4, 9)),
    "R50+L/32": HybridVariant(1, *_L, resnet_layers=(3, 4, 6, 3)),
}
RESNETS = {
    "R50x1": ResNetVariant((3, 4, 6, 3), 1),
    "R50x2": ResNetVariant((3, 4, 6, 3), 2),
    "R50x3": ResNetVariant((3, 4, 6, 3), 3),
    "R101x1": ResNetVariant((3, 4, 23, 3), 1),
    "R101x3": ResNetVariant((3, 4, 23, 3), 3),
    "R152x1": ResNetVariant((3, 8, 36, 3), 1),
    "R152x2": ResNetVariant((3, 8, 36, 3), 2),
    "R152x4": ResNetVariant((3, 8, 36, 3), 4),
    "R200x3": ResNetVariant((3, 24, 36, 3), 3),
}
VARIANTS: dict[str, Variant | ResNetVariant] = {**VISION_TRANSFORMERS, **HYBRIDS, **RESNETS}


def stem_stride(resnet_layers: tuple[int, ...]) -> int:
    """The side in pixels of a cell in a ResNet's map: 4, doubled by each stage after the first."""
    return 4 * 2 ** max(len(resnet_layers) - 1, 0)


def get(name: str) -> Variant | ResNetVariant:
    """Returns a row of the table.

    Args:
        name: The name of a variant, such as "B/16", "R50+L/32" or "R101x1".

    Returns:
        A `Variant`, `HybridVariant` or `ResNetVariant`.

    Raises:
        ValueError: If there is no such variant. The message lists the names, the nearest last.

    Example:
        ```python
        vit_keras.variants.get("B/16").hidden_size  # 768
        ```
    """
    if name in VARIANTS:
        return VARIANTS[name]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if (near := nearest(name)) else ""
    raise ValueError(
        f"`variant` must be one of {', '.join(map(repr, VARIANTS))}. "
        f"Received: variant={name!r}.{hint}"
    )


WORDS = {"tiny": "ti", "small": "s", "base": "b", "large": "l", "huge": "h", "patch": "", "vit": ""}


def nearest(name: str) -> list[str]:
    """The variants that other projects call so, or whose names look alike, the nearest first.

    Example:
        >>> nearest("vit_base_patch16_224")
        ['B/16']
    """
    plain = lambda text: "".join(re.findall(r"[a-z]+|\d+", text.lower()))
    written = re.sub(r"[_-](224|384|512)\b.*", "", str(name).lower())
    for word, letter in WORDS.items():
        written = written.replace(word, letter)
    same = [row for row in VARIANTS if plain(row) == plain(written)]
    return same or difflib.get_close_matches(str(name), VARIANTS, n=3, cutoff=0.4)


def architecture(variant: str, /, **overrides: Any) -> dict[str, Any]:
    """Returns the arguments of a variant's constructor in `vit_keras.models`.

    Args:
        variant: The name of a variant, such as "B/16".
        **overrides: Arguments to add or to replace.

    Raises:
        ValueError: If there is no such variant.

    Example:
        ```python
        arguments = vit_keras.variants.architecture("B/16", image_size=224, num_classes=10)
        model = vit_keras.models.VisionTransformer(**arguments)
        ```
    """
    return {**dataclasses.asdict(get(variant)), **overrides}
