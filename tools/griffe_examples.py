"""Shows the examples of docstrings as code on the site: Markdown reads `>>>` as nested quotations.

Griffe, which reads the docstrings for mkdocstrings, loads this file (`extensions` in mkdocs.yml).
"""

import re

import griffe

# A line with a prompt, and what follows it with at least its indentation up to an empty line.
PROMPTS = re.compile(r"^( *)>>> .*(?:\n\1 *\S.*)*", re.MULTILINE)
# A section whose lines are code without prompts.
SECTION = re.compile(r"^Example:\n((?:    (?!```).*\n?|\n)+)", re.MULTILINE)


def fenced(text: str) -> str:
    """A docstring whose examples are blocks of code, with prompts and results or without."""
    text = SECTION.sub(_bare, text)
    return PROMPTS.sub(lambda lines: f"{lines[1]}```pycon\n{lines[0]}\n{lines[1]}```", text)


def _bare(section):
    code = section[1].rstrip()
    has_more = ">>> " in code or "```" in code
    return section[0] if has_more else f"Example:\n    ```python\n{code}\n    ```\n\n"


class Examples(griffe.Extension):
    """Puts the examples of every object into blocks."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
