"""The command `vit-keras`: one file per subcommand, with shared options in `options.py`.

Exit codes: 0 for success, 1 for an error in data, files or models, 2 for an invalid command line,
130 after Ctrl-C, and 143 after SIGTERM. After a signal, a training run first writes a checkpoint.
"""

import difflib
import importlib
import importlib.metadata
import itertools
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import vit_keras
from vit_keras.commands.options import Parser, parse, spell_out
from vit_keras.support import command_line, extras, machine
from vit_keras.support.command_line import UsageError, visible

__all__ = ["COMMANDS", "command", "main", "run"]

GROUPS = {  # in the order of the help; `options.Parser` describes the modules
    "your own model": ("check", "train", "evaluate", "predict", "export", "visualize"),
    "plans and data": ("demo-data", "plan", "pack", "info", "bench"),
    "features and texts": ("embed", "search", "labels"),
    "files of weights": ("convert", "soup", "push"),
    "experiments from papers": ("vtab",),
}
COMMANDS = tuple(itertools.chain(*GROUPS.values()))
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
    message: object = None
    code: Any = 0
    try:
        work()
    except UsageError as error:
        message, code = f"{error}\nusage: {command_line.spelled(program)} --help", 2
    except BrokenPipeError:  # the reader of a pipe, such as `head`, is gone
        sys.stderr.close()
        code = 1
    except ERRORS as error:
        message, code = str(error), 1
    except KeyboardInterrupt:
        message, code = "interrupted", command_line.INTERRUPTED
    except SystemExit as error:  # a training run has stopped
        code = error.code
    if message is not None:
        print(f"{program}: error: {visible(message)}", file=sys.stderr)
    return command_line.set_exit_code(code)


def run(arguments: Sequence[str]) -> None:
    """Runs a command line, and raises its errors instead of printing them.

    Raises:
        UsageError: There is no such command or option, or an option's value is invalid.
        ValueError, OSError, FloatingPointError, ImportError: As the command documents.
    """
    if not arguments or arguments[0] in ("--help", "-h"):
        about = extras.docstring_of("vit_keras").splitlines()[0]
        lines = ["usage: vit-keras COMMAND [options]", "", about]
        for title, group in GROUPS.items():
            lines += ["", f"{title}:", *(f"  {name:<11} {summary(name)}" for name in group)]
        lines += ["", "`vit-keras COMMAND --help` explains a command. KERAS_BACKEND chooses the"]
        print("\n".join([*lines, "backend: jax, tensorflow or torch."]))
    elif arguments[0] == "--version":
        keras, backend = importlib.metadata.version("keras"), extras.backend_name()
        print(f"vit-keras {vit_keras.__version__} (Keras {keras} on {backend})")
    else:
        name, *options = arguments
        run_command(command(name), options, f"vit-keras {name}")


def run_command(chosen: types.ModuleType, options: Sequence[str], program: str) -> None:
    """Runs a command with unparsed options, or prints its help."""
    options = spell_out(options)
    if "--help" in options or "-h" in options:
        print(Parser(chosen, program).format_help().rstrip())
        return
    parsed = parse(chosen, options, program)
    if not hasattr(chosen, "needs_models") or chosen.needs_models(parsed):
        vit_keras.import_models()
        machine.prepare()
    chosen.run(parsed)


def command(name: str) -> types.ModuleType:
    """Imports the command with this name.

    Raises:
        UsageError: There is no such command.
    """
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"The commands are {', '.join(COMMANDS)}."
        raise UsageError(f"There is no command {name!r}. {hint}")
    return importlib.import_module(_module(name))


def summary(name: str) -> str:
    """Returns the first line of a command's help, without importing the command."""
    return extras.docstring_of(_module(name)).splitlines()[0]


def _module(name):
    return f"{__name__}.{name.replace('-', '_')}"
