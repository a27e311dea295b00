"""Training: optimizers, schedules, losses, callbacks, checkpoints, and the loop around `fit`."""

from vit_keras.training.layer_rules import freeze
from vit_keras.training.losses import (
    ComputedLoss,
    Distillation,
    FeatureDistance,
    PixelCrossentropy,
    RareClassCrossentropy,
    RegressionLoss,
    SigmoidCrossentropy,
)
from vit_keras.training.optimizers import SGD, AdamW, WarmupDecay, build_optimizer

__all__ = [
    "SGD",
    "AdamW",
    "ComputedLoss",
    "Distillation",
    "FeatureDistance",
    "PixelCrossentropy",
    "RareClassCrossentropy",
    "RegressionLoss",
    "SigmoidCrossentropy",
    "WarmupDecay",
    "build_optimizer",
    "freeze",
]
