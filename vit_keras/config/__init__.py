"""What a run is, as frozen dataclasses."""

from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.model import ModelConfig
from vit_keras.config.optimizer import OptimizerConfig
from vit_keras.config.pretext import PretextConfig
from vit_keras.config.run import Config, GridConfig

__all__ = [
    "AugmentConfig",
    "Config",
    "DataConfig",
    "GridConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PretextConfig",
]
