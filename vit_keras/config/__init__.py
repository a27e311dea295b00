"""What a run is: frozen dataclasses, their YAML files and command lines, and the recipes."""

from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.model import LoraConfig, ModelConfig, OptimizerConfig
from vit_keras.config.parsing import (
    UsageError,
    dump_config,
    explain_field,
    explain_fields,
    parse_config,
    read_config,
)
from vit_keras.config.pretext import DinoConfig, DistillConfig, PretextConfig
from vit_keras.config.run import Config, GridConfig
from vit_keras.config.sources import find_recipe, recipe_folder, recipe_names

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
    "explain_field",
    "explain_fields",
    "find_recipe",
    "parse_config",
    "read_config",
    "recipe_folder",
    "recipe_names",
]
