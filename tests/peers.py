"""Other projects that tests compare with, imported so that torchvision's operators are there.

timm needs torchvision, and transformers imports it where it is installed.
"""

import importlib

import pytest


def peer(name: str):
    """Imports a project beside a torch that may lack torchvision's operators; skips without it."""
    pytest.importorskip("torch")
    importlib.import_module("benchmarks.torchvision_operators")
    return pytest.importorskip(name)
