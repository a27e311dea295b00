"""How the blocks of plain Vision Transformers differ, besides their sizes."""

import dataclasses
from typing import Any

from vit_keras.layers.base import check_choice, pair

QKV_BIASES = {
    "all": ("query", "key", "value"),
    "qv": ("query", "value"),
    "none": (),
}
NORMS = ("layer", "rms")
MLPS = ("gelu", "swiglu")


@dataclasses.dataclass(frozen=True)
class Rope:
    """How rotary positions turn rows and columns into angles.

    For each axis, pair j of d/4 pairs turns by f_j · t, where f_j = base^(-4j / d) and t is the
    place along the axis.

    Attributes:
        base: The number whose powers are the frequencies.
        offset: Added to the index of a row or column.
        reference: The rows and columns of a grid. Other grids of n places scale their angles to it:
            t = i · reference / n. None means t = i.
        centered: Whether t is 2π times the place of a patch's center in [-1, 1], as in DINOv3;
            `offset` and `reference` then have no effect.
        mixed: Whether each head learns how its angles depend on rows and columns (arXiv 2403.13298,
            Section 3.2, RoPE-Mixed); `base` then only sets the initial frequencies.
        rounded: Whether the periods 1 / f_j are rounded to bfloat16, as in Meta's files of DINOv3.

    Example:
        >>> vit_keras.layers.Rope(base=10000.0, reference=(16, 16)).centered  # of EVA-02
        False
    """

    base: float = 100.0
    offset: float = 0.0
    reference: tuple[int, int] | None = None
    centered: bool = False
    mixed: bool = False
    rounded: bool = False

    def __post_init__(self):
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(self.reference))


@dataclasses.dataclass(frozen=True)
class BlockOptions:
    """How an encoder block differs from the paper's, whose blocks have the defaults.

    Attributes:
        qkv_bias: Which projections have a bias: "all", "qv" (no bias for the keys, as in BEiT and
            DINOv3) or "none".
        qk_norm: Whether each head normalizes its queries and keys (arXiv 2302.05442).
        attention_norm: Whether attention's result is normalized before its output projection, as in
            EVA-02-CLIP.
        mlp: "gelu", or "swiglu": Dense_1(SiLU(gate(x)) · Dense_0(x)) (arXiv 2002.05202).
        mlp_norm: Whether the hidden units of the MLP are normalized before its last layer, as in
            EVA-02.
        norm: "layer" for layer normalization, or "rms", which neither centers nor has an offset.
        layer_scale: The initial value of a factor for each channel of both residual branches
            (LayerScale, arXiv 2103.17239), or None for no factors.
        parallel: Whether attention and MLP read the same normalized tokens and are added together,
            as in ViT-22B (arXiv 2302.05442).
        rope: A `Rope` or a dictionary of its fields, for rotary positions; None for none.
        window_size: The rows and columns of patches in a window, as in ViTDet (arXiv 2203.16527);
            an int stands for both. The patches of a window attend only to each other. Tokens before
            the patches attend to all tokens, and all tokens attend to them. None means attention
            between all.

    Raises:
        ValueError: If a field has an unsupported value.

    Example:
        >>> options = vit_keras.layers.BlockOptions(layer_scale=1e-5, mlp="swiglu")
        >>> block = vit_keras.layers.EncoderBlock(num_heads=6, mlp_dim=1024, options=options)
    """

    qkv_bias: str = "all"
    qk_norm: bool = False
    attention_norm: bool = False
    mlp: str = "gelu"
    mlp_norm: bool = False
    norm: str = "layer"
    layer_scale: float | None = None
    parallel: bool = False
    rope: Rope | None = None
    window_size: int | tuple[int, int] | None = None

    def __post_init__(self):
        check_choice(self.qkv_bias, QKV_BIASES, "qkv_bias")
        check_choice(self.mlp, MLPS, "mlp")
        check_choice(self.norm, NORMS, "norm")
        if isinstance(self.rope, dict):
            object.__setattr__(self, "rope", Rope(**self.rope))
        if self.window_size is not None:
            object.__setattr__(self, "window_size", pair(self.window_size, "window_size"))

    @classmethod
    def of(cls, value: Any) -> "BlockOptions":
        """Returns options from options, from a dictionary of some fields, or from None."""
        if isinstance(value, BlockOptions):
            names = [field.name for field in dataclasses.fields(BlockOptions)]
            return BlockOptions(**{name: getattr(value, name) for name in names})
        return BlockOptions(**(value or {}))


PAPER = BlockOptions()
