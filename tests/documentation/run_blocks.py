"""Runs the blocks of all pages in a folder of their own, and writes the errors to a file.

    KERAS_BACKEND=torch python -m tests.documentation.run_blocks RESULTS.json [PAGE ...]

`NIGHTLY=1` in the environment runs the long blocks as well.

The blocks of a page run one after another, as a reader copies them. A block that needs another says
so in a comment.
"""

import json
import os
import pathlib
import sys
import tempfile
import traceback

import benchmarks.torchvision_operators  # noqa: F401 before timm is imported
from tests.documentation import command_lines, folder
from tests.documentation.blocks import PAGES, blocks_of


def run_page(page: str) -> list[str]:
    """Returns the errors of a page's blocks and commands."""
    errors: list[str] = []
    namespace: dict = {"__name__": "__main__"}
    for block in blocks_of(page):
        try:
            if block.runs_on("torch"):
                exec(compile("\n" * (block.line - 1) + block.text, page, "exec"), namespace)
            for words in block.commands():
                command_lines.check(words)
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
