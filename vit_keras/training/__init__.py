"""Training: optimizers, schedules, losses, callbacks, checkpoints, and the loop around `fit`."""

from vit_keras.training.layer_rules import freeze
from vit_keras.training.losses import (
    ComputedLoss,
    ContrastiveLoss,
    Distillation,
    FeatureDistance,
    PixelCrossentropy,
    RareClassCrossentropy,
    RegressionLoss,
    SigmoidCrossentropy,
)
from vit_keras.training.optimizers import SGD, AdamW, WarmupDecay, build_optimizer
from vit_keras.training.set_prediction import SetPrediction

__all__ = [
    "SGD",
    "AdamW",
    "ComputedLoss",
    "ContrastiveLoss",
    "Distillation",
    "FeatureDistance",
    "PixelCrossentropy",
    "RareClassCrossentropy",
    "RegressionLoss",
    "SetPrediction",
    "SigmoidCrossentropy",
    "WarmupDecay",
    "build_optimizer",
    "freeze",
]
