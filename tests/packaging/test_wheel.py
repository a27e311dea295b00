"""What the wheel and the sdist hold."""

import email
import tarfile
import zipfile

import pytest

import vit_keras
from tests.helpers import ROOT
from tests.packaging import environment

pytestmark = pytest.mark.once


def sources(folder, place, *patterns):
    """`{name in the wheel: contents}` of files of the checkout."""
    files = [file for pattern in patterns for file in (ROOT / folder).rglob(pattern)]
    return {
        f"{place}/{file.relative_to(ROOT / folder).as_posix()}": file.read_bytes()
        for file in files
        if "__pycache__" not in file.parts
    }


def test_the_wheel_holds_what_the_commands_need_and_describes_itself(wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    patterns = ("*.py", "*.yaml", "*.html", "*.json", "*.txt", "py.typed")
    expected = sources("vit_keras", "vit_keras", *patterns)
    expected |= sources("configs", "vit_keras/recipes", "*.yaml")
    assert "vit_keras/recipes/finetune/pets.yaml" in expected
    info = {name.partition(".dist-info/")[2]: name for name in files if ".dist-info/" in name}
    assert files[info["entry_points.txt"]].decode().split() == [
        *("[console_scripts]", "vit-keras", "=", "vit_keras.commands:main")
    ]
    metadata = email.message_from_string(files[info["METADATA"]].decode())
    assert metadata["Version"] == vit_keras.__version__ and "licenses/LICENSE" in info
    assert metadata.get_payload() == (ROOT / "README.md").read_text()
    assert {name: files[name] for name in {*files} - {*info.values()}} == expected


def test_the_sdist_builds_the_same_wheel_and_holds_no_more_than_the_package(built, wheel, tmp_path):
    """Bit by bit, so that anyone can build a published wheel anew and compare."""
    direct = environment.build(tmp_path, "--wheel")
    assert direct.name == wheel.name and direct.read_bytes() == wheel.read_bytes()
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert tops == {
        *("vit_keras", "configs", "README.md", "CHANGELOG.md", "LICENSE"),
        *("pyproject.toml", "PKG-INFO", ".gitignore"),
    }
