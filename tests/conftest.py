"""Fixtures that every test may use."""

import contextlib
import gc
import itertools
import os
import shutil
import tempfile

import numpy as np
import pytest

from tests.quick_xla import quick, share_contexts

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as train.py, before torch is loaded
# Tests load files in places that are gone tomorrow; the user's cache need not remember them.
HOME = tempfile.mkdtemp(prefix="vit_keras_home_")
os.environ.setdefault("KERAS_HOME", HOME)
os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=")  # keeps nothing

# JAX compiles a program once for all tests and their processes.
COMPILED = tempfile.mkdtemp(prefix="vit_keras_compiled_")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", COMPILED)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
if os.environ.get("KERAS_BACKEND") == "jax":  # TensorFlow reads XLA's flags too
    os.environ.update(quick(os.environ))


@pytest.fixture
def rng():
    return np.random.default_rng(20201022)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses by marks
def pytest_collection_modifyitems(config, items):
    """Leaves out what is marked `on` other backends, and reads `nightly_on` this backend."""
    here = os.environ.get("KERAS_BACKEND", "tensorflow")
    chosen = [i for i in items if all(here in mark.args for mark in i.iter_markers("on"))]
    for item in chosen:
        if any(here in mark.args for mark in item.iter_markers("nightly_on")):
            item.add_marker("nightly")
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen


def pytest_collection_finish():
    spare()
    gc.set_threshold(10_000, 10, 50)
    if os.environ.get("KERAS_BACKEND") == "jax":
        share_contexts()


FINISHED = itertools.count(1)  # tests


def spare():
    """Takes what lives, such as compiled programs, from the collector, which training calls."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logfinish():
    if next(FINISHED) % 50 == 0:
        spare()


def pytest_unconfigure():
    shutil.rmtree(COMPILED, ignore_errors=True)
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(autouse=True, scope="session")
def converters():
    """Exports of all tests share the processes that convert."""
    from tests.converters import Converters, exporter

    with pytest.MonkeyPatch.context() as patch, contextlib.closing(Converters()) as shared:
        patch.setattr(exporter, "_run_converter", shared)
        yield


@pytest.fixture
def serve_hub(monkeypatch, tmp_path):
    """Starts a hub on loopback with an empty cache in `tmp_path`."""
    from huggingface_hub import constants

    from tests.weights.hub_server import HubServer

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.removeprefix(constants.ENDPOINT)
    values = {"HF_HUB_CACHE": str(tmp_path / "hub"), "HF_TOKEN_PATH": str(tmp_path / "token")}
    values |= dict.fromkeys(("HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_PROGRESS_BARS"), True)
    for name, value in values.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # between attempts
    with contextlib.ExitStack() as stack:

        def start(files, repository="ann/pets"):
            server = stack.enter_context(HubServer(repository, files).running())
            monkeypatch.setattr(constants, "ENDPOINT", server.url)
            monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + template)
            return server

        yield start
