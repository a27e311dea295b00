"""Every name that a public room exports is shown in an example, and small examples are right.

An example is a section "Example" of a docstring, or a block of Python on a page.
"""

import ast
import doctest
import importlib
import inspect
import re

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import ROOT
from vit_keras import layers
from vit_keras.support import interpolation as resizing

PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
SECTION = re.compile(r"^Examples?:\n((?:    .*\n|\n)+)", re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_CODE = re.compile(r"""\"[^"\n]*\"|'[^'\n]*'|#.*""")  # a name in text shows no use
ROOMS = (
    *("config", "data", "evaluation", "experiments", "experiments.planning", "exporting"),
    *("inspection", "layers", "legacy", "models", "retrieval", "support.interpolation", "training"),
    "weights",
)


def examples(room):
    """The examples in the docstrings of all modules, classes and functions of a room."""
    folder = ROOT / "vit_keras" / room.replace(".", "/")
    for file in sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                yield from SECTION.findall(f"{ast.get_docstring(node)}\n")


@pytest.mark.once
@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_an_example(room):
    """In its docstring, or where another example uses it."""
    module = importlib.import_module(f"vit_keras.{room}")
    pages = [block for page in PAGES for block in BLOCK.findall(page.read_text())]
    code = NOT_CODE.sub("", "\n".join([*examples(room), *pages]))
    for name in module.__all__:
        of_room = rf"(?<![\w.]){name}\b|\b{room.rpartition('.')[2]}\.{name}\b"
        own = SECTION.search(f"{inspect.getdoc(getattr(module, name))}\n")
        assert own or re.search(of_room, code), f"{name} has no example"


@pytest.mark.on("torch")
@pytest.mark.parametrize("room", [layers, resizing])
def test_an_example_gives_the_result_that_it_shows(room):
    report = []
    for name in room.__all__:
        if callable(shown := getattr(room, name)):
            names = {"keras": keras, "np": np, "vit_keras": vit_keras, name: shown}
            example = doctest.DocTestParser().get_doctest(shown.__doc__, names, name, None, None)
            results = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
            assert results.attempted, f"{name} has no example"
    assert not report, "".join(report)
