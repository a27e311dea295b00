"""What the wheel and the sdist hold; licenses, page and pins of what is installed."""

import email
import importlib.metadata
import json
import tarfile
import zipfile

import pytest

import vit_keras
from tests.helpers import ROOT
from tests.packaging import environment
from tools import dependencies, lock, sbom

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
    patterns = ("*.py", "*.yaml", "*.html", "*.json", "*.txt", "*.csv", "py.typed")
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


@pytest.fixture(scope="module")
def installed():
    return dependencies.rows()


def test_what_is_installed_has_an_allowed_license(installed):
    refused = {name: text for name, text, _ in installed if not dependencies.is_allowed(text)}
    assert refused.keys() == dependencies.EXCEPTIONS.keys()
    assert "unknown" not in refused.values()
    packages = json.loads((ROOT / "demo" / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["license"] == "Apache-2.0"
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        assert package.get("dev") or dependencies.is_allowed(package["license"]), name
        assert "resolved" not in package, "no one registry's host"


def test_the_page_lists_what_is_installed(installed):
    page = dependencies.PAGE.read_text()
    assert dependencies.filled(page) == page, "run python -m tools.dependencies"
    for name, reason in dependencies.EXCEPTIONS.items():
        assert f"- `{name}` {reason}." in " ".join(page.split()), name
    extras = {name: extras for name, _, extras in installed}
    assert extras["numpy"] == ["core"] and extras["jaxlib"] == ["jax"]
    assert extras["pyarrow"] == ["tables", "hf", "tfds"]
    assert sbom.licenses_of(page) == {name: text for name, text, _ in installed}


def test_what_the_extras_install_is_what_the_locks_pin(installed):
    """Also what comes through others, which `make lint` cannot know without network."""
    pins = {name: lock.read((ROOT / "locks" / f"{name}.txt").read_text()) for name in lock.HEADS}
    here = [
        pin
        for pin in (*pins["all"], *pins["torch"])
        if pin.requirement.marker is None or pin.requirement.marker.evaluate()
    ]
    pinned = {pin.name: pin.version for pin in here}
    assert len(pinned) == len(here) > 150
    found = {name: importlib.metadata.version(name).partition("+")[0] for name, *_ in installed}
    assert found == {name: pinned.get(name) for name in found}
    # CUDA comes with one build of torch alone.
    names = {name: {pin.name for pin in several} for name, several in pins.items()}
    assert names["torch-cpu"] == {"torch"}
    assert names["torch"] > {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13"}
    assert not any(map(lock.TORCH.match, names["all"]))
