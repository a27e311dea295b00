"""Imports point one way, in functions too, and importing the package costs what Keras costs."""

import ast
import re

import pytest

from tests.helpers import ROOT, run_script

pytestmark = pytest.mark.once

PACKAGE = ROOT / "vit_keras"
# Each level may import the levels below it. Rooms of one level do not import each other.
LEVELS = (
    {"support"},
    {"variants", "runtimes", "layers"},
    {"config"},
    {"models"},
    {"weights", "data", "inspection"},
    {"runs", "applications"},
    {"training", "evaluation", "exporting", "legacy"},
    {"experiments", "retrieval"},
    {"commands"},
)
# Where a framework may be imported: everywhere in these rooms, or in these files alone.
HOME = {
    "tensorflow": {"data", "exporting", "runtimes", "layers/backends"},
    "torch": {"exporting", "runtimes", "layers/backends"},
    "jax": {"exporting", "runtimes", "layers/backends"},
}
# Inside functions a few others need them: state that a framework keeps for itself.
ALSO_INSIDE_FUNCTIONS = {"training", "support", "weights"}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = [path for path in FILES if path.parent != PACKAGE or room_of(path) in set().union(*LEVELS)]
MODULES = {module_of(path): path for path in FILES}


def imports(tree):
    """The names of all modules that a file imports, inside functions too, with their nodes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in MODULES else node.module), node


def level_of(room):
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


def test_imports_point_one_way():
    for path in ROOMS:
        check_levels(path)


def check_levels(path):
    room, tree = room_of(path), ast.parse(path.read_text())
    for name, _ in imports(tree):
        other = name.split(".")[1] if name.startswith("vit_keras.") else room
        assert other == room or level_of(other) < level_of(room), f"{room} imports {name}"
        beside = name.split(".")[0] in {"benchmarks", "studies", "tests", "tools"}
        assert not beside, f"{path.name} imports {name}, which is not in the wheel"
        if name == "vit_keras":
            assert room == "commands", f"{path.name} imports the whole package"


def test_frameworks_are_imported_where_they_belong():
    for path in ROOMS:
        check_frameworks(path)


def check_frameworks(path):
    room, tree = room_of(path), ast.parse(path.read_text())
    at_top = set(map(id, tree.body))
    for name, node in imports(tree):
        package = name.split(".")[0]
        here = path.relative_to(PACKAGE).as_posix()
        at_home = any(here.startswith(home) for home in HOME.get(package, {here}))
        inside = id(node) not in at_top and room in ALSO_INSIDE_FUNCTIONS
        assert at_home or inside, f"{here} imports {name}"
        if package == "matplotlib":
            assert id(node) not in at_top, f"{here} imports {name} at its top"
    attributes = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert "Lambda" not in attributes


def test_no_circle_of_modules():
    """A package's `__init__` gathers its modules; they import one another, never the package."""
    graph = {
        name: {other for other, _ in imports(ast.parse(path.read_text())) if other in MODULES}
        for name, path in MODULES.items()
    }
    done, open_ = set(), []

    def visit(name):
        assert name not in open_, f"circle: {' -> '.join([*open_[open_.index(name) :], name])}"
        if name not in done:
            open_.append(name)
            for other in sorted(graph[name]):
                visit(other)
            done.add(open_.pop())

    for name in graph:
        visit(name)


def test_importing_the_package_imports_keras_alone():
    heavy = "matplotlib, PIL, sklearn, yaml, tqdm, scipy, transformers, safetensors"
    code = (
        "import sys, keras; before = set(sys.modules); import vit_keras; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        f"print(sorted(new & set('{heavy}'.split(', '))), len(set(sys.modules) - before))"
    )
    imported, count = run_script("-c", code).stdout.rsplit(maxsplit=1)
    assert imported == "[]" and int(count) < 160


def test_the_page_on_the_design_has_every_level_and_folder():
    page = (ROOT / "docs" / "design.md").read_text()
    block = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1].replace(",", "")
    levels = [set(line.split()) for line in block.splitlines()]
    assert levels == [set(rooms) for rooms in LEVELS[::-1]]
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set().union(*LEVELS)
