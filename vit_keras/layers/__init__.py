"""Keras layers of the Vision Transformer. They know neither models nor files."""

from vit_keras.layers.attention import MultiHeadDotProductAttention
from vit_keras.layers.blocks import EncoderBlock, WithAttentionWeights
from vit_keras.layers.bottleneck import BottleneckUnit, PreActivationUnit, ResNetStage
from vit_keras.layers.group_norm import GroupNorm
from vit_keras.layers.maps import PatchMap
from vit_keras.layers.masking import CorruptTokens, RestoreTokens, TakeVisible
from vit_keras.layers.mlp import MlpBlock
from vit_keras.layers.patch_dropout import PatchDropout
from vit_keras.layers.patches import (
    ClassToken,
    DropClassToken,
    PatchEmbedding,
    TakeClassToken,
)
from vit_keras.layers.pooling import MAPHead
from vit_keras.layers.positions import (
    AddPositionEmbs,
    AddPositionEmbs2D,
    AddSinCosPositions,
)
from vit_keras.layers.positions_in_attention import RelativeLogits, RotaryPositions
from vit_keras.layers.prototypes import PrototypeHead
from vit_keras.layers.resized_positions import AddResizedPositions
from vit_keras.layers.std_conv import ResNetInput, RootBlock, StdConv

__all__ = [
    "AddPositionEmbs",
    "AddPositionEmbs2D",
    "AddResizedPositions",
    "AddSinCosPositions",
    "BottleneckUnit",
    "ClassToken",
    "CorruptTokens",
    "DropClassToken",
    "EncoderBlock",
    "GroupNorm",
    "MAPHead",
    "MlpBlock",
    "MultiHeadDotProductAttention",
    "PatchDropout",
    "PatchEmbedding",
    "PatchMap",
    "PreActivationUnit",
    "PrototypeHead",
    "RelativeLogits",
    "ResNetInput",
    "ResNetStage",
    "RestoreTokens",
    "RootBlock",
    "RotaryPositions",
    "StdConv",
    "TakeClassToken",
    "TakeVisible",
    "WithAttentionWeights",
]
