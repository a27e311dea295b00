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
# Pages whose Python other tests run: tests/weights/test_strict.py, tests/layers/test_new_layer.py,
# tests/test_families.py and tests/legacy/test_calls.py.
ELSEWHERE = ("CONTRIBUTING.md", "docs/migration.md")
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

    def runs_on(self, backend: str) -> bool:
        """Whether it is Python that runs now: long blocks do in `make nightly`."""
        is_due = self.note != "nightly" or "NIGHTLY" in os.environ
        here = self.page not in ELSEWHERE and self.backend in (None, backend)
        return self.kind == "python" and here and is_due

    def commands(self) -> Iterator[list[str]]:
        """The words of each command, without comments, variables and what prints of it."""
        lines = self.text.splitlines() if self.kind in ("shell", "console") else []
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
    text, result = (ROOT / page).read_text(), []
    for match in BLOCK.finditer(text):
        form, note = "indented" if match["fenced"] is None else "fenced", match["note"] or ""
        kind, code = match["kind"] or ("shell" if form == "indented" else "text"), match[form]
        if kind in TEXT or note.startswith(("text only: ", "from ")):
            kind = "text"
        if kind == "shell":
            code = re.sub(r"^    ", "", code, flags=re.MULTILINE)
        line = text.count("\n", 0, match.start(form)) + 1
        result.append(Block(page, line, kind, code, note))
    return result
