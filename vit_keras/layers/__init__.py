"""Keras layers of the Vision Transformer. They depend on neither models nor files.

The layers of vit-keras 0.x are registered under that version's names on first use.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.layers.attention import MultiHeadDotProductAttention
    from vit_keras.layers.blocks import (
        EncoderBlock,
        FeatureAdapter,
        LayerScale,
        MlpBlock,
        SwiGLU,
        WithAttentionWeights,
    )
    from vit_keras.layers.common import BlockOptions, Rope
    from vit_keras.layers.heads import MAPHead, PatchBoxes, PrototypeHead
    from vit_keras.layers.positions import (
        AddDynamicPositions,
        AddPositionEmbs,
        AddPositionEmbs2D,
        AddSinCosPositions,
    )
    from vit_keras.layers.positions_in_attention import (
        RelativeBias2D,
        RelativeLogits,
        RotaryPositions,
    )
    from vit_keras.layers.resnet import (
        BottleneckUnit,
        GroupNorm,
        PreActivationUnit,
        ResNetInput,
        ResNetStage,
        RootBlock,
        StdConv,
    )
    from vit_keras.layers.text import TakeToken, TextEmbedding, TextMask
    from vit_keras.layers.tokens import (
        ClassToken,
        CorruptTokens,
        DropClassToken,
        PatchDropout,
        PatchEmbedding,
        PatchMap,
        RegisterTokens,
        RestoreTokens,
        TakeClassToken,
        TakeVisible,
    )

OF_VERSION_0 = ("MultiHeadSelfAttention", "TransformerBlock")
__getattr__, __all__ = typed_names(__name__, dict.fromkeys(OF_VERSION_0, "vit_keras.legacy.layers"))
