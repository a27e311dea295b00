"""Recipes: YAML files of a `Config`, found by name in the checkout's `configs/` or in the wheel."""

import difflib
import os
import pathlib

_PACKAGE = pathlib.Path(__file__).parents[1]


def recipe_folder() -> pathlib.Path:
    """The folder of the recipes: `recipes/` in an installed package, else `configs/` beside it."""
    installed = _PACKAGE / "recipes"
    return installed if installed.is_dir() else _PACKAGE.parent / "configs"


def recipe_names() -> list[str]:
    """The names of all recipes, such as "digits" and "finetune/pets".

    Example:
        >>> recipe_names()[:3]
        ['augreg/imagenet', 'augreg/imagenet21k', 'augreg/light1']
    """
    folder = recipe_folder()
    files = folder.rglob("*.yaml")
    return sorted(file.relative_to(folder).with_suffix("").as_posix() for file in files)


def find_recipe(name: str | os.PathLike) -> pathlib.Path:
    """The file of a recipe.

    Args:
        name: the path of a YAML file, or the name of a recipe, such as "finetune/pets".

    Raises:
        FileNotFoundError: there is no such file and no such recipe.

    Example:
        >>> find_recipe("finetune/pets").name
        'pets.yaml'
    """
    path = pathlib.Path(name)
    if path.is_file():
        return path
    plain = path.as_posix().removeprefix("configs/").removesuffix(".yaml")
    file = recipe_folder() / f"{plain}.yaml"
    if file.is_file():
        return file
    near = difflib.get_close_matches(plain, recipe_names(), n=3, cutoff=0.5)
    others = "`vit-keras train --list` prints the recipes"
    hint = f"Did you mean {' or '.join(near)}?" if near else others
    raise FileNotFoundError(f"There is no file and no recipe {os.fspath(name)!r}. {hint}")
