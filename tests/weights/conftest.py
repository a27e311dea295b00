"""A local server instead of the published one, and a cache for each test."""

import contextlib

import pytest

from tests.loopback import FileServer
from tests.weights.builds import FILES
from vit_keras.weights import download


@pytest.fixture
def serve(monkeypatch, tmp_path):
    """Starts a local server instead of the published one; the cache is `tmp_path`."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    with contextlib.ExitStack() as stack:

        def start(*plan, files=FILES, **options):
            server = stack.enter_context(FileServer(files, *plan, **options).running())
            monkeypatch.setenv(download.MIRROR, server.url)
            return server

        yield start


@pytest.fixture
def target(tmp_path):
    return tmp_path / "models" / "vit_keras" / "vit_models" / "imagenet21k" / "ViT-B_16.npz"
