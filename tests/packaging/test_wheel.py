"""What the wheel and the sdist hold."""

import email
import tarfile
import zipfile

import pytest

import vit_keras
from tests.helpers import ROOT
from tests.packaging import environment

pytestmark = pytest.mark.once


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sources(folder, place, *patterns):
    """`{name in the wheel: contents}` of files of the checkout."""
    files = [file for pattern in patterns for file in (ROOT / folder).rglob(pattern)]
    files = [file for file in files if "__pycache__" not in file.parts]
    return {f"{place}/{file.relative_to(ROOT / folder).as_posix()}": file for file in files}


def test_the_wheel_holds_what_the_commands_need(wheel):
    files = contents(wheel)
    patterns = ("*.py", "*.yaml", "*.html", "*.json", "*.txt", "py.typed")
    expected = sources("vit_keras", "vit_keras", *patterns)
    expected |= sources("configs", "vit_keras/recipes", "*.yaml")
    assert "vit_keras/recipes/finetune/pets.yaml" in expected
    assert {name: files.get(name) for name in expected} == {
        name: file.read_bytes() for name, file in expected.items()
    }
    packaged = {name for name in files if ".dist-info/" not in name}
    assert packaged == set(expected), "the wheel holds other files too"


def test_the_wheel_describes_itself(wheel):
    files = {name.rpartition(".dist-info/")[2]: text for name, text in contents(wheel).items()}
    assert files["entry_points.txt"].decode().split() == [
        *("[console_scripts]", "vit-keras", "=", "vit_keras.commands:main")
    ]
    metadata = email.message_from_string(files["METADATA"].decode())
    assert metadata["Version"] == vit_keras.__version__
    versions = [
        name.rpartition(" :: ")[2]
        for name in metadata.get_all("Classifier")
        if name.startswith("Programming Language :: Python :: 3.")
    ]
    assert versions == ["3.11", "3.12", "3.13", "3.14"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert "licenses/LICENSE" in files
    assert metadata.get_payload() == (ROOT / "README.md").read_text()


def test_the_sdist_builds_the_same_wheel(built, wheel, tmp_path):
    """Bit by bit, so that anyone can build a published wheel anew and compare."""
    direct = environment.build(tmp_path, "--wheel")
    assert direct.name == wheel.name
    assert contents(direct) == contents(wheel)
    assert direct.read_bytes() == wheel.read_bytes()


def test_the_sdist_holds_no_more_than_the_package(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {
        *("vit_keras", "configs", "README.md", "CHANGELOG.md", "LICENSE"),
        *("pyproject.toml", "PKG-INFO", ".gitignore"),
    }
