"""A `Config` from a command line or a YAML file, and back.

jsonargparse does the parsing: it types, checks, nests and explains every field.
"""

import dataclasses
import difflib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from vit_keras import extras
from vit_keras.config import sources
from vit_keras.config.recipes import find_recipe
from vit_keras.config.run import Config

# What other projects call the fields.
SYNONYMS = {
    **dict.fromkeys(("lr", "learning_rate", "base_lr"), "optimizer.learning_rate"),
    **dict.fromkeys(("wd", "weight_decay"), "optimizer.weight_decay"),
    **dict.fromkeys(("opt", "optimizer", "optim"), "optimizer.name"),
    **dict.fromkeys(("warmup", "warmup_epochs", "warmup_ratio"), "optimizer.warmup_fraction"),
    **dict.fromkeys(("clip_grad", "max_grad_norm"), "optimizer.grad_norm_clip"),
    **dict.fromkeys(("batch_size", "bs", "b"), "batch"),
    **dict.fromkeys(("steps", "max_steps", "iterations", "num_steps"), "total_steps"),
    **dict.fromkeys(("num_epochs", "num_train_epochs", "max_epochs"), "epochs"),
    **dict.fromkeys(("img_size", "image_size", "input_size", "resolution"), "model.image_size"),
    **dict.fromkeys(("model", "arch", "architecture", "variant"), "model.variant"),
    **dict.fromkeys(("weights", "pretrained", "checkpoint", "finetune"), "model.weights"),
    **dict.fromkeys(("drop", "dropout", "drop_rate"), "model.dropout_rate"),
    **dict.fromkeys(("drop_path", "drop_path_rate"), "model.stochastic_depth_rate"),
    **dict.fromkeys(("amp", "fp16", "bf16", "precision", "dtype"), "model.dtype"),
    **dict.fromkeys(("data", "data_path", "train_data", "data_set"), "dataset"),
    **dict.fromkeys(("output", "output_dir", "out", "logdir", "log_dir", "resume"), "workdir"),
    **dict.fromkeys(("smoothing",), "label_smoothing"),
    **dict.fromkeys(("lora", "lora_rank", "lora_r"), "lora.rank"),
    **dict.fromkeys(("lora_alpha",), "lora.alpha"),
    **dict.fromkeys(("target_modules",), "lora.layers"),
    **dict.fromkeys(("modules_to_save",), "lora.train"),
    **dict.fromkeys(("mixup",), "augment.mixup_alpha"),
    **dict.fromkeys(("teacher", "teacher_model", "teacher_path"), "distill.teacher"),
    **dict.fromkeys(("distillation_type", "distillation"), "distill.kind"),
    **dict.fromkeys(("distillation_alpha", "alpha"), "distill.weight"),
    **dict.fromkeys(("distillation_tau", "tau", "temperature"), "distill.temperature"),
    **dict.fromkeys(("cutmix",), "augment.cutmix_alpha"),
    **dict.fromkeys(("aa", "auto_augment"), "augment.policy"),
    **dict.fromkeys(("reprob", "random_erasing"), "augment.erasing"),
    **dict.fromkeys(("recipe", "preset"), "config"),
}


BANDS = "--data.bands"  # whose numbers need no brackets
TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
TYPES |= {NoneType: "null"}
# What argparse says of a wrong option, and the same in plain words.
PLAIN = (
    (r"expected (?:at least )?one argument", r"needs a value"),
    (r"invalid int value: '(.*)'", rf"must be {TYPES[int]}. Received: \2"),
    (r"invalid float value: '(.*)'", rf"must be {TYPES[float]}. Received: \2"),
    (r"ignored explicit argument '(.*)'", r"takes no value. Received: \2"),
    (r"not allowed with argument (\S+)", r"cannot be given beside \2"),
    (r"(must be .*)", r"\2"),
)


class UsageError(ValueError):
    """A command line or a configuration file that cannot be read as options.

    Example:
        >>> parse_config(["--lr", "0.01"])
        Traceback (most recent call last):
            ...
        UsageError: unrecognized arguments: --lr 0.01. Did you mean --optimizer.learning_rate?
    """


def parser(prog: str):
    """The jsonargparse parser of a `Config`, with `--config FILE` and one option for each field.

    The parser refuses unknown fields, in a file or as an option, with the nearest right name.

    Example:
        ```python
        parser("train.py").print_help()  # one line or more for each field
        ```
    """
    jsonargparse = extras.require("jsonargparse", extra="train", purpose="Reading a configuration")
    ArgumentParser: Any = jsonargparse.ArgumentParser

    class Parser(ArgumentParser):
        def error(self, message, ex=None):
            raise UsageError(_wrong_value(message, self) or _wrong_option(message, self)) from ex

    config_parser = Parser(prog=prog, description=Config.__doc__, allow_abbrev=False)
    config_parser.add_argument("--config", action="config", help="a recipe's name or a YAML file")
    config_parser.add_class_arguments(Config)
    return config_parser


def plain(message: str) -> str:
    """What argparse says of an option, as a plain sentence."""
    for pattern, sentence in PLAIN:
        message = re.sub(rf"^argument (\S+?)(?:/\S+)?: {pattern}$", rf"`\1` {sentence}", message)
    return message.strip()


def _wrong_value(message, parser):
    """What a field must be, and what it is instead; None for another message."""
    field = re.search(r'Parser key "([\w.]+)":', message)
    value = re.search(r"(?:Got value:|Given value:|Unable to load config) (.*)", message)
    actions = {action.dest: action for action in parser._actions}
    if not (field and value and field[1] in actions):
        return None
    name, received = field[1], value[1].strip("'\"")
    kind = getattr(actions[name], "_typehint", None)
    if kind is None:  # a group
        first = SYNONYMS.get(name) or next(n for n in actions if n.startswith(f"{name}."))
        return f"`{name}` is a group of fields, such as --{first}. Received: {received}"
    words = _in_words(kind)
    near = difflib.get_close_matches(received, re.findall(r"\w+", words), 1)
    hint = f". Did you mean {near[0]}?" if near else ""
    return f"`{name}` must be {words}. Received: {received}{hint}"


def _in_words(kind):
    """What a value of a field's type is: "a whole number or null"."""
    arguments = get_args(kind)
    words = [str(part) if get_origin(kind) is Literal else _in_words(part) for part in arguments]
    if get_origin(kind) is tuple:
        count = "" if arguments[-1] is ... else f"{len(arguments)} "
        several = "" if get_origin(arguments[0]) is Literal else "s"
        return f"a list in brackets of {count}{words[0].removeprefix('a ')}{several}"
    if arguments and get_origin(kind) is not dict:
        return f"{', '.join(words[:-1])} or {words[-1]}"
    return TYPES.get(kind, "a mapping")


def _wrong_option(message: str, parser) -> str:
    """A message about an option, with the fields whose names are closest to a wrong one."""
    if re.match(r"unrecognized arguments: [^-]", message):
        return f"{message.strip()}. Fields are given as --FIELD VALUE"
    return f"{plain(message)}{_nearest(message, parser)}"


def _nearest(message: str, parser) -> str:
    """A hint at the fields whose names are closest to the one that a message refuses."""
    unknown = re.search(r"unrecognized arguments: -*([\w.]+)|[Oo]ption '([\w.]+)'", message)
    if not unknown:
        return ""
    name = unknown[1] or unknown[2]
    dashes = "--" if message.startswith("unrecognized") else ""
    if name in SYNONYMS:
        return f". Did you mean {dashes}{SYNONYMS[name]}?"
    group = re.search(r"Group '([\w.]+)'", message)
    prefix = f"{group[1]}." if group else ""
    fields = [action.dest for action in parser._actions if action.dest != "print_config"]
    fields += ["list", "help_all"] if parser.prog.endswith("train") else []
    fields = [field for field in fields if field.startswith(prefix)]
    near = difflib.get_close_matches(name, fields, n=2, cutoff=0.5)
    if not near:
        last = {field.rsplit(".")[-1]: field for field in fields}
        near = [last[n] for n in difflib.get_close_matches(name.rsplit(".")[-1], last, n=2)]
    return f". Did you mean {' or '.join(dashes + n for n in near)}?" if near else ""


def parse_config(
    arguments: Sequence[str] | None = None, prog: str = "vit-keras train", default: str = "digits"
) -> Config:
    """The `Config` of a command line.

    Args:
        arguments: `--config RECIPE` and `--FIELD VALUE`; by default those of the process. A later
            file overrides an earlier one, and options override files. A field that is given also
            replaces the fields of earlier sources that would contradict it: a variant replaces
            sizes, weights replace the architecture, and epochs replace updates.
        prog: the name of the program in messages.
        default: the recipe that is read if `arguments` name neither a recipe nor a data set; "" for
            none.

    Raises:
        UsageError: an unknown field, or a value that its field does not take.
        FileNotFoundError: there is no such recipe.

    Example:
        >>> config = parse_config(["--config", "digits", "--epochs", "3"])
        >>> config.epochs, config.total_steps  # the recipe counts updates
        (3.0, None)
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if re.search(r"--config(\n--|$)", "\n".join(arguments)):
        raise UsageError("`--config` needs a value")
    files, options = sources.in_order(arguments)
    if default and not files and not any(re.match("--dataset(=|$)", name) for name in options):
        files = [str(find_recipe(default))]
    words = [word for file in files for word in ("--config", file)]
    config_parser, replaced = parser(prog), _replaced_fields(files, options)
    namespace = config_parser.parse_args([*words, *_spell_out(options)])
    return _instantiate(config_parser, namespace, replaced)


def _spell_out(arguments: Sequence[str]) -> Iterator[str]:
    """`--sweep` as `--sweep=true`, as for every bool field, and `--data.bands 4 3` as a list."""
    flags, bands = set(_bool_fields(Config, "--")), list[str]()
    for argument, following in zip(arguments, [*arguments[1:], "--"]):
        is_flag = argument in flags and following.startswith("--")
        if argument == BANDS or (bands and argument.isdecimal()):
            bands.append(argument)
            if not following.isdecimal():
                yield f"{BANDS}=[{', '.join(bands[1:])}]" if bands[1:] else argument
                bands = []
            continue
        yield f"{argument}=true" if is_flag else argument


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

    Example:
        >>> read_config("digits").dataset  # or read_config("runs/mine/config.yaml")
        'digits'
    """
    file, config_parser = str(find_recipe(path)), parser("config")
    replaced = _replaced_fields([file], [])
    try:
        return _instantiate(config_parser, config_parser.parse_path(file), replaced)
    except UsageError as error:
        raise UsageError(f"{file!r} cannot be read as a configuration ({error})") from error


def _replaced_fields(files, options):
    """`sources.replaced_fields`, which reads the files before jsonargparse does."""
    try:
        return sources.replaced_fields(files, options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _instantiate(config_parser, namespace, replaced) -> Config:
    for name, value in replaced.items():
        namespace[name] = value
    for name in _fields_that_need_values(Config, ""):
        if namespace.get(name, 0) is None:
            raise UsageError(f"`{name}` must have a value. Received: null")
    try:
        fields = config_parser.instantiate(namespace).as_dict()
        fields.pop("config", None)
        return Config(**fields)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _fields_that_need_values(kind, prefix):
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.type):
            yield from _fields_that_need_values(field.type, f"{prefix}{field.name}.")
        elif type(None) not in get_args(field.type):
            yield prefix + field.name


def dump_config(config: Config) -> str:
    """The whole `Config` as YAML, as `read_config` reads it.

    Example:
        >>> print(dump_config(read_config("digits")).splitlines()[1])
        dataset: digits
    """
    yaml = extras.require("yaml", extra="train", purpose="Writing a configuration")

    plain = lambda value: list(value) if isinstance(value, tuple) else value
    fields = dataclasses.asdict(
        config, dict_factory=lambda items: {name: plain(value) for name, value in items}
    )
    return yaml.safe_dump(fields, sort_keys=False)
