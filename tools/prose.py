"""Checks the style of prose and the names in code: `python tools/prose.py [PATH ...]`.

proselint's checks and the project's phrases run over Markdown pages, over the comments and texts
of Python files, and over the comments of YAML files. Code inside a page is left out.
"""

import ast
import pathlib
import re
import sys
import tokenize

from proselint.checks import __register__ as published
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags, types
from proselint.tools import LintFile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PHRASES = {  # what to avoid: what to write
    r"(?:is|are|was|were)\s+of": "a verb: has, holds, takes, belongs to",
    r"(?:is|are|was|were)\s+(?:that|those)\s+of": "the noun, or a verb: equals, comes from",
    r"in\s+the\s+stead\s+of": "instead of",
    r"(?:is|are)\s+asked": "who asks or chooses",
    r"whose\s+(?:it\s+is|they\s+are)": "the name of the owner",
}
OFF = (
    "misc.phrasal_adjectives",
    "misc.preferred_forms",
    "spelling.consistency",
    "typography",
    "weasel_words",
)
NAMES = {"found", "how", "given", "wanted", "parts", "own", "material"}
NO_PROSE = re.compile(
    r"""^\ *```.*?^\ *```   # a block of code
    | `[^`\n]+`            # code in a line
    | \]\([^)\n]*\)        # the address of a link
    | <[^>\n]*>            # a tag
    | \w+(?:[./]\w+)+      # a path or a dotted name
    | ^\ +\w+(?=:)         # the name of an argument""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
MIDDLE = getattr(tokenize, "FSTRING_MIDDLE", None)  # before Python 3.12 an f-string is one token


def covered(match: re.Match | str, by: str = "|") -> str:
    """The text with every visible character replaced, so that lines and columns stay."""
    return re.sub(r"\S", by, match if isinstance(match, str) else match[0])


def python_prose(text: str) -> str:
    """The comments and texts of a Python file in their places."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    prose = list(covered(text))
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        start, end = (starts[row - 1] + column for row, column in (token.start, token.end))
        piece = text[start:end]
        if token.type == tokenize.COMMENT:
            piece = re.sub("^#+", covered_quotes, piece)
        elif token.type == tokenize.STRING:
            piece = re.sub(r"""^\w*('''|\"""|'|")|('''|\"""|'|")$""", covered_quotes, piece)
            piece = re.sub(r"\{[^{}]*\}", covered, piece)
        elif token.type != MIDDLE:
            continue
        prose[start:end] = NO_PROSE.sub(covered, piece)
    return "".join(prose)


def covered_quotes(match: re.Match) -> str:
    return " " * len(match[0])


def yaml_prose(text: str) -> str:
    return "\n".join(
        " " * line.index("#") + " " + line[line.index("#") + 1 :] if "#" in line else covered(line)
        for line in text.split("\n")
    )


READERS = {
    ".md": lambda text: NO_PROSE.sub(covered, text),
    ".py": python_prose,
    ".yaml": yaml_prose,
}


def names(text: str):
    """Yields `(line, name)` of functions, arguments and variables named for nothing."""
    for node in ast.walk(ast.parse(text)):
        name = getattr(node, "name", None) or getattr(node, "arg", None)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        if name in NAMES and not isinstance(node, ast.keyword):
            yield node.lineno, name


def registry() -> dict:
    """Registers all checks once and returns proselint's configuration."""
    phrases = Check(
        types.PreferredForms(PHRASES),
        path="phrases",
        message="Write {}. Received: {!r}.",
        flags=CheckFlags(allow_quotes=True),
    )
    if not CheckRegistry().checks:
        CheckRegistry().register_many((*published, phrases))
    checks = {**dict.fromkeys(OFF, False), "phrases": True, **DEFAULT["checks"]}
    return {"max_errors": 1000, "checks": checks | dict.fromkeys(OFF, False)}


def faults(path: pathlib.Path, text: str):
    """Yields `(line, message)` for all that is to be changed in a file."""
    prose = re.sub(r"\d", "-", READERS[path.suffix](text))  # "2 2" in a table is no repeated word
    for result in LintFile(str(path), prose or "\n").lint(registry()):
        yield result.pos[0], f"{result.check_result.check_path}: {result.check_result.message}"
    if path.suffix == ".py" and "vit_keras" in path.parts:
        for line, name in names(text):
            yield line, f"names: call it by what it holds. Received: {name!r}."


def main(arguments):
    paths = [pathlib.Path(a) for a in arguments] or [ROOT]
    files = [f for p in paths for f in ([p] if p.is_file() else sorted(p.rglob("*")))]
    count = 0
    for file in files:
        hidden = any(p[0] == "." for p in file.parts if p not in (".", ".."))
        skipped = hidden or "node_modules" in file.parts
        if file.suffix not in READERS or skipped:
            continue
        for line, message in faults(file, file.read_text()):
            print(f"{file}:{line}: {message}")
            count += 1
    return f"{count} faults of style" if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
