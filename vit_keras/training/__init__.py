"""Training: optimisers and schedules, callbacks, checkpoints, the folder of a run."""

from vit_keras.training.optimizers import WarmupDecay, build_optimizer

__all__ = ["WarmupDecay", "build_optimizer"]
