"""Runs the blocks of all pages in a folder of their own, and writes what happened to a file.

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
import time
import traceback

import benchmarks.torchvision_operators  # noqa: F401 before timm is imported
from tests.documentation import command_lines, folder
from tests.documentation.blocks import ELSEWHERE, PAGES, blocks_of


def run_page(page: str) -> dict:
    """Returns the numbers of blocks and commands of a page, and the errors."""
    counts = {"run": 0, "text": 0, "commands": 0, "commands run": 0}
    errors: list[str] = []
    namespace: dict = {"__name__": "__main__"}
    started = time.process_time()
    for block in blocks_of(page):
        counts["text"] += block.is_text
        if block.is_text or (block.kind == "python" and page in ELSEWHERE):
            continue
        try:
            if block.kind == "python" and block.backend in (None, "torch") and block.is_due:
                code = compile("\n" * (block.line - 1) + block.text, page, "exec")
                exec(code, namespace)
                counts["run"] += 1
            elif block.kind in ("shell", "console"):
                for words in block.commands():
                    counts["commands run"] += command_lines.check(words)
                    counts["commands"] += 1
        except Exception:
            errors.append(f"{page}:{block.line}\n{traceback.format_exc()}")
    return {**counts, "errors": errors, "seconds": time.process_time() - started}


def main() -> None:
    target, *pages = sys.argv[1:]
    target = pathlib.Path(target).resolve()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        folder.make(pathlib.Path(place))
        results = {page: run_page(page) for page in pages or PAGES}
        os.chdir("/")
    target.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
