"""Imports point one way, and importing the package costs what importing Keras costs."""

import ast

import pytest

from tests.helpers import ROOT, run_script

pytestmark = pytest.mark.once

PACKAGE = ROOT / "vit_keras"
MAY_IMPORT = {  # rooms that a room may import, besides its own
    "layers": {"initializers"},
    "models": {"initializers", "layers", "resizing", "variants"},
    "variants": set(),
    "resizing": set(),
    "initializers": set(),
    "machine": set(),
    "weights": {"files", "models", "layers", "resizing", "variants"},
    "applications": {"layers", "models", "variants", "weights"},
    "config": {"variants"},
    "cli": {"config"},
    "extras": set(),
    "files": set(),
    "figures": {"files"},
    "data": {"config", "files", "models"},
    "evaluation": {"config", "data", "files", "models", "runs", "runtimes", "weights"},
    "runtimes": set(),
    "runs": {"cli", "config", "files", "weights"},
    "training": {"files", "initializers", "layers", "models", "runs"},
    "exporting": {"data", "layers", "models", "runtimes", "weights"},
    "compute": {"layers", "models"},
    "inspection": {"figures", "layers", "models", "resizing"},
    "reproduce": {
        *("cli", "compute", "config", "data", "evaluation", "figures", "files"),
        *("inspection", "layers", "models", "runs", "training", "variants", "weights"),
    },
}
HOME = {"tensorflow": {"data", "exporting"}, "torch": set(), "jax": set(), "matplotlib": set()}


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module, node
            if node.module == "vit_keras":
                yield from ((f"vit_keras.{alias.name}", node) for alias in node.names)


FILES = [path for path in sorted(PACKAGE.rglob("*.py")) if room_of(path) != "__init__"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    room, tree = room_of(path), ast.parse(path.read_text())
    top_level = set(map(id, tree.body))
    for name, node in imports(tree):
        parts = name.split(".")
        if parts[0] == "vit_keras" and len(parts) > 1:
            assert parts[1] in MAY_IMPORT[room] | {room, "extras"}, f"{room} imports {name}"
        kernel = path.parent.name == "kernels" and path.name.startswith(f"{parts[0]}_")
        if parts[0] in HOME and id(node) in top_level and not kernel:
            assert room in HOME[parts[0]], f"{path.name} imports {name} at its top"
    assert "Lambda" not in [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]


def test_importing_the_package_imports_keras_alone():
    heavy = "matplotlib, PIL, sklearn, jsonargparse, yaml, tqdm, scipy, transformers, safetensors"
    code = (
        "import sys, keras; before = set(sys.modules); import vit_keras; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        f"print(sorted(new & set('{heavy}'.split(', '))), len(set(sys.modules) - before))"
    )
    found, count = run_script("-c", code).stdout.rsplit(maxsplit=1)
    assert found == "[]" and int(count) < 80
