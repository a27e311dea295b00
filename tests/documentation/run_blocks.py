"""Runs the blocks of all pages in a folder of their own, and writes the errors to a file.

    KERAS_BACKEND=torch python -m tests.documentation.run_blocks RESULTS.json [PAGE ...]

`NIGHTLY=1` in the environment runs the long blocks as well.

The blocks of a page run one after another, as a reader copies them. A block that needs another says
so in a comment.
"""

import importlib.util
import json
import os
import pathlib
import re
import sys
import tempfile
import tomllib
import traceback

import benchmarks.torchvision_operators  # noqa: F401 before timm is imported
from studies.command import COMMAND, PROGRAM
from tests.documentation import folder
from tests.documentation.blocks import PAGES, blocks_of
from tests.helpers import ROOT
from vit_keras import commands

SCRIPTS = {f"{name}.py": name for name in ("train", "evaluate", "export", "visualize", "vtab")}
# These take seconds or less on the folder of the pages.
QUICK = ("check", "convert", "embed", "info", "predict", "search", "soup")

# What longer steps of the pages make, and standard input.
ABSENT = (
    *("-", "clip-vit-base-patch32", "clip.parquet", "digits/test/3/0002.png", "model.tflite"),
    *("folder:digits/train", "masks", "masks/test/images", "run", "run/export/model_int8.tflite"),
    *("runs/adapted/adapters.safetensors", "runs/boxes", "runs/boxes/export/model.tflite"),
    *("runs/digits/checkpoints/step_000000500", "runs/labels", "runs/places", "runs/segment"),
    *("runs/photos/export/model_int8.tflite", "runs/sweep", "runs/things", "soup.keras"),
    "tables/pictures/test00000.jpg",
)
REMOTE = ("hf:", "kaggle://", "shards:https://", "table:", "tfds:", "timm/")


def check(words: list[str]) -> None:
    """Raises an error if a command line would be refused."""
    program, *rest = words
    if program not in PROGRAMS:
        raise ValueError(f"`{program}` is no program that pages use: mark the block as ```text")
    PROGRAMS[program](rest)


def _vit_keras(words):
    name, *options = words
    if options in (["--help"], ["--list"], ["--help_all"]):
        commands.run(words)
    elif not name.startswith("--"):
        options = [word for word in options if word not in (">", "--help")]
        options = commands.options.spell_out(options)
        command = commands.command(name)
        parsed = commands.parse(command, options, f"vit-keras {name}")
        here = [word not in ABSENT and not word.startswith(REMOTE) for word in options]
        if name in QUICK and all(here):  # the folder of the pages has what the words name
            command.run(parsed)


def _python(words):
    first, *options = words
    if first == "-m" and options[0] in MODULES:
        MODULES[options[0]](options[1:])
    elif first == "-m":
        if (spec := importlib.util.find_spec(options[0])) is None:
            raise ValueError(f"There is no module {options[0]!r}")
        _has_options(pathlib.Path(spec.origin), options[1:])
    elif first == PROGRAM:
        commands.parse(COMMAND, options, PROGRAM)
    elif first in SCRIPTS:
        _vit_keras([SCRIPTS[first], *options])
    else:
        _has_options(ROOT / first, options)


def _has_options(script, options):
    text = script.read_text()
    for option in options:
        name = option.partition("=")[0]
        if name.startswith("--") and name not in text and name.replace("_", "-") not in text:
            raise ValueError(f"{script.name} has no option {name}")


def _torchrun(words):
    script = "train.py" in words
    after = words[words.index("train.py" if script else "vit_keras") + 1 :]
    _vit_keras(["train", *after] if script else after)


def _pip(words):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for word in words:
        extras = re.findall(r"^vit-keras\[(.*)\]", word)
        unknown = set(",".join(extras).split(",")) - {"", *project["optional-dependencies"]}
        if unknown or (word.endswith(".txt") and not (ROOT / word).is_file()):
            raise ValueError(f"There is no {word}")


def _make(words):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    if words[0] not in targets:
        raise ValueError(f"The Makefile has no target {words[0]!r}")


def _unchecked(words):
    """A program that is not ours."""


MODULES = {"vit_keras": _vit_keras, "pip": _pip, "pytest": _unchecked}
PROGRAMS = {
    "vit-keras": _vit_keras,
    "python": _python,
    ".venv/bin/python": _python,
    "torchrun": _torchrun,
    "pip": _pip,
    "make": _make,
    **dict.fromkeys(("pytest", "export", "npm"), _unchecked),
}


def run_page(page: str) -> list[str]:
    """Returns the errors of a page's blocks and commands."""
    errors: list[str] = []
    namespace: dict = {"__name__": "__main__"}
    for block in blocks_of(page):
        try:
            if block.runs_on("torch"):
                exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
            for words in block.commands():
                check(words)
        except Exception:
            errors.append(f"{page}:{block.line}\n{traceback.format_exc()}")
    return errors


def main() -> None:
    target, *pages = sys.argv[1:]
    target = pathlib.Path(target).resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        folder.make(pathlib.Path(place))
        errors = {page: run_page(page) for page in pages or PAGES}
        os.chdir("/")
    target.write_text(json.dumps(errors, indent=1))


if __name__ == "__main__":
    main()
