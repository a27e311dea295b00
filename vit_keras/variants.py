"""One row a variant.

Table 1 of the paper, AugReg's Ti and S (arXiv 2106.10270), the halved B of Figure 4, the hybrids
of both, and BiT's ResNets (arXiv 1912.11370).
"""

import dataclasses
import difflib
from typing import Any


@dataclasses.dataclass(frozen=True)
class Variant:
    """The dimensions that a variant's name stands for; `patch_size` in pixels."""

    patch_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int

    @property
    def stride(self) -> int:
        """Pixels that an image's sides must be multiples of."""
        return self.patch_size

    @property
    def feature_size(self) -> int:
        """Width of what the classifier reads."""
        return self.hidden_size


@dataclasses.dataclass(frozen=True)
class HybridVariant(Variant):
    """A transformer that reads a ResNet's map; `patch_size` in cells of that map."""

    resnet_layers: tuple[int, ...]
    resnet_width: float = 1

    @property
    def stride(self) -> int:
        return self.patch_size * stem_stride(self.resnet_layers)


@dataclasses.dataclass(frozen=True)
class ResNetVariant:
    """Units of each stage and the factor of all widths; takes images of any size."""

    resnet_layers: tuple[int, ...]
    resnet_width: float

    @property
    def stride(self) -> int:
        return 1

    @property
    def feature_size(self) -> int:
        return int(4 * 64 * self.resnet_width) * 2 ** (len(self.resnet_layers) - 1)


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
    "R+Ti/16": HybridVariant(8, *_TI, resnet_layers=()),  # 32 pixels a token, whatever its name
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
VARIANTS = {**VISION_TRANSFORMERS, **HYBRIDS, **RESNETS}


def stem_stride(resnet_layers: tuple[int, ...]) -> int:
    """Pixels that a cell of a ResNet's map is wide: root and pool 4, each later stage twice it."""
    return 4 * 2 ** max(len(resnet_layers) - 1, 0)


def get(name: str) -> Variant | ResNetVariant:
    """The row called `name`, such as "B/16"; ValueError with the nearest names otherwise."""
    if name in VARIANTS:
        return VARIANTS[name]
    near = difflib.get_close_matches(name, VARIANTS, n=3, cutoff=0.4)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        f"`variant` must be one of {', '.join(map(repr, VARIANTS))}. "
        f"Received: variant={name!r}.{hint}"
    )


def architecture(variant: str, /, **overrides: Any) -> dict[str, Any]:
    """Arguments of a variant's model in `vit_keras.models`, with any of them replaced."""
    return {**dataclasses.asdict(get(variant)), **overrides}
