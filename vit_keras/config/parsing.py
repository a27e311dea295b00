"""Reads a `Config` from command lines, recipes and YAML files, and writes it back.

Each file is a source of fields, and the options are the last one. A given field takes precedence
over conflicting fields of earlier sources: `--model.variant` replaces the sizes in a recipe, and
`--model.weights` its architecture. YAML may be damaged or malicious.
"""

import collections
import dataclasses
import difflib
import functools
import operator
import os
import pathlib
import re
import sys
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from vit_keras.config.model import DEFAULTS, SIZES, STEM
from vit_keras.config.run import Config
from vit_keras.support import extras
from vit_keras.support.checks import SIMPLE, TYPES, as_tuple, fault
from vit_keras.support.command_line import UsageError
from vit_keras.support.files import is_address, read_bounded

# Other projects' names for the fields.
SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "base_lr"), "optimizer.learning_rate"),
    **dict.fromkeys(("wd", "weight_decay"), "optimizer.weight_decay"),
    **dict.fromkeys(("opt", "optim"), "optimizer.name"),
    **dict.fromkeys(("warmup", "warmup_epochs", "warmup_ratio"), "optimizer.warmup_fraction"),
    **dict.fromkeys(("clip_grad", "max_grad_norm"), "optimizer.grad_norm_clip"),
    **dict.fromkeys(("batch_size", "bs", "b"), "batch"),
    **dict.fromkeys(("steps", "max_steps", "iterations", "num_steps"), "total_steps"),
    **dict.fromkeys(("num_epochs", "num_train_epochs", "max_epochs"), "epochs"),
    **dict.fromkeys(("img_size", "image_size", "input_size", "resolution"), "model.image_size"),
    **dict.fromkeys(("arch", "architecture", "variant"), "model.variant"),
    **dict.fromkeys(("weights", "pretrained", "checkpoint", "finetune"), "model.weights"),
    **dict.fromkeys(("drop", "dropout", "drop_rate"), "model.dropout_rate"),
    **dict.fromkeys(("drop_path", "drop_path_rate"), "model.stochastic_depth_rate"),
    **dict.fromkeys(("amp", "fp16", "bf16", "precision", "dtype"), "model.dtype"),
    **dict.fromkeys(("data_path", "train_data", "data_set"), "dataset"),
    **dict.fromkeys(("output", "output_dir", "out", "logdir", "log_dir", "resume"), "workdir"),
    **dict.fromkeys(("target_modules",), "lora.layers"),
    **dict.fromkeys(("modules_to_save",), "lora.train"),
    **dict.fromkeys(("teacher", "teacher_model", "teacher_path"), "distill.teacher"),
    **dict.fromkeys(("distillation_type", "distillation"), "distill.kind"),
    **dict.fromkeys(("distillation_alpha", "alpha"), "distill.weight"),
    **dict.fromkeys(("distillation_tau", "tau", "temperature"), "distill.temperature"),
    **dict.fromkeys(("aa", "auto_augment"), "augment.policy"),
    **dict.fromkeys(("reprob", "random_erasing"), "augment.erasing"),
    **dict.fromkeys(("recipe", "preset"), "config"),
}
VARIANT_SIZES = tuple(f"model.{name}" for name in (*SIZES, *STEM))
# For each field, the fields of earlier sources that it replaces.
REPLACED: dict[str, tuple[str, ...]] = {
    "model.variant": (*VARIANT_SIZES, "model.options"),
    "model.weights": (
        *VARIANT_SIZES,
        *(f"model.{name}" for name in DEFAULTS),
        *("model.representation_size", "model.options", "model.antialias", "model.rounding"),
    ),
    "epochs": ("total_steps",),
    "total_steps": ("epochs",),
    "optimizer.warmup_steps": ("optimizer.warmup_fraction",),
    "optimizer.warmup_fraction": ("optimizer.warmup_steps",),
}
BANDS = "data.bands"  # its numbers need no brackets on a command line
OF_YAML = {**TYPES, tuple: SIMPLE[tuple]}
WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
WORDS |= {types.NoneType: "null"}

# A recipe takes 2 kB. PyYAML, written in Python, reads 100 kB in 2 s.
LARGEST_YAML_BYTES = 2**17
DEEPEST_YAML = 20  # levels; PyYAML's time grows quadratically with nested brackets
_PACKAGE = pathlib.Path(__file__).parents[1]


def _fields(kind=Config, prefix="") -> Iterator[tuple[str, Any]]:
    """Yields the dotted name and the type of each field, without ranges."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from _fields(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, hints[field.name]


FIELDS = dict(_fields())


def flat_fields(config: Config) -> dict[str, Any]:
    """Returns the value of each field by its dotted name, such as "model.variant"."""
    return {name: operator.attrgetter(name)(config) for name in FIELDS}


def explain_field(name: str) -> tuple[str, Any]:
    """Returns the explanation and default of a field, from its dataclass's docstring.

    Args:
        name: The dotted name, such as "optimizer.learning_rate".

    Example:
        >>> explain_field("batch")
        ('images per update', 512)
    """
    kind: Any = Config
    *groups, field = name.split(".")
    for group in groups:
        kind = kind.__dataclass_fields__[group].type
    text = re.findall(rf"\n +{field}: (.*?)(?=\n +\w+: |\n *$)", kind.__doc__, re.DOTALL)[0]
    return " ".join(text.split()), kind.__dataclass_fields__[field].default


def explain_fields() -> str:
    """Formats all fields as command-line options, for `--help_all`.

    Example:
        >>> explain_fields().splitlines()[4].strip()
        '--name VALUE'
    """
    lines = ["A training run. Options:", "", "  --config RECIPE", "      a name or a YAML file"]
    for name, kind in FIELDS.items():
        text, default = explain_field(name)
        default = "null" if default is None else default
        text += f" ({_in_words(kind)}; default: {default})"
        lines += [f"  --{name} VALUE", textwrap.indent(textwrap.fill(text, 90), " " * 6)]
    return "\n".join(lines)


def _in_words(kind):
    """Describes the values of a field's type, such as "a whole number or null"."""
    arguments = get_args(kind)
    words = [str(part) if get_origin(kind) is Literal else _in_words(part) for part in arguments]
    if get_origin(kind) is tuple:
        count = "" if arguments[-1] is ... else f"{len(arguments)} "
        several = "" if get_origin(arguments[0]) is Literal else "s"
        return f"a list in brackets of {count}{words[0].removeprefix('a ')}{several}"
    if arguments and get_origin(kind) is not dict:
        return f"{', '.join(words[:-1])} or {words[-1]}"
    return WORDS.get(kind, "a mapping")


def _field(name, *values):
    """Returns the first of the values that fits a field; the error shows the last one."""
    for value in values:
        if not fault(value, FIELDS[name], OF_YAML):
            return float(value) if FIELDS[name] is float else as_tuple(value)
    words, received = _in_words(FIELDS[name]), "null" if values[-1] is None else str(values[-1])
    near = difflib.get_close_matches(received.strip("[]"), re.findall(r"\w+", words), 1)
    hint = f". Did you mean {near[0]}?" if near else ""
    raise UsageError(f"`{name}` must be {words}. Received: {received}{hint}")


def _flat(value, name="") -> Iterator[tuple[str, Any]]:
    """Yields the dotted names and the values of the fields in a section of a source."""
    inside = [field for field in FIELDS if field.startswith(f"{name}." if name else "")]
    if name in FIELDS:
        yield name, _field(name, value)
    elif not inside:
        raise UsageError(f"There is no field {name!r}{_nearest(name)}")
    elif not isinstance(value, Mapping):
        raise UsageError(f"Give a field of `{name}`, such as {inside[0]}. Received: {name}={value}")
    else:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else str(key))


def _nearest(name: str, dashes: str = "") -> str:
    """Returns a hint that names the fields most like a wrong name."""
    options = [*FIELDS, *(("config", "list", "help_all") if dashes else ())]
    near = difflib.get_close_matches(name, options, n=2, cutoff=0.5)
    if name in SYNONYMS:
        near = [SYNONYMS[name]]
    elif not near:
        last = {field.rsplit(".")[-1]: field for field in options}
        near = [last[n] for n in difflib.get_close_matches(name.rsplit(".")[-1], last, n=2)]
    return f". Did you mean {' or '.join(dashes + n for n in near)}?" if near else ""


def _read_arguments(arguments) -> tuple[list[str], dict[str, Any]]:
    """Returns the files that `--config` names, in order, and the fields that options give."""
    files: list[str] = []
    options: dict[str, Any] = {}
    remaining = collections.deque(arguments)
    while remaining:
        option, is_given, text = remaining.popleft().partition("=")
        name = option.removeprefix("--")
        is_known = name == "config" or any(f"{x}.".startswith(f"{name}.") for x in FIELDS)
        if name == option or not is_known:
            hint = ". Give fields as --FIELD VALUE" if name == option else _nearest(name, "--")
            raise UsageError(f"unrecognized arguments: {option}{hint}")
        if not is_given and remaining and not remaining[0].startswith("--"):
            text = remaining.popleft()
        elif not is_given and FIELDS.get(name) is bool:
            text = "true"
        elif not is_given:
            raise UsageError(f"`--{name}` needs a value")
        if name == BANDS and text.isdecimal():
            while remaining and remaining[0].isdecimal():
                text += f", {remaining.popleft()}"
            text = f"[{text}]"
        if name == "config":
            files.append(text)
        else:
            options |= _from_text(name, text)
    return files, options


def _from_text(name, text) -> dict[str, Any]:
    """Reads a field, or the fields of a group, from YAML on a command line."""
    try:
        value = load_yaml(text)
    except ValueError:
        value = text
    if isinstance(value, str) or not text.strip():
        value = text  # it may have quotes, or be a space
    return {name: _field(name, value, text)} if name in FIELDS else dict(_flat(value, name))


def _configured(sources: Sequence[Mapping[str, Any]]) -> Config:
    """Makes a `Config` from several sources; later ones take precedence."""
    fields: dict[str, Any] = {}
    later: set[str] = set()  # fields of sources after the one that gives the variant
    for source in sources:
        for name, value in source.items():
            for replaced in REPLACED.get(name, ()) if value is not None else ():
                fields.pop(replaced, None)
        fields |= source
        later = set() if "model.variant" in source else later | source.keys()
    weights = fields.get("model.weights")
    is_file = weights and (os.path.exists(weights) or is_address(weights))
    sizes = {f"model.{size}" for size in SIZES}
    if sizes <= later or (is_file and "model.weights" in later):
        fields.pop("model.variant", None)  # a published name needs its variant
    try:
        return _built(Config, fields)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _built(kind, fields, prefix=""):
    values = {}
    for field in dataclasses.fields(kind):
        name = prefix + field.name
        if dataclasses.is_dataclass(field.type):
            values[field.name] = _built(field.type, fields, f"{name}.")
        elif name in fields:
            values[field.name] = fields[name]
    return kind(**values)


def parse_config(arguments: Sequence[str] | None = None, default: str = "digits") -> Config:
    """Reads the `Config` of a command line.

    Args:
        arguments: `--config RECIPE` and `--FIELD VALUE`; by default those of the process. A later
            file overrides an earlier one, and options override files. A given field also replaces
            conflicting fields of earlier sources: a variant replaces sizes, weights replace the
            architecture, and epochs replace updates.
        default: The recipe to read if `arguments` name neither a recipe nor a data set; "" for
            none.

    Raises:
        UsageError: There is an unknown field, or an invalid value.
        FileNotFoundError: There is no such recipe.

    Example:
        >>> config = parse_config(["--config", "digits", "--epochs", "3"])
        >>> config.epochs, config.total_steps  # the recipe counts updates
        (3.0, None)
    """
    files, options = _read_arguments(sys.argv[1:] if arguments is None else arguments)
    if default and not files and "dataset" not in options:
        files = [default]
    return _configured([*(dict(_flat(read_yaml(find_recipe(file)))) for file in files), options])


def read_config(path: str | os.PathLike) -> Config:
    """Reads the `Config` in a YAML file, such as a run's `config.yaml`, or in a recipe by its name.

    Raises:
        UsageError: There is an unknown field, or an invalid value.
        FileNotFoundError: There is no such file or recipe.

    Example:
        >>> read_config("digits").dataset  # or read_config("runs/mine/config.yaml")
        'digits'
    """
    content = read_yaml(file := find_recipe(path))
    try:
        return merge_configs(content)
    except UsageError as error:
        raise UsageError(f"{str(file)!r} cannot be read as a configuration ({error})") from error


def merge_configs(*sources: Mapping[str, Any]) -> Config:
    """Makes a `Config` from sources of fields, nested as in YAML; later ones take precedence.

    Raises:
        UsageError: There is an unknown field, or an invalid value.

    Example:
        >>> merge_configs({"batch": 8, "seed": 1}, {"batch": 16}).batch
        16
    """
    return _configured([dict(_flat(source)) for source in sources])


def dump_config(config: Config) -> str:
    """Writes the whole `Config` as YAML for `read_config`.

    Example:
        >>> print(dump_config(read_config("digits")).splitlines()[1])
        dataset: digits
    """
    yaml = extras.require("yaml")

    plain = lambda value: list(value) if isinstance(value, tuple) else value
    fields = lambda items: {name: plain(value) for name, value in items}
    return yaml.safe_dump(dataclasses.asdict(config, dict_factory=fields), sort_keys=False)


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
        raise UsageError(f"{str(path)!r} cannot be read as a configuration ({error})") from error
    return dict(content)


def load_yaml(text: str) -> Any:
    """Parses YAML, in which 1e-3 is also a number; raises ValueError for text that is not YAML."""
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
    # YAML 1.1 takes 010 for 8 and 1:30 for 90; here they stay text.
    odd, whole = re.compile(r"[-+]?0[\d_]|.*:"), yaml.SafeLoader.construct_yaml_int
    unless_odd = lambda self, node: node.value if odd.match(node.value) else whole(self, node)
    loader.add_constructor("tag:yaml.org,2002:int", unless_odd)
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
            raise ValueError(f"it has more than {DEEPEST_YAML} levels of nesting")
        if kind == "AliasToken":
            raise ValueError(f"it must not use aliases such as *{token.value}. Write values out")


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
        FileNotFoundError: There is no such file or recipe.

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
    raise FileNotFoundError(f"There is no file or recipe {os.fspath(name)!r}. {hint}")
