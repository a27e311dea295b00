"""Keras layers of the Vision Transformer; they know nothing of models or files."""

from vit_keras.layers.attention import MultiHeadDotProductAttention
from vit_keras.layers.blocks import EncoderBlock, MlpBlock, WithAttentionWeights
from vit_keras.layers.bottleneck import BottleneckUnit, PreActivationUnit, ResNetStage
from vit_keras.layers.patches import (
    AddPositionEmbs,
    ClassToken,
    DropClassToken,
    PatchEmbedding,
    TakeClassToken,
)
from vit_keras.layers.pooling import MAPHead
from vit_keras.layers.std_conv import ResNetInput, RootBlock, StdConv

__all__ = [
    "AddPositionEmbs",
    "BottleneckUnit",
    "ClassToken",
    "DropClassToken",
    "EncoderBlock",
    "MAPHead",
    "MlpBlock",
    "MultiHeadDotProductAttention",
    "PatchEmbedding",
    "PreActivationUnit",
    "ResNetInput",
    "ResNetStage",
    "RootBlock",
    "StdConv",
    "TakeClassToken",
    "WithAttentionWeights",
]
