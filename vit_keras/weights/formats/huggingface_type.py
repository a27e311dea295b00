"""What decides how transformers reads a folder: one row for each of its model types."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from vit_keras.weights.formats.tensor_names import TensorNames

ANY: tuple = ()
# Defaults that most of the configuration classes share.
COMMON = {"num_attention_heads": 12, "hidden_act": "gelu", "qkv_bias": True}


def as_they_are(names: TensorNames, present) -> TensorNames:
    """Returns the names of a model type that has one spelling."""
    return names


@dataclasses.dataclass(frozen=True)
class ModelType:
    """One of transformers' model types.

    Attributes:
        name: The value of `model_type` in `config.json`.
        marks: Canonical names by which its files are known without a configuration.
        names: The names of its tensors.
        classes: For what the classifier reads and its kind ("", "classifier" or "projection"), the
            name of the class that holds such a model.
        fields: The defaults of the fields of its configuration.
        design: Takes the canonical names of a file; returns arguments of `VisionTransformer` that
            the type or the presence of tensors decides.
        says: Takes the fields of the configuration; returns arguments that they decide.
        holds: The values that options may have, `ANY` for all. The other options have defaults.
        needs: The options that must differ from their defaults.
        positions: The kinds of position embeddings.
        rule: Takes the fields of the configuration; returns the rule that resizes positions.
        processor: The name of its image processor.
        base: The prefix of tensors in classes with a head.
        outside: The prefixes of tensors that `base` does not precede.
        whole: The model type of a configuration that holds this one as `vision_config`.
        square: Whether images and patches must be square.
        spelling: Takes `names` and the names in a file; returns the row for that spelling.
        write: Takes an architecture; returns the fields of the configuration that others lack.
        fillers: Takes an architecture; returns `{name: array}`, tensors that transformers asks for
            although they have no effect.
    """

    name: str
    marks: tuple[str, ...]
    names: TensorNames
    classes: Mapping[tuple[str, str], str]
    fields: Mapping[str, Any]
    design: Callable[[set[str]], dict]
    says: Callable[[dict], dict]
    holds: Mapping[str, tuple]
    processor: str
    needs: tuple[str, ...] = ()
    positions: tuple[str, ...] = ("learned",)
    rule: Callable[[dict], str] = lambda fields: "bicubic"
    base: str = ""
    outside: tuple[str, ...] = ("classifier.",)
    whole: str = ""
    square: bool = False
    spelling: Callable[[TensorNames, set[str]], TensorNames] = as_they_are
    write: Callable[[Any], dict] = lambda arch: {}
    fillers: Callable[[Any], dict] = lambda arch: {}
