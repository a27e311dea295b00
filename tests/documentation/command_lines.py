"""Reads the command lines of pages as the programs do, and runs those that are quick."""

import importlib.util
import pathlib
import re
import tomllib

from studies.command import COMMAND, PROGRAM
from tests.helpers import ROOT
from vit_keras import commands

SCRIPTS = {f"{name}.py": name for name in ("train", "evaluate", "export", "visualize", "vtab")}
# These take seconds or less on the folder of the pages.
QUICK = ("check", "convert", "embed", "info", "predict", "search", "soup")

# What longer steps of the pages make, and standard input.
ABSENT = {
    *(
        "-",
        "clip-vit-base-patch32",
        "clip.parquet",
        "digits/test/3/0002.png",
        "folder:digits/train",
        "model.tflite",
    ),
    *("run", "run/export/model_int8.tflite", "runs/adapted/adapters.safetensors", "runs/labels"),
    *("masks", "masks/test/images", "runs/places", "runs/things", "tables/pictures/test00000.jpg"),
    "runs/digits/checkpoints/step_000000500",
    *("runs/photos/export/model_int8.tflite", "runs/segment", "runs/sweep", "soup.keras"),
    *("runs/boxes", "runs/boxes/export/model.tflite"),
}


def check(words: list[str]) -> bool:
    """Raises an error if a command line would be refused; returns whether it was run."""
    program, *rest = words
    if program not in PROGRAMS:
        raise ValueError(f"`{program}` is no program that pages use: mark the block as ```text")
    return bool(PROGRAMS[program](rest))


def _vit_keras(words):
    name, *options = words
    if name.startswith("--"):
        return False
    if options in (["--help"], ["--list"], ["--help_all"]):
        return commands.run(words) is None
    options = [word for word in options if word not in (">", "--help")]
    options = commands.options.spell_out(options)
    parsed = commands.command(name).parse(options, f"vit-keras {name}")
    if name in QUICK and all(map(_is_here, options)):
        commands.command(name).run(parsed)
        return True
    return False


def _is_here(word):
    """Whether the folder of the pages has what a word names."""
    return word not in ABSENT and not word.startswith(
        ("hf:", "kaggle://", "shards:https://", "table:", "tfds:", "timm/")
    )


def _python(words):
    if words[0] == "-m":
        module, *options = words[1:]
        if module in ("vit_keras", "pip", "pytest"):
            return {"vit_keras": _vit_keras, "pip": _pip, "pytest": _pytest}[module](options)
        spec = importlib.util.find_spec(module)
        if spec is None:
            raise ValueError(f"There is no module {module!r}")
        return _has_options(pathlib.Path(spec.origin), options)
    if words[0] == PROGRAM:
        return COMMAND.parse(words[1:], PROGRAM) is None
    if words[0] in SCRIPTS:
        return _vit_keras([SCRIPTS[words[0]], *words[1:]])
    return _has_options(ROOT / words[0], words[1:])


def _has_options(script, options):
    text = script.read_text(encoding="utf-8")
    for option in options:
        name = option.partition("=")[0]
        if name.startswith("--") and name not in text and name.replace("_", "-") not in text:
            raise ValueError(f"{script.name} has no option {name}")


def _torchrun(words):
    if "train.py" in words:
        return _vit_keras(["train", *words[words.index("train.py") + 1 :]])
    return _vit_keras(words[words.index("vit_keras") + 1 :])


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


def _export(words):
    if not all(re.match(r"\w+=\w+$", word) for word in words):
        raise ValueError(f"`export` needs NAME=VALUE. Received: {words}")


def _pytest(words):
    if not all((ROOT / word).exists() for word in words if not word.startswith("-")):
        raise ValueError(f"There is no {words}")


def _npm(words):
    if not (ROOT / words[-1] / "package.json").is_file():
        raise ValueError(f"There is no {words[-1]}/package.json")


PROGRAMS = {
    "vit-keras": _vit_keras,
    "python": _python,
    ".venv/bin/python": _python,
    "torchrun": _torchrun,
    "pip": _pip,
    "pytest": _pytest,
    "make": _make,
    "export": _export,
    "npm": _npm,
}
