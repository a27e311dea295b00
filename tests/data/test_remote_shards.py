"""Shards on a server: the batches of those on the disk, whatever fails on the way."""

import os
import shutil
import time

import numpy as np
import pytest

from tests.data.gray_shards import grays, load, samples, write_tar
from tests.loopback import FileServer, every_third, hostile_server
from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.data.dataset import UnreachableError, UnreadableImageError
from vit_keras.data.shards import shard_files
from vit_keras.models import Preprocessing

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache", "quick_pauses")]


@pytest.fixture
def quick_pauses(monkeypatch):
    monkeypatch.setattr(shard_files, "PAUSES", [0.001] * 6)
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server(packed, tmp_path):
    shutil.copytree(packed, tmp_path / "served")
    with FileServer(tmp_path / "served").running() as server:
        yield server


def batches(dataset):
    options = {"image_size": (4, 6), "preprocessing": Preprocessing(), "batch": 5, "seed": 2}
    options |= {"augment_config": AugmentConfig(flip=True), "num_classes": 2}
    made = data.train_batches(dataset.split("train"), start_step=3, total_steps=9, **options)
    return [np.concatenate([np.ravel(x) for x in batch]) for batch in made]


def write_tars(folder, count):
    """Writes {0..count - 1}.tar of four pictures each, whose gray levels begin at ten times it."""
    for number in range(count):
        path = folder / f"{number}.tar"
        write_tar(path, samples(range(10 * number, 10 * number + 4)))
    return path.stat().st_size


def copies_in(shard_cache):
    files = [path for path in (shard_cache / "copies").glob("*") if path.suffix != ".lock"]
    return {path.name.partition("-")[2]: path for path in files}


@pytest.mark.parametrize(
    ("kind", "cache_gb"),
    [("tar", 20), ("tfrecord", 0), pytest.param("parquet", 20, marks=pytest.mark.nightly)],
)
def test_batches_are_those_of_the_disk(server, packed, shard_cache, kind, cache_gb):
    server.fails, server.lag = every_third, 0.002
    local = load(packed / kind, test_percent=0)
    dataset = load(f"{server.url}/{kind}", shard_cache_gb=cache_gb, test_percent=0)
    np.testing.assert_array_equal(batches(dataset), batches(local))
    before = len(server.requests)
    again = load(f"{server.url}/{kind}", shard_cache_gb=cache_gb, test_percent=0)
    asked = {path for path, _ in server.requests[before:]}
    assert asked == {f"/{kind}/shards.json"}  # which says what else is to be known
    splits = again.split("train"), local.split("train")
    assert [splits[0].encoded(i) for i in range(20)] == [splits[1].encoded(i) for i in range(20)]
    read = {path for path, span in server.requests[before:] if span}
    assert (f"/{kind}/train-00000.{kind}" in read) == (cache_gb == 0)
    assert len(copies_in(shard_cache)) == (1 if cache_gb else 0)


def test_what_must_be_copied_needs_room(server):
    message = r"parquet' must be copied .* leaves no room for its \d+ bytes. Raise it, or pack"
    with pytest.raises(ValueError, match=message):
        load(f"{server.url}/parquet", shard_cache_gb=0, test_percent=0)


def test_patterns_name_shards_on_servers(server, tmp_path):
    write_tars(tmp_path / "served" / "x", 3)
    split = load(f"{server.url}/x/{{0..2}}.tar", test_percent=0).split("train")
    assert grays(split) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    assert split.name(5) == f"{server.url}/x/1.tar record 1"
    with pytest.raises(FileNotFoundError, match="There is no file '.*/x/3.tar'"):
        load(f"{server.url}/x/{{0..3}}.tar")


@pytest.mark.parametrize("on_corrupt", ["skip", "stop"])
def test_a_server_that_stays_away_stops_the_run(server, on_corrupt):
    fields = {"on_corrupt": on_corrupt, "shard_cache_gb": 0, "test_percent": 0}
    dataset = load(f"{server.url}/tar", **fields)
    server.fails = lambda number: 503
    message = "train-00000.tar' could not be read in 7 attempts .*same command continues the run"
    with pytest.raises(UnreadableImageError, match=message):
        batches(dataset)
    assert not dataset.unreadable.names


@pytest.mark.parametrize("room", [20, 0])
def test_a_server_that_sends_other_bytes_is_refused(server, tmp_path, room):
    path = tmp_path / "served" / "tar" / "train-00000.tar"
    content = bytearray(path.read_bytes())
    content[5000] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{server.url}/tar/.*not a whole shard \(its SHA"):
        load(f"{server.url}/tar", shard_cache_gb=room)
    (path.parent / "shards.json").unlink()
    path.write_bytes(content[:3000])
    with pytest.raises(ValueError, match=rf"^'{server.url}/tar/train-00000.tar' is not a"):
        load(f"{server.url}/tar/train-00000.tar", shard_cache_gb=room)


def test_copies_stay_within_their_bound(server, tmp_path, shard_cache, monkeypatch):
    gb = 2.5 * write_tars(tmp_path / "served" / "x", 4) / 1e9  # room for two
    everything = load(f"{server.url}/x/{{0..3}}.tar", shard_cache_gb=gb, test_percent=0)
    copies = copies_in(shard_cache)
    assert copies.keys() == {"0.tar", "1.tar"}
    assert len(grays(everything.split("train"))) == 16
    for age, name in enumerate(("0.tar", "1.tar")):
        os.utime(copies[name], (age + 1, age + 1))
    looked_at, forgotten = ((shard_cache / "copies" / f"look-{i}-x.tar") for i in range(2))
    for path in (looked_at, forgotten):  # of processes, the second of which was killed long ago
        path.write_bytes(b"x")
    os.utime(forgotten, (0, 0))
    load(f"{server.url}/x/3.tar", shard_cache_gb=gb, test_percent=0)
    # The least recently opened ones made room.
    assert copies_in(shard_cache).keys() == {"1.tar", "3.tar", "0-x.tar"} and looked_at.exists()


def test_what_an_interrupted_copy_left_is_no_copy(server, shard_cache):
    server.fails = lambda number: ("cut", 0.5) if server.requests[-1][0].endswith(".tar") else None
    with pytest.raises(OSError, match="could not be read in 7 attempts"):
        load(f"{server.url}/tar", test_percent=0)
    assert not [path for path in shard_cache.rglob("*") if path.is_file() and path.stat().st_size]
    server.fails = lambda number: None
    split = load(f"{server.url}/tar", test_percent=0).split("train")
    (copy,) = (shard_cache / "copies").iterdir()
    copy.unlink()
    assert grays(split) == [*range(20)]
    assert [*(shard_cache / "copies").iterdir()] == []
    load(f"{server.url}/tar", test_percent=0)
    assert [*(shard_cache / "copies").iterdir()] == [copy]


ENDLESS = {"206 OK": "Content-Range: bytes 0-9/10", "200 OK": "Content-Length: 99999999999"}


@pytest.mark.parametrize("status", ENDLESS)
def test_no_more_is_read_than_was_asked_for(status):
    head = f"HTTP/1.1 {status}\r\n{ENDLESS[status]}\r\n\r\n".encode()
    with hostile_server(head, b"0123456789" * 2**10) as (url, taken):
        assert shard_files.read_range(f"{url}/a.tar", 0, 15) == b"012345678901234"
        if status == "200 OK":
            with pytest.raises(ValueError, match=f"'{url}/a.tar' must support range"):
                shard_files.read_range(f"{url}/a.tar", 5, 10)
        with pytest.raises(ValueError, match="shards.json' is damaged"):
            load(f"{url}/a.tar")
        time.sleep(0.1)
        assert max(taken) < 2**26


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 206 OK\r\nContent-Length: 9\r\n\r\n"])
def test_a_silent_server_is_given_up(monkeypatch, head):
    monkeypatch.setattr(shard_files, "ANSWER_SECONDS", 0.05)
    with hostile_server(head) as (url, _), pytest.raises(UnreachableError, match="7 attempts"):
        shard_files.read_range(f"{url}/a.tar", 0, 9)
