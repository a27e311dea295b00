"""The command `vit-keras`: one file per subcommand, with shared options in `options.py`.

Exit codes: 0 for success, 1 for an error in data, files or models, 2 for an invalid command line,
130 after Ctrl-C, and 143 after SIGTERM. After a signal, a training run first writes a checkpoint.
"""

import difflib
import importlib
import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from typing import Any

import vit_keras
from vit_keras.commands.options import Command, spell_out
from vit_keras.support import command_line, extras, machine
from vit_keras.support.command_line import UsageError, visible

__all__ = ["COMMANDS", "command", "main", "run"]

# In the order of the help; each command is the module of that name, as `Command` says.
GROUPS = {
    "your own model": {
        "check": "Report whether a data set can be trained on, and what may spoil the result.",
        "train": "Train a model on a data set, or continue a run that was stopped.",
        "evaluate": "Evaluate runs, checkpoints or exported files on a data set.",
        "predict": "Predict the classes of pictures.",
        "export": "Export a model for servers, phones and browsers, and compare the files with it.",
        "visualize": "Draw what a model has learned: filters, positions, attention, features.",
    },
    "plans and data": {
        "demo-data": "Make a small data set of real photographs, to try the commands on.",
        "plan": "Estimate the memory, the time and the cost of a run on given devices.",
        "pack": "Pack a data set into shards: tar, Parquet, TFRecord or ArrayRecord files.",
        "info": "Describe a run, a checkpoint, an exported file or a variant.",
        "bench": "Measure how fast models and exported files answer, and name the fastest.",
    },
    "features and texts": {
        "embed": "Write the features of pictures.",
        "search": "Find the most similar pictures.",
        "labels": "Embed class names with a text tower, for classifiers without training.",
    },
    "files of weights": {
        "convert": "Write a checkpoint in another project's format.",
        "soup": "Average the weights of fine-tuned models into one model.",
        "push": "Upload a run to the Hugging Face hub, with transformers' files and a card.",
    },
    "experiments from papers": {"vtab": "Fine-tune a checkpoint on the tasks of VTAB-1k."},
}
SUMMARIES = {name: text for group in GROUPS.values() for name, text in group.items()}
COMMANDS = tuple(SUMMARIES)
ERRORS = (ValueError, OSError, FloatingPointError, ImportError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and prints its errors.

    Args:
        arguments: The command and its options; by default those of the process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    program = " ".join(["vit-keras", *[name for name in arguments[:1] if name in COMMANDS]])
    return exit_code(program, lambda: run(arguments))


def exit_code(program: str, work: Callable[[], None]) -> int:
    """Runs a program's `work`, prints its errors, and returns the exit code."""
    command_line.set_exit_code(1)  # for an unexpected error
    code: Any = 0
    try:
        work()
    except UsageError as error:
        code = _fail(program, f"{error}\nusage: {command_line.spelled(program)} --help", 2)
    except BrokenPipeError:  # the reader of a pipe, such as `head`, is gone
        sys.stderr.close()
        code = 1
    except ERRORS as error:
        code = _fail(program, error, 1)
    except KeyboardInterrupt:
        code = _fail(program, "interrupted", command_line.INTERRUPTED)
    except SystemExit as error:  # a training run has stopped
        code = error.code
    return command_line.set_exit_code(code)


def _fail(program, message, code):
    print(f"{program}: error: {visible(message)}", file=sys.stderr)
    return code


def run(arguments: Sequence[str]) -> None:
    """Runs a command line, and raises its errors instead of printing them.

    Raises:
        UsageError: There is no such command or option, or an option's value is invalid.
        ValueError, OSError, FloatingPointError, ImportError: As the command documents.
    """
    if not arguments or arguments[0] in ("--help", "-h"):
        lines = ["usage: vit-keras COMMAND [options]", "", str(vit_keras.__doc__).splitlines()[0]]
        for title, group in GROUPS.items():
            lines += ["", f"{title}:", *(f"  {name:<11} {text}" for name, text in group.items())]
        lines += ["", "`vit-keras COMMAND --help` explains a command. KERAS_BACKEND chooses the"]
        print("\n".join([*lines, "backend: jax, tensorflow or torch."]))
    elif arguments[0] == "--version":
        print(version())
    else:
        name, *options = arguments
        run_command(command(name), options, f"vit-keras {name}")


def run_command(chosen: Command, options: Sequence[str], program: str) -> None:
    """Runs a command with unparsed options, or prints its help."""
    options = spell_out(options)
    if "--help" in options or "-h" in options:
        print(chosen.parser(program).format_help().rstrip())
    else:
        parsed = chosen.parse(options, program)
        needs_models = getattr(chosen.module, "needs_models", None)
        if needs_models is None or needs_models(parsed):
            vit_keras.import_models()
            machine.prepare()
        chosen.module.run(parsed)


def command(name: str) -> Command:
    """Returns the command of that name.

    Raises:
        UsageError: There is no such command.
    """
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"The commands are {', '.join(COMMANDS)}."
        raise UsageError(f"There is no command {name!r}. {hint}")
    module = importlib.import_module(f"vit_keras.commands.{name.replace('-', '_')}")
    return Command(SUMMARIES[name], module)


def version() -> str:
    """Returns the versions of vit_keras and Keras, and the backend."""
    return (
        f"vit-keras {vit_keras.__version__} "
        f"(Keras {importlib.metadata.version('keras')} on {extras.backend_name()})"
    )
