"""The configuration of a run: frozen dataclasses, YAML files, command lines, and recipes."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.config.data import AugmentConfig, DataConfig
    from vit_keras.config.model import LoraConfig, ModelConfig
    from vit_keras.config.parsing import (
        dump_config,
        explain_field,
        explain_fields,
        find_recipe,
        merge_configs,
        parse_config,
        read_config,
        recipe_folder,
        recipe_names,
    )
    from vit_keras.config.pretext import DinoConfig, DistillConfig, PretextConfig
    from vit_keras.config.run import Config, GridConfig, OptimizerConfig
    from vit_keras.support.command_line import UsageError

__getattr__, __all__ = typed_names(__name__)
