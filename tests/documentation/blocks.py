"""The blocks of code on the pages, and the commands in them."""

import dataclasses
import os
import re
import shlex
from collections.abc import Iterator

from tests.helpers import ROOT

PAGES = (
    *("README.md", "CONTRIBUTING.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
)
# Blocks that other tests take from their pages.
ELSEWHERE = {
    "CONTRIBUTING.md": (
        "tests/weights/test_docs.py",
        "tests/layers/test_new_layer.py",
        "tests/test_family_pages.py",
    ),
    "docs/migration.md": ("tests/legacy/test_calls.py",),
}
# Read by people alone: files, messages, and code for Android and iOS.
TEXT = ("text", "kotlin", "swift", "yaml", "json")
BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^>]+) -->\n)?^```(?P<kind>\w*)\n(?P<fenced>(?:.*\n)*?)```$"
    r"|(?:(?<=\n\n)|\A)(?P<indented>(?:    .*\n(?:\n(?=    ))?)+)",
    re.MULTILINE,
)


@dataclasses.dataclass(frozen=True)
class Block:
    """A block: its page and first line, "python", "shell" or "text", and a note before it."""

    page: str
    line: int
    kind: str
    text: str
    note: str

    @property
    def backend(self) -> str | None:
        """The one backend whose code the block shows."""
        return self.note.removeprefix("run on ") if self.note.startswith("run on ") else None

    @property
    def is_text(self) -> bool:
        return self.kind == "text" or self.note.startswith(("text only: ", "from "))

    @property
    def is_due(self) -> bool:
        """Whether a block runs now: long ones run in `make nightly`."""
        return self.note != "nightly" or "NIGHTLY" in os.environ

    def commands(self) -> Iterator[list[str]]:
        """The words of each command, without comments, variables and what prints of it."""
        lines = self.text.splitlines()
        if self.kind == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        pending = ""
        for line in lines:
            pending += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            try:
                words = shlex.split(pending, comments=True)
            except ValueError:  # a quotation that goes on in the next line
                continue
            pending = ""
            words = words[len(words) - 1 - words[::-1].index("|") + 1 :] if "|" in words else words
            while words and re.match(r"[A-Z_]+=", words[0]):
                words = words[1:]
            if words:
                yield [{"…": "0"}.get(word, word) for word in words if word != "..."]
        if pending:
            raise ValueError(f"{self.page}:{self.line}: a quotation has no end")


def blocks_of(page: str) -> list[Block]:
    """All blocks of a page, from top to bottom."""
    text = (ROOT / page).read_text(encoding="utf-8")
    result = []
    for match in BLOCK.finditer(text):
        kind = match["kind"] or ("text" if match["fenced"] is not None else "shell")
        kind = "text" if kind in TEXT else kind
        code = match["fenced"] if match["fenced"] is not None else match["indented"]
        start = match.start("fenced" if match["fenced"] is not None else "indented")
        if kind == "shell":
            code = re.sub(r"^    ", "", code, flags=re.MULTILINE)
        line = text.count("\n", 0, start) + 1
        result.append(Block(page, line, kind, code, match["note"] or ""))
    return result
