"""Downloads by two processes at once, and by a process that is killed."""

import contextlib
import os
import subprocess
import sys

import pytest

from tests.helpers import ROOT
from tests.weights.server import BODY, ROW, beside
from vit_keras.weights import fetch

pytestmark = pytest.mark.once

FETCH = "from vit_keras.weights import resolve; print('at', resolve('B/16', 'imagenet21k'))"
HALF = len(BODY) // 2


@pytest.fixture
def start():
    """Starts processes that download the file, and ends them after the test."""
    with contextlib.ExitStack() as stack:

        def run():
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            environment |= {"VIT_KERAS_TIMEOUT": "600", "KERAS_BACKEND": "jax"}  # starts soonest
            process = subprocess.Popen(
                [sys.executable, "-c", FETCH],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield run


def read_until(process, text):
    """Reads what the process prints up to the line with `text`."""
    printed = ""
    for line in process.stdout:
        printed += line
        if text in line:
            return printed
    raise AssertionError(f"{text!r} was not printed:\n{printed}")


def test_two_processes_at_once_download_once(serve, start, target):
    server = serve(("stall", HALF))
    first = start()
    assert server.asked.wait(timeout=120)  # it holds the lock and has half of the file
    second = start()
    read_until(second, "Waiting for the process that downloads")
    assert not target.exists()  # no partial file has the file's name
    server.release.set()
    for process in (first, second):
        read_until(process, f"at {target}")
        assert process.wait(timeout=120) == 0
    assert server.requests == [("/" + ROW.path, None)]
    assert target.read_bytes() == BODY
    assert beside(target) == {""}


def test_lock_of_a_killed_process_is_released(serve, start, target):
    server = serve(("stall", HALF))
    process = start()
    read_until(process, f"Downloading {server.url}")
    assert server.asked.wait(timeout=120)
    process.kill()
    process.wait()
    assert not target.exists()
    fetch(ROW)
    assert target.read_bytes() == BODY
    assert len(server.requests) == 2
