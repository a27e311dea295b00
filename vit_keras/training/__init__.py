"""Training: optimizers, schedules, losses, callbacks, checkpoints, and the loop around `fit`."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.training.losses import (
        ComputedLoss,
        ContrastiveLoss,
        Distillation,
        FeatureDistance,
        PixelCrossentropy,
        RareClassCrossentropy,
        RegressionLoss,
        SetPrediction,
        SigmoidCrossentropy,
    )
    from vit_keras.training.optimizers import SGD, AdamW, WarmupDecay, build_optimizer, freeze

__getattr__, __all__ = typed_names(__name__)
