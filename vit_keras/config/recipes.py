"""Reads recipes and the YAML of configurations, which may be damaged or malicious."""

import difflib
import functools
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from vit_keras.support import extras
from vit_keras.support.command_line import UsageError
from vit_keras.support.files import read_bounded

# A recipe has 2 kB. PyYAML, written in Python, reads 100 kB in 2 s.
LARGEST_YAML_BYTES = 2**17
DEEPEST_YAML = 20  # levels; PyYAML's time grows quadratically with nested brackets


def read_yaml(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a YAML file of fields.

    Raises:
        FileNotFoundError: There is no file at `path`.
        UsageError: The file is damaged, or far larger than a configuration. The message names it.
    """
    try:
        content = load_yaml(read_bounded(path, LARGEST_YAML_BYTES).decode("utf-8"))
        if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
            raise ValueError("it must contain fields, such as `dataset: digits`")
    except ValueError as error:
        raise UsageError(
            f"{os.fspath(path)!r} cannot be read as a configuration ({error})"
        ) from error
    return dict(content)


def load_yaml(text: str) -> Any:
    """Parses YAML, in which 1e-3 is also a number; raises ValueError for other text."""
    yaml, loader = _yaml()
    try:
        _check_tokens(yaml.scan(text))
        return yaml.load(text, loader)  # a kind of SafeLoader
    except Exception as error:  # wrong tags raise IndexError, AttributeError and others
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


@functools.cache
def _yaml():
    yaml = extras.require("yaml")
    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    number = re.compile(r"[-+]?\d[\d_]*(\.\d*)?[eE][-+]?\d+$")
    loader.add_implicit_resolver("tag:yaml.org,2002:float", number, list("-+0123456789"))
    return yaml, loader


def _check_tokens(tokens):
    """Raises ValueError for text that would cost the parser minutes or all memory."""
    depth = 0
    for token in tokens:
        kind = type(token).__name__
        depth += kind.endswith(("SequenceStartToken", "MappingStartToken"))
        depth -= kind.endswith(("SequenceEndToken", "MappingEndToken", "BlockEndToken"))
        if depth > DEEPEST_YAML:
            raise ValueError(f"it has more than {DEEPEST_YAML} levels")
        if kind == "AliasToken":
            raise ValueError(f"it must not repeat values, as by *{token.value}. Write them out")


_PACKAGE = pathlib.Path(__file__).parents[1]


def recipe_folder() -> pathlib.Path:
    """Returns the recipes' folder: `recipes/` in an installed package, or `configs/` beside it."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def recipe_names() -> list[str]:
    """Returns the names of all recipes, such as "digits" and "finetune/pets".

    Example:
        >>> recipe_names()[:3]
        ['augreg/imagenet', 'augreg/imagenet21k', 'augreg/light1']
    """
    folder = recipe_folder()
    files = folder.rglob("*.yaml")
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in files)


def find_recipe(name: str | os.PathLike) -> pathlib.Path:
    """Returns the file of a recipe.

    Args:
        name: The path of a YAML file, or the name of a recipe, such as "finetune/pets".

    Raises:
        FileNotFoundError: There is no such file and no such recipe.

    Example:
        >>> find_recipe("finetune/pets").name
        'pets.yaml'
    """
    path = pathlib.Path(name)
    if path.is_file():
        return path
    plain = path.as_posix().removeprefix("configs/").removesuffix(".yaml")
    names = recipe_names()
    if plain in names:
        return recipe_folder() / f"{plain}.yaml"
    near = difflib.get_close_matches(plain, names, n=3, cutoff=0.5)
    others = "`vit-keras train --list` prints the recipes"
    hint = f"Did you mean {' or '.join(near)}?" if near else others
    raise FileNotFoundError(f"There is no file and no recipe {os.fspath(name)!r}. {hint}")
