"""Tiny valid files of data: shards, tables, configurations, HTTP answers.

Each entry of `DATA` has the fields of `subjects.Subject`.
"""

import contextlib
import csv
import shutil
import socketserver

import numpy as np

from tests.data.gray_shards import load, png, samples, write_tar
from tests.loopback import LoopbackServer
from vit_keras import data
from vit_keras.config import DataConfig, dump_config, parse_config, read_config
from vit_keras.data.shards import pack_shards, shard_files

NAMES = [f"{i:03}.png" for i in range(6)]


def _split(dataset):
    """Classes, labels and pixels of the pictures that are read."""
    split = dataset.split("train")
    pixels = [split.read(i).tobytes() for i in range(len(split))]
    return [pixels, tuple(dataset.class_names), np.asarray(split.labels).tolist()]


def _make_tar(rng, folder):
    write_tar(folder / "a.tar", samples(range(6)))


def _make_packed(kind):
    def make(rng, folder):
        _make_tar(rng, folder)
        pack_shards(load(folder / "a.tar", test_percent=0), folder / "a", format=kind)
        (folder / "a.tar").unlink()
        if kind == "parquet":  # without shards.json, whose SHA-256 would notice everything
            shutil.move(folder / "a" / "train-00000.parquet", folder / "a.parquet")

    return make


def _open_shards(path):
    return _split(load(path, test_percent=0))


def _make_table(rng, folder):
    for value, name in enumerate(NAMES):
        (folder / name).write_bytes(png(value))
    with open(folder / "a.csv", "w", newline="") as file:
        rows = [(name, "cat" if i % 2 else "dog") for i, name in enumerate(NAMES)]
        csv.writer(file).writerows([("path", "label"), *rows])


def _open_table(path):
    return _split(data.load(f"table:{path}", 1, DataConfig(test_percent=0)))


def _make_config(rng, folder):
    (folder / "a.yaml").write_text(dump_config(parse_config(["--seed", "7"])))


def _open_config(path):
    return [dump_config(read_config(path))]


def _make_answer(rng, folder):
    _make_tar(rng, folder)
    content = (folder / "a.tar").read_bytes()
    (folder / "a.tar").unlink()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: x/tar\r\nContent-Length: {len(content)}\r\n"
    (folder / "a.http").write_bytes(f'{head}ETag: "a"\r\n\r\n'.encode() + content)


class _Answer(socketserver.BaseRequestHandler):
    """Sends the server's `content` for every URL but that of `shards.json`."""

    def handle(self):
        self.request.settimeout(2)
        with contextlib.suppress(OSError):
            is_note = b"shards.json" in self.request.recv(2**16)
            self.request.sendall(b"HTTP/1.1 404 No\r\n\r\n" if is_note else self.server.content)


def _open_answer(path):
    """An error names the URL, and here also the path of the answer."""
    shard_files.PAUSES = ()  # a damaged answer does not heal
    with LoopbackServer(_Answer).running() as server:
        server.content = path.read_bytes()
        try:
            return _open_shards(f"{server.url}/a.tar")
        except (ValueError, OSError) as error:
            text = str(error)
            raise type(error)(f"{path}: {text}" if "127.0.0.1" in text else text) from error


DATA = {
    "pictures .tar": (_make_tar, "a.tar", _open_shards),
    "pictures .parquet": (_make_packed("parquet"), "a.parquet", _open_shards),
    "packed folder": (_make_packed("tar"), "a", _open_shards, True),
    "table .csv": (_make_table, "a.csv", _open_table),
    "configuration .yaml": (_make_config, "a.yaml", _open_config),
    "answer with a shard .http": (_make_answer, "a.http", _open_answer),
}
