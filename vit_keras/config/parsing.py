"""A `Config` from a command line or a YAML file, and back.

jsonargparse does the parsing: it types, checks, nests and explains every field.
"""

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from vit_keras import extras
from vit_keras.config.recipes import find_recipe
from vit_keras.config.run import Config


class UsageError(ValueError):
    """A command line or a configuration file that cannot be read as options."""


def parser(prog: str):
    """The jsonargparse parser of a `Config`, with `--config FILE` and one option for each field.

    The parser refuses unknown fields, in a file or as an option, with the nearest right name.
    """
    jsonargparse = extras.require("jsonargparse", extra="train", purpose="Reading a configuration")
    ArgumentParser: Any = jsonargparse.ArgumentParser

    class Parser(ArgumentParser):
        def error(self, message, ex=None):
            raise UsageError(f"{message.strip()}{_nearest(message, self)}") from ex

    config_parser = Parser(prog=prog, description=Config.__doc__, allow_abbrev=False)
    config_parser.add_argument("--config", action="config", help="a recipe's name or a YAML file")
    config_parser.add_class_arguments(Config)
    return config_parser


def _nearest(message: str, parser) -> str:
    """A hint at the fields whose names are closest to the one that a message refuses."""
    unknown = re.search(r"unrecognized arguments: -*([\w.]+)|[Oo]ption '([\w.]+)'", message)
    if not unknown:
        return ""
    name = unknown[1] or unknown[2]
    group = re.search(r"Group '([\w.]+)'", message)
    prefix = f"{group[1]}." if group else ""
    fields = [action.dest for action in parser._actions if action.dest not in ("help", "config")]
    fields = [field for field in fields if field.startswith(prefix)]
    near = difflib.get_close_matches(name, fields, n=2, cutoff=0.5)
    if not near:
        last = {field.rsplit(".")[-1]: field for field in fields}
        near = [last[n] for n in difflib.get_close_matches(name.rsplit(".")[-1], last, n=2)]
    return f". Did you mean {' or '.join(near)}?" if near else ""


def parse_config(
    arguments: Sequence[str] | None = None, prog: str = "vit-keras train", default: str = "digits"
) -> Config:
    """The `Config` of a command line.

    Args:
        arguments: `--config RECIPE` and `--FIELD VALUE`; by default those of the process. A later
            option overrides an earlier one, and an option overrides a file.
        prog: the name of the program in messages.
        default: the recipe that is read if `arguments` name none; "" for none.

    Raises:
        UsageError: an unknown field, or a value that its field does not take.
        FileNotFoundError: there is no such recipe.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if default and not any(argument.split("=")[0] == "--config" for argument in arguments):
        arguments = ["--config", default, *arguments]
    config_parser = parser(prog)
    return _instantiate(config_parser, config_parser.parse_args(list(_spell_out(arguments))))


def _spell_out(arguments: Sequence[str]) -> Iterator[str]:
    """`--sweep` as `--sweep=true`, as for every bool field, and recipes by the paths of files."""
    flags = set(_bool_fields(Config, "--"))
    previous = ""
    for argument, following in zip(arguments, [*arguments[1:], "--"]):
        if previous == "--config":
            yield str(find_recipe(argument))
        elif argument.startswith("--config="):
            yield f"--config={find_recipe(argument.removeprefix('--config='))}"
        elif argument in flags and following.startswith("--"):
            yield f"{argument}=true"
        else:
            yield argument
        previous = argument


def _bool_fields(kind, prefix):
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from _bool_fields(field.type, f"{prefix}{field.name}.")
        elif field.type is bool:
            yield prefix + field.name


def read_config(path: str | os.PathLike) -> Config:
    """The `Config` in a YAML file, such as a run's `config.yaml`, or in a recipe by its name.

    Raises:
        UsageError: an unknown field, or a value that its field does not take.
        FileNotFoundError: there is no such file and no such recipe.
    """
    config_parser = parser("config")
    return _instantiate(config_parser, config_parser.parse_path(str(find_recipe(path))))


def _instantiate(config_parser, namespace) -> Config:
    try:
        fields = config_parser.instantiate(namespace).as_dict()
        fields.pop("config", None)
        return Config(**fields)
    except ValueError as error:
        raise UsageError(str(error)) from error


def dump_config(config: Config) -> str:
    """The whole `Config` as YAML, as `read_config` reads it."""
    yaml = extras.require("yaml", extra="train", purpose="Writing a configuration")

    plain = lambda value: list(value) if isinstance(value, tuple) else value
    fields = dataclasses.asdict(
        config, dict_factory=lambda items: {name: plain(value) for name, value in items}
    )
    return yaml.safe_dump(fields, sort_keys=False)
