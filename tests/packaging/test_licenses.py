"""What is installed has a license that the project may use, and the page lists it."""

import json

import pytest

from tests.helpers import ROOT
from tools import dependencies, sbom

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def installed():
    return dependencies.rows()


def test_what_is_installed_has_an_allowed_license(installed):
    refused = {
        name: expression
        for name, expression, _ in installed
        if not dependencies.is_allowed(expression)
    }
    assert refused.keys() == dependencies.EXCEPTIONS.keys()
    assert "unknown" not in refused.values()


def test_the_page_lists_what_is_installed(installed):
    page = dependencies.PAGE.read_text()
    assert dependencies.filled(page) == page, "run python -m tools.dependencies"
    for name, reason in dependencies.EXCEPTIONS.items():
        assert f"- `{name}`: {reason}." in " ".join(page.split()).replace(" - `", "\n- `"), name
    extras = {name: extras for name, _, extras in installed}
    assert extras["numpy"] == ["core"] and extras["jaxlib"] == ["jax"]
    assert extras["tensorflow"] == ["tensorflow"]  # export and keras-cv bring it
    assert extras["pyarrow"] == ["tables", "hf", "tfds"] and extras["pillow-heif"] == ["heic"]
    assert extras["pillow"] == ["data", "runtimes", "timm"] and extras["pytest"] == ["test"]


def test_the_page_of_the_demo_has_hashes_and_allowed_licenses():
    packages = json.loads((ROOT / "demo" / "package-lock.json").read_text())["packages"]
    assert packages.pop("")["license"] == "Apache-2.0"
    for name, package in packages.items():
        assert package["integrity"].startswith("sha512-"), name
        if not package.get("dev"):
            assert dependencies.is_allowed(package["license"]), name
    assert not any("resolved" in package for package in packages.values())  # no one registry's host


def test_the_list_of_packages_has_the_version_and_all_licenses(installed):
    licenses = sbom.licenses_of(dependencies.PAGE.read_text())
    assert licenses == {name: expression for name, expression, _ in installed}
    stated = [{"license": {"id": "MIT"}}]
    components = [{"name": "ImageHash"}, {"name": "pip", "licenses": stated}, {"name": "other"}]
    bom = {"metadata": {"component": {"name": "vit-keras"}}, "components": components}
    whole = sbom.completed(bom, "1.2", licenses)
    assert whole["metadata"]["component"] == {"name": "vit-keras", "version": "1.2"}
    assert [component.get("licenses") for component in whole["components"]] == [
        *([{"expression": "BSD-2-Clause"}], stated, None)
    ]
