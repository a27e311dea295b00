"""What a run is: frozen dataclasses, their YAML files and command lines, and the recipes."""

from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.dino import DinoConfig
from vit_keras.config.distillation import DistillConfig
from vit_keras.config.grid import GridConfig
from vit_keras.config.lora import LoraConfig
from vit_keras.config.model import ModelConfig
from vit_keras.config.optimizer import OptimizerConfig
from vit_keras.config.parsing import UsageError, dump_config, parse_config, parser, read_config
from vit_keras.config.pretext import PretextConfig
from vit_keras.config.recipes import find_recipe, recipe_folder, recipe_names
from vit_keras.config.run import Config

__all__ = [
    "AugmentConfig",
    "Config",
    "DataConfig",
    "DinoConfig",
    "DistillConfig",
    "GridConfig",
    "LoraConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PretextConfig",
    "UsageError",
    "dump_config",
    "find_recipe",
    "parse_config",
    "parser",
    "read_config",
    "recipe_folder",
    "recipe_names",
]
