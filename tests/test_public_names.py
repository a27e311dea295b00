"""Every name that a public room exports is shown in an example.

An example is a section "Example" of a docstring, or a block of Python on a page.
"""

import ast
import importlib
import inspect
import pathlib
import re

import pytest

pytestmark = pytest.mark.once
ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "vit_keras"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
SECTION = re.compile(r"^Examples?:\n((?:    .*\n|\n)+)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_CODE = re.compile(r"""\"[^"\n]*\"|'[^'\n]*'|#.*""")  # a name in text shows no use

ROOMS = (
    "config",
    "data",
    "evaluation",
    "experiments",
    "experiments.planning",
    "exporting",
    "inspection",
    "layers",
    "support.resizing",
    "legacy",
    "models",
    "retrieval",
    "training",
    "weights",
)


def docstrings(folder):
    """Yields (name, docstring) of each module, class and function in a folder or file."""
    for file in sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield getattr(node, "name", ""), ast.get_docstring(node) or ""


def example_in(docstring):
    return "".join(section[1] for section in SECTION.finditer(f"{docstring}\n"))


def exported(room):
    return importlib.import_module(f"vit_keras.{room}").__all__


def is_used(name, room, code):
    """Whether code holds `room.name`, or `name(` where `name` is not a method of an object."""
    module = room.rpartition(".")[2]
    call = r"\b" if name[0].isupper() else r"\("  # a variable may be called as a function is
    return re.search(rf"\b{module}\.{name}\b|(?<![\w.]){name}{call}", code)


def without_example(room, pages):
    """The exported names of a room that neither its docstrings nor the pages show."""
    examples = [
        (name, example_in(docstring))
        for name, docstring in docstrings(PACKAGE / room.replace(".", "/"))
    ]
    own = {name for name, example in examples if example}
    module = importlib.import_module(f"vit_keras.{room}")  # some names come from another room
    texts = {name: inspect.getdoc(getattr(module, name)) for name in module.__all__}
    own |= {name for name, docstring in texts.items() if example_in(docstring or "")}
    code = NOT_CODE.sub("", "\n".join([*(example for _, example in examples), *pages]))
    return [name for name in exported(room) if name not in own and not is_used(name, room, code)]


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_an_example(room):
    pages = [block for page in PAGES for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    missing = without_example(room, pages)
    assert not missing, (
        f"Every name that `vit_keras.{room}` exports needs an example: a section Example in its "
        f"docstring, or a use in docs/. Missing: {', '.join(missing)}"
    )
