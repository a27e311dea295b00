"""Imports point one way, in functions too, and private names of Keras are used in one file."""

import ast
import graphlib
import re
import tomllib

import keras
import pytest

from tests.helpers import ROOT, run_script
from vit_keras.support import keras_internals

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
# Where a framework may be imported; state that it keeps for itself is read in functions elsewhere.
HOMES = ("exporting", "runtimes", "layers/backends")
HOME = {"tensorflow": ("data", *HOMES), "torch": HOMES, "jax": HOMES}
ALSO_INSIDE_FUNCTIONS = {"training", "support", "weights"}
NOT_IN_THE_WHEEL = {"benchmarks", "studies", "tests", "tools"}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def level_of(room):
    return next(number for number, rooms in enumerate(LEVELS) if room in rooms)


TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {module_of(path) for path in TREES}
ROOMS = [path for path in TREES if path.parent != PACKAGE]


def imports(path):
    """The names of all modules that a file imports, inside functions too, with their nodes."""
    for node in ast.walk(TREES[path]):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield (name if name in MODULES else node.module), node


def test_imports_point_one_way():
    for path in ROOMS:
        room = path.relative_to(PACKAGE).parts[0]
        for name, _ in imports(path):
            top, _, rest = name.partition(".")
            other = rest.split(".")[0] if top == "vit_keras" and rest else room
            assert other == room or level_of(other) < level_of(room), f"{path} imports {name}"
            assert top not in NOT_IN_THE_WHEEL, f"{path} imports {name}"
            assert name != "vit_keras" or room == "commands", f"{path} imports the whole package"


def test_frameworks_are_imported_where_they_belong():
    for path in ROOMS:
        place = path.relative_to(PACKAGE).as_posix()
        for name, node in imports(path):
            package, at_top = name.split(".")[0], node in TREES[path].body
            at_home = place.startswith(HOME.get(package, place))
            inside = not at_top and place.split("/")[0] in ALSO_INSIDE_FUNCTIONS
            assert at_home or inside, f"{place} imports {name}"
            assert package != "matplotlib" or not at_top, f"{place} imports {name} at its top"
        names = (node.attr for node in ast.walk(TREES[path]) if isinstance(node, ast.Attribute))
        assert "Lambda" not in names


def test_no_circle_of_modules():
    """A package's `__init__` gathers its modules; they import one another, never the package."""
    graph = {
        module_of(path): {other for other, _ in imports(path) if other in MODULES} for path in TREES
    }
    graphlib.TopologicalSorter(graph).prepare()  # the error names the circle


def test_importing_the_package_imports_keras_alone():
    heavy = "matplotlib, PIL, sklearn, yaml, tqdm, scipy, transformers, safetensors"
    code = (
        "import sys, keras; before = set(sys.modules); import vit_keras; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        f"print(sorted(new & set('{heavy}'.split(', '))), len(set(sys.modules) - before))"
    )
    imported, count = run_script("-c", code, backend="torch").stdout.rsplit(maxsplit=1)
    assert imported == "[]" and int(count) < 160


def test_the_page_on_the_design_has_every_level_and_folder():
    page = (ROOT / "docs" / "design.md").read_text()
    block = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1].replace(",", "")
    levels = [set(line.split()) for line in block.splitlines()]
    assert levels == [set(rooms) for rooms in LEVELS[::-1]]
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set().union(*LEVELS)


def test_another_version_of_keras_is_refused(monkeypatch):
    for version in ("3.14.1", "3.16.0", "4.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ImportError, match=rf"{version}.*pip install \"keras>=3.15,<3.16\""):
            keras_internals.check_keras()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keras_internals.REQUIREMENT in project["dependencies"]


def test_no_other_file_uses_these_names():
    file = ROOT / "vit_keras" / "support" / "keras_internals.py"
    names = {*re.findall(r"\.(_[a-z]\w+)", file.read_text())} - {"_kernel", "_value"}  # ours too
    private = re.compile(rf"(\.|def )({'|'.join(names)})\b|^from keras\.src", re.MULTILINE)
    assert len(names) > 20
    for path in (ROOT / "vit_keras").rglob("*.py"):
        assert path == file or not private.search(path.read_text()), path
