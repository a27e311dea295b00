"""Missing packages are reported with the extra that installs them."""

import sys

import pytest

from vit_keras import extras

pytestmark = pytest.mark.once


def test_an_installed_package_is_returned():
    assert extras.require("json.decoder", extra="export", purpose="A test").JSONDecoder
    extras.check("json", "json.decoder", extra="export", purpose="A test")


def test_a_missing_package_names_the_extra():
    expected = r'^Reading a file needs no-such-package: pip install "vit-keras\[export\]"$'
    with pytest.raises(ImportError, match=expected):
        extras.require("no_such_package.inner", extra="export", purpose="Reading a file")


def test_a_package_that_lacks_another_names_the_other(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_package.inner\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match="^Training needs no-such-package: pip install"):
        extras.require("half_installed", extra="train", purpose="Training")


def test_a_missing_part_of_an_installed_package_is_another_error():
    with pytest.raises(ModuleNotFoundError, match="json.no_such_module"):
        extras.require("json.no_such_module", extra="export", purpose="A test")


def test_a_check_lists_all_that_is_missing_and_imports_nothing():
    modules = ("sklearn_absent", "PIL", "antigravity")
    with pytest.raises(ImportError, match="^Plots needs sklearn-absent: pip"):
        extras.check(*modules, extra="train", purpose="Plots")
    assert "antigravity" not in sys.modules
    with pytest.raises(ImportError, match="A test needs no-one and no-two: pip"):
        extras.check("no_one", "no_two", extra="train", purpose="A test")
