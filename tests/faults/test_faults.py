"""Every save survives every fault, and the second process that writes to a place leaves."""

import collections
import contextlib
import dataclasses
import errno
import fcntl
import multiprocessing
import os
import pathlib
import re
import signal

import numpy as np
import pytest

from tests.exporting import builds
from tests.faults import sweep
from tests.helpers import ROOT
from vit_keras import experiments, exporting, retrieval, runs
from vit_keras.config import read_config
from vit_keras.models import Preprocessing
from vit_keras.support import files

pytestmark = pytest.mark.once
FORK = multiprocessing.get_context("fork")
SAMPLE = 31  # every 31st call of a save, and another one for each fault


@pytest.mark.parametrize("every", [SAMPLE, pytest.param(1, marks=pytest.mark.nightly)])
def test_faults_lose_nothing(every):
    done = sweep.run_below("--every", str(every), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    seen = collections.Counter()
    for end, count in re.findall(r"'([^']+)': (\d+)[,}]", done.stdout):
        seen[end] += int(count)
    assert seen["error, old"] > 20 and seen["killed, old"] > 5 and seen["killed, new"] > 0


@contextlib.contextmanager
def another_process(function, *arguments):
    """Runs a process that enters `function(*arguments)` and stays there until it is killed."""
    entered = FORK.Event()

    def stay():
        with function(*arguments):
            entered.set()
            signal.pause()

    process = FORK.Process(target=stay)
    process.start()
    try:
        assert entered.wait(30)
        yield process
    finally:
        process.kill()
        process.join()


def run_in(folder, **fields):
    return dataclasses.replace(read_config("digits"), workdir=str(folder), **fields)


def an_export(folder):
    exporting.export(builds.small_model(np.random.default_rng(0)), folder, formats=["onnx"])


def several_exports(folder):
    exporting.export_patch_sizes(builds.small_model(np.random.default_rng(0)), folder, [4])


def embeddings(path):
    embedder = retrieval.Embedder(np.asarray, (4, 4, 3), (3,), Preprocessing(), {})
    listed = retrieval.PictureList([retrieval.Picture("a")], lambda *_: np.zeros((4, 4, 3)))
    retrieval.EmbeddingJob(embedder, listed, path)


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("run", lambda folder: experiments.sweep(run_in(folder))),
        ("run", lambda folder: experiments.cross_validate(run_in(folder, folds=2))),
        ("run", lambda folder: experiments.fine_tune_tasks("none.npz", folder)),
        ("run", lambda folder: runs.claim(run_in(folder)).__enter__()),
        ("out", an_export),
        ("out", several_exports),
        ("a.parquet", embeddings),
    ],
)
def test_a_place_of_another_process_is_refused(tmp_path, monkeypatch, name, begin):
    monkeypatch.chdir(ROOT)
    place, is_run = tmp_path / name, name == "run"
    claim = (files.claimed, place, "work", "") if is_run else (files.claimed_output, place, "work")
    with another_process(*claim) as process:
        owner = rf"work by process {process.pid} on \S+ since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
        message = rf"{re.escape(repr(str(place)))} is in use: {owner}\. Wait until it ends, or give"
        with pytest.raises(ValueError, match=message):
            begin(place)
        held = place.iterdir() if is_run else tmp_path.iterdir()
        assert [file.name for file in held] == [".lock" if is_run else f".{name}.lock"]


def test_the_lock_of_a_killed_process_is_none(tmp_path):
    with another_process(files.claimed_output, tmp_path / "a.csv", "work"):
        pass
    assert os.listdir(tmp_path) == [".a.csv.lock"]
    with files.claimed_output(tmp_path / "a.csv", "work"):
        assert f"process {os.getpid()} on" in (tmp_path / ".a.csv.lock").read_text()
    assert os.listdir(tmp_path) == []


@contextlib.contextmanager
def half_a_file(path):
    with files.replacing(path) as temporary:
        pathlib.Path(temporary).write_text("half")
        yield


def test_the_second_writer_of_a_file_waits_for_the_first(tmp_path):
    with another_process(half_a_file, tmp_path / "a.txt") as first:
        second = FORK.Process(target=files.write_text, args=(tmp_path / "a.txt", "whole"))
        second.start()
        second.join(0.5)
        assert second.is_alive() and not (tmp_path / "a.txt").exists()
        first.kill()
    second.join(30)
    assert second.exitcode == 0
    assert os.listdir(tmp_path) == ["a.txt"] and (tmp_path / "a.txt").read_text() == "whole"


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OSError, match=r"No locks available: '.*a\.json'"):
        files.write_text(tmp_path / "a.json", "new")
