"""Missing packages are reported with the extra that installs them."""

import sys
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.helpers import ROOT
from vit_keras.support import extras

pytestmark = pytest.mark.once


@pytest.mark.parametrize("module", ["no_such_package.inner", "half_installed"])
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, module):
    (tmp_path / "half_installed.py").write_text("import no_such_package.inner\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(extras.EXTRAS, module.partition(".")[0], "export")
    expected = r'^This needs no-such-package: pip install "vit-keras\[export\]"$'
    with pytest.raises(ImportError, match=expected):
        extras.require(module)


def test_a_check_lists_all_that_is_missing_and_imports_nothing(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: module == "antigravity")
    expected = r'^This needs pyyaml and pyarrow: pip install "vit-keras\[tables,train\]"$'
    with pytest.raises(ImportError, match=expected):
        extras.check("yaml", "antigravity", "pyarrow")
    assert "antigravity" not in sys.modules


def test_what_has_no_build_for_this_python_says_so(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: module == "PIL")
    monkeypatch.setattr(extras.sys, "version_info", (3, 14, 9, "final", 0))
    with pytest.raises(ImportError, match="keras-cv cannot be installed on Python after 3.13$"):
        extras.check("PIL", "keras_cv", extra="export")


def test_each_module_comes_with_its_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for module, extra in extras.EXTRAS.items():
        lines = project["optional-dependencies"][extra]
        names = {Requirement(line).name.replace("_", "-") for line in lines}
        name = extras.DISTRIBUTIONS.get(module, module).replace("_", "-")
        assert name in names or module == "scipy", module  # scikit-learn brings it


def test_the_packages_without_a_build_are_those_with_a_marker():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [line for name in project["optional-dependencies"].values() for line in name]
    marked = {r.name for r in map(Requirement, lines) if r.marker and "3.14" in str(r.marker)}
    assert marked == {*extras.LAST_PYTHON, "keras-hub"}  # of the tests alone
