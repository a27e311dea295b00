"""From a command line or a YAML file to a `Config`, and back.

By jsonargparse rather than a parser of our own: it types, checks, nests and explains every field.
"""

import dataclasses
import difflib
import re
import sys
from collections.abc import Sequence

from vit_keras.config import Config


def parser(prog: str):
    """The command line of a script that takes a `Config`, as `--config FILE` and `--FIELD VALUE`.

    Unknown fields, in a file or an argument, are refused with the nearest right name.
    """
    import jsonargparse

    class Parser(jsonargparse.ArgumentParser):
        def error(self, message, ex=None):
            super().error(message + _nearest(message, self), ex)

    made = Parser(prog=prog, description=Config.__doc__, allow_abbrev=False)
    made.add_argument("--config", action="config", help="a YAML file, see configs/")
    made.add_class_arguments(Config)
    return made


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


def parse(arguments: Sequence[str] | None, prog: str, default: str) -> Config:
    """The `Config` of a command line; `default` is the file read where none is named."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not any(argument.split("=")[0] == "--config" for argument in arguments):
        arguments = ["--config", default, *arguments]
    made = parser(prog)
    return _instantiate(made, made.parse_args(_spell_out(arguments)))


def _spell_out(arguments):
    """`--sweep` as `--sweep=true`, and so each bool field that has no value."""
    flags = set(_bool_fields(Config, "--"))
    following = [*arguments[1:], "--"]
    return [
        f"{argument}=true" if argument in flags and after.startswith("--") else argument
        for argument, after in zip(arguments, following)
    ]


def _bool_fields(kind, prefix):
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from _bool_fields(field.type, f"{prefix}{field.name}.")
        elif field.type is bool:
            yield prefix + field.name


def read(path: str) -> Config:
    """The `Config` in a YAML file, such as a run's `config.yaml`."""
    made = parser("config")
    return _instantiate(made, made.parse_path(path))


def _instantiate(made, namespace) -> Config:
    fields = made.instantiate(namespace).as_dict()
    fields.pop("config", None)
    try:
        return Config(**fields)
    except ValueError as error:
        made.error(str(error))


def dump(config: Config) -> str:
    """The whole `Config` as YAML, as `read` takes it."""
    import yaml

    plain = lambda value: list(value) if isinstance(value, tuple) else value
    fields = dataclasses.asdict(
        config, dict_factory=lambda items: {name: plain(value) for name, value in items}
    )
    return yaml.safe_dump(fields, sort_keys=False)
