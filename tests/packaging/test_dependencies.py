"""What is installed has a license that the project may use, is on its page, and is pinned."""

import importlib.metadata
import json

import pytest

from tests.helpers import ROOT
from tools import dependencies, lock, sbom

pytestmark = pytest.mark.once


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
        assert f"- `{name}`: {reason}." in " ".join(page.split()), name
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
