"""Training: optimizers, schedules, losses, callbacks, checkpoints, and the loop around `fit`."""

from vit_keras.training.computed_loss import ComputedLoss
from vit_keras.training.distillation import Distillation, FeatureDistance
from vit_keras.training.layer_rules import freeze
from vit_keras.training.losses import (
    PixelCrossentropy,
    RareClassCrossentropy,
    RegressionLoss,
    SigmoidCrossentropy,
)
from vit_keras.training.optimizers import SGD, AdamW, build_optimizer
from vit_keras.training.schedules import WarmupDecay

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
