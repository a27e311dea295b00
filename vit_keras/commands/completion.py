"""`vit-keras completion` prints a script that completes commands and options in a shell."""

import argparse

from vit_keras.commands import options as shared
from vit_keras.support import extras

SHELLS = ("bash", "zsh", "tcsh")
EXAMPLES = (
    'eval "$(vit-keras completion bash)"                      # in ~/.bashrc',
    "vit-keras completion zsh > ~/.zfunc/_vit-keras",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> None:
    from vit_keras import commands

    shtab = extras.require("shtab", extra="train", purpose="Shell completion")
    whole = argparse.ArgumentParser(prog="vit-keras")
    whole.add_argument("--version", action="store_true", help="print the versions")
    parsers = whole.add_subparsers()
    for name in commands.COMMANDS:
        command = commands.command(name)
        command.add_options(parsers.add_parser(name, help=command.summary))
    print(shtab.complete(whole, options.shell))


COMMAND = shared.Command(
    "Print a script that completes commands and options in a shell.",
    EXAMPLES,
    add_options,
    run,
    needs_models=lambda options: False,
)
