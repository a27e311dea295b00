"""Shared by all commands: how a command is described, and how its options are spelled."""

import argparse
import contextlib
import dataclasses
import difflib
import io
import os
import pathlib
import re
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from vit_keras import evaluation
from vit_keras.support import extras
from vit_keras.support.command_line import UsageError
from vit_keras.support.files import claimed_output, replacing

if TYPE_CHECKING:
    from vit_keras.config import DataConfig


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Formats help 100 columns wide, with one line for most options."""

    def __init__(self, prog):
        super().__init__(prog, max_help_position=32, width=100)

    def _format_args(self, action, default_metavar):
        """Writes `--views VIEW ...` instead of `--views VIEW [VIEW ...]`."""
        if action.nargs in ("+", "*"):
            return f"{action.metavar or default_metavar} ..."
        return super()._format_args(action, default_metavar)


class Parser(argparse.ArgumentParser):
    """The parser of a command. Its UsageErrors suggest the nearest name for an unknown option.

    Args:
        command: The command's module. Its docstring is the help: a summary of one sentence, perhaps
            more text, and then, after a line "examples:", command lines. Its
            `add_options(parser, add, flag)` adds the arguments and options, and `run(options)` does
            the work. The module may also have `parse(parser, arguments)`, which returns the
            options, and `needs_models(options)`, which tells whether `run` needs Keras and the
            layers, since importing them takes seconds.
        prog: The command's name in messages.
    """

    def __init__(self, command: types.ModuleType, prog: str):
        text, examples = extras.docstring_of(command.__name__).split("\nexamples:\n")
        super().__init__(
            prog,
            description=text.replace("\n\n", "\n"),
            epilog=f"examples:\n{examples}",
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        command.add_options(self, *adders(self))
        names = [_Formatter(prog)._format_args(x, x.dest) for x in self._get_positional_actions()]
        self.usage = self.usage or " ".join([prog, *names, "[options]"])  # the rest follows below

    def error(self, message):
        unknown = re.search(r"unrecognized arguments:.*?(--\w+)", message)
        options = self._option_string_actions
        near = difflib.get_close_matches(unknown[1], options, n=1) if unknown else []
        raise UsageError(message + (f". Did you mean {near[0]}?" if near else ""))


def parse(command: types.ModuleType, arguments: Sequence[str], prog: str) -> Any:
    """Parses the options of a command; raises UsageError for an invalid one."""
    return getattr(command, "parse", Parser.parse_args)(Parser(command, prog), arguments)


def parse_with_fields(parser: "Parser", arguments: Sequence[str]) -> Any:
    """Parses a command's own options; all others are fields of the run, `options.run`.

    The options include `config`, the recipes, and may include the run's `dataset`.
    """
    from vit_keras import config
    from vit_keras.data.sources import with_kind

    options, fields = parser.parse_known_args(arguments)
    fields = [*(f"--config={name}" for name in options.config), *fields]
    if hasattr(options, "dataset"):
        name = options.dataset
        fields += ["--dataset", with_kind(name) if os.path.exists(name) else name]
    options.run = config.parse_config(fields, default="")
    return options


def count(text: str) -> int:
    """Parses a whole number of at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number, at least 1. Received: {text}")
    return int(text)


def spell_out(arguments: Sequence[str]) -> list[str]:
    """Spells options with underscores: `--image-size` becomes `--image_size`."""
    return [
        re.sub(r"^--[\w.-]+", lambda name: "--" + name[0][2:].replace("-", "_"), argument)
        for argument in arguments
    ]


Add = Callable[..., None]
Options = argparse.Namespace


def adders(group: Any) -> tuple[Add, Add]:
    """Returns functions that add options to a parser or one of its groups.

    Returns:
        `add(name, metavar, help, type, default, names)`, which appends the names to choose from and
        the default to the help, and passes other keywords to `add_argument`; and
        `flag(name, help)` for an option without a value.

    Example:
        ```python
        add, flag = shared.adders(parser.add_argument_group("answers"))
        add("--top", "N", "number of classes per picture", shared.count, 3)
        flag("--tiles", "predict tiles of the model's size")
        ```
    """

    def add(name, metavar, text, kind=str, default=None, names=(), **more):
        if names:
            more["choices"] = names
            text = ": ".join(filter(None, [text, ", ".join(names)]))
        if default not in (None, "", []):
            shown = default if isinstance(default, list) else [default]
            text += f" ({' '.join(str(x) for x in shown)})"
        group.add_argument(name, metavar=metavar, help=text, type=kind, default=default, **more)

    return add, lambda name, text: group.add_argument(name, action="store_true", help=text)


def add_dataset(add: Add, default: str = "the run's") -> None:
    """Adds `--dataset`, `--data_dir` and `--label_columns`, as in a training run.

    `default` describes the default data set in the help.
    """
    add("--dataset", "NAME", f"a data set, such as digits or folder:PATH ({default})")
    add("--data_dir", "DIR", "folder of TensorFlow Datasets")
    add("--label_columns", "NAMES", "columns of a table that hold the labels (the run's, or label)")


def dataset_of(options: Options, trained: Any) -> tuple[str | None, "DataConfig"]:
    """Returns the data set that the options of `add_dataset` choose, and its configuration.

    Args:
        options: The parsed options.
        trained: The run that the model comes from, or None for other models.

    Returns:
        The name, or None if neither the options nor a run gives one; and the run's `DataConfig` or
        the default one, with `--data_dir` and `--label_columns` replaced if given.
    """
    from vit_keras.config import DataConfig

    config = trained.config.data if trained else DataConfig()
    changes = {name: getattr(options, name) for name in ("data_dir", "label_columns")}
    config = dataclasses.replace(config, **{name: x for name, x in changes.items() if x})
    return options.dataset or (trained.config.dataset if trained else None), config


def dataset_label(name: str) -> str:
    """Names a data set in figures: `folder:photos/flowers` is flowers, `tfds:pets` is pets."""
    kind, _, rest = name.partition(":")
    is_path = kind in ("folder", "table", "shards")
    return pathlib.Path(rest).resolve().name if is_path else rest or kind


def add_image_size(add: Add) -> None:
    """Adds `--image_size`: one side, or height and width."""
    add("--image_size", "PIXELS", "side, or height and width (the model's)", count, nargs="+")


def image_size(options: Options) -> tuple[int, int] | None:
    """Returns the height and width from `--image_size`, or None; a third size raises UsageError."""
    sizes = options.image_size
    if sizes is not None and len(sizes) > 2:
        raise UsageError(f"--image_size takes one side, or height and width. Received: {sizes}")
    return sizes and (sizes[0], sizes[-1])


def add_labels(add: Add) -> None:
    """Adds `--labels`: a file of embeddings of class names, for a CLIP or SigLIP model."""
    add("--labels", "FILE", "classes of a CLIP or SigLIP model: file that `vit-keras labels` wrote")


def add_predictor(add: Add) -> None:
    """Adds `--image_size`, `--labels` and `--tta`: how a model is opened to predict."""
    add_image_size(add)
    add_labels(add)
    add("--tta", "VIEW", "average with the mirror image", names=("flip",), nargs="+")


def predictor_of(options: Options, path: str) -> tuple[Any, Any]:
    """Opens a model with the options of `add_predictor`; returns it and its run."""
    predictor, run = evaluation.open_predictor(path, image_size(options), labels=options.labels)
    return (evaluation.with_views(predictor, options.tta) if options.tta else predictor), run


def folder(text: str) -> str:
    """Checks that a folder exists or can be made, for argparse."""
    if os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"must be a folder. Received: {text}, a file")
    return text


def ending(*suffixes: str) -> Callable[[str], str]:
    """Returns a check, for argparse, that a file to write has one of these suffixes."""

    def check(text):
        if not text.lower().endswith(suffixes):
            raise argparse.ArgumentTypeError(
                f"must end in {' or '.join(suffixes)}. Received: {text}"
            )
        return text

    return check


FORMATS = ("table", "csv", "jsonl", "parquet", "html")  # of `evaluation.output_files`
COCO = "coco"  # the format of boxes in a .json file


def add_rows(add: Add, flag: Add, more: Sequence[str] = ()) -> None:
    """Adds `--format`, `--batch` and `--skip_unreadable` to a command that writes rows."""
    add("--format", "NAME", "format of the rows (by the suffix of --out)", names=(*FORMATS, *more))
    add("--batch", "N", "pictures per step", count, 32)
    flag("--skip_unreadable", "report an unreadable picture in its row instead of stopping")


def progress(pictures: Iterable | None = None, **more: Any) -> Any:
    """Returns a progress bar that counts pictures, and appears only on a terminal."""
    return extras.require("tqdm").tqdm(pictures, unit=" pictures", **{"disable": None, **more})


def on_error(options: Options) -> str:
    """Returns what `--skip_unreadable` chooses."""
    return "skip" if options.skip_unreadable else "raise"


def format_of(options: Options, forms: Sequence[str] = FORMATS) -> str:
    """Checks the options of `add_rows`; returns the format, one of `forms`, or "" for a folder."""
    suffix = pathlib.Path(options.out).suffix[1:].lower() if options.out else "table"
    form = options.format or {"json": COCO}.get(suffix, suffix)
    if form not in forms:
        raise UsageError(
            "--out must end in .csv, .jsonl, .parquet or .html, or --format must be given. "
            f"Received: {options.out}"
        )
    if form == "parquet" and not options.out:
        raise UsageError("--format parquet needs --out, because Parquet is not text")
    return form


def arguments(words: Sequence[str]) -> Iterator[str]:
    """Yields the arguments, with the lines of standard input in place of `-`."""
    for argument in words:
        if argument == "-":
            yield from filter(None, (line.rstrip("\n") for line in sys.stdin))
        else:
            yield argument


@contextlib.contextmanager
def output(path: str | None) -> Iterator[IO[bytes] | Any]:
    """Opens standard output, or a file that appears once it is complete.

    Raises:
        ValueError: Another process is writing the file.
    """
    if path is None:
        yield StandardOutput()
        return
    with (
        claimed_output(path, "a table of pictures"),
        replacing(path) as temporary,
        open(temporary, "wb") as file,
    ):
        yield file
    print(f"written: {path}")


class StandardOutput(io.BytesIO):
    """Shows each write at once. A notebook's standard output takes only text."""

    def write(self, content):
        print(bytes(content).decode(), end="", flush=True)
        return len(content)


def add_tile_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--tiles` and `--overlap`, for masks and boxes."""
    add, flag = adders(parser.add_argument_group("models of masks or boxes"))
    flag("--tiles", "predict tiles of the model's size, at full resolution")
    add("--overlap", "P", "least fraction of a tile's side that neighbors share (0.25)", float)


def tile_options(options: Options, batch: int) -> "evaluation.TileOptions":
    """Returns the `TileOptions` that the options of `add_tile_options` choose."""
    refuse_without(options, "tiles", "overlap")
    overlap = {} if options.overlap is None else {"overlap": options.overlap}
    return evaluation.TileOptions(options.tiles, batch=batch, **overlap)


def refuse_without(options: Options, needed: str, *names: str) -> None:
    """Refuses options that have no effect without another one."""
    for name in names:
        if getattr(options, name) is not None and not getattr(options, needed):
            raise UsageError(f"--{name} needs --{needed}")
