"""The locks pin what the project asks for, with hashes."""

import importlib.metadata

import pytest

from tests.helpers import ROOT
from tools import lock
from tools.dependencies import rows

pytestmark = pytest.mark.once


def test_the_locks_agree_with_the_requirements():
    assert lock.problems() == []


def test_what_the_extras_install_is_what_the_locks_pin():
    """Also what comes through others, which the check cannot know without network."""
    pins = [
        pin
        for name in ("all", "torch")
        for pin in lock.read((ROOT / "locks" / f"{name}.txt").read_text())
        if pin.requirement.marker is None or pin.requirement.marker.evaluate()
    ]
    pinned = {pin.name: pin.version for pin in pins}
    assert len(pinned) == len(pins) > 150
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name, *_ in rows()}
    assert installed == {name: pinned.get(name) for name in installed}


def test_cuda_comes_with_one_build_of_torch_alone():
    names = {
        name: {pin.name for pin in lock.read((ROOT / "locks" / f"{name}.txt").read_text())}
        for name in ("all", "torch", "torch-cpu")
    }
    assert names["torch-cpu"] == {"torch"}
    assert names["torch"] > {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13"}
    assert not any(name.startswith(("nvidia", "cuda", "triton")) for name in names["all"])
    assert "torch" not in names["all"] and "torchvision" in names["all"]
