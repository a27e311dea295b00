"""Tiny valid files of data: shards, tables, features and their index, configurations, HTTP answers.

Each entry of `DATA` has the fields of `subjects.Subject`.
"""

import contextlib
import csv
import io
import os
import shutil
import socketserver

import numpy as np

from tests.data.gray_shards import load, png, samples, write_tar
from tests.loopback import LoopbackServer
from vit_keras import data
from vit_keras.config import DataConfig, dump_config, parse_config, read_config
from vit_keras.data.shards import shard_files
from vit_keras.data.shards.packing import pack_shards
from vit_keras.retrieval import search, tables
from vit_keras.weights.download import MIRROR, fetch
from vit_keras.weights.published import PublishedFile

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


def _make_features(rng, folder):
    description = {"shape": [8], "dtype": "float32", "weights": "x", "layer": None}
    schema = tables.schema([8], "float32", description)
    pictures = [tables.Picture(name, "cat", "train") for name in NAMES]
    rows = tables.table_of(schema, pictures, rng.normal(size=(6, 8)), [None] * 6)
    tables.write(folder / "a.parquet", schema, [rows])


def _open_features(path):
    table = tables.EmbeddingTable(path)
    values, present = table.embeddings(range(len(table)))
    pictures = table.pictures(range(len(table)))
    return [values.tobytes(), present.tolist(), pictures, table.count_errors(), table.description]


def _make_index(rng, folder):
    _make_features(rng, folder)
    search._build(tables.EmbeddingTable(folder / "a.parquet"), folder / "a.parquet.index")


def _open_index(path):
    table = tables.EmbeddingTable(path.with_suffix(""))
    nearest = search.NeighborIndex(table).search(table.embeddings(range(6))[0], 3)
    return [[list(map(tuple, pair)) for pair in nearest], table.sha256]


def _make_config(rng, folder):
    (folder / "a.yaml").write_text(dump_config(parse_config(["--seed", "7"])))


def _open_config(path):
    return [dump_config(read_config(path))]


def _make_answer(body, kind):
    def make(rng, folder):
        content = body(rng, folder)
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(content)}\r\n"
        (folder / "a.http").write_bytes(f'{head}ETag: "a"\r\n\r\n'.encode() + content)

    return make


def _tar(rng, folder):
    _make_tar(rng, folder)
    content = (folder / "a.tar").read_bytes()
    (folder / "a.tar").unlink()
    return content


class _Answer(socketserver.BaseRequestHandler):
    """Sends the server's `content` for every URL but that of `shards.json`."""

    def handle(self):
        self.request.settimeout(2)
        with contextlib.suppress(OSError):
            is_note = b"shards.json" in self.request.recv(2**16)
            self.request.sendall(b"HTTP/1.1 404 No\r\n\r\n" if is_note else self.server.content)


@contextlib.contextmanager
def _answering(content):
    with LoopbackServer(_Answer).running() as server:
        server.content = content
        yield server.url


def _named(call, path):
    """Calls with an error's URL replaced by the path of the answer, so that it is named."""
    try:
        return call()
    except (ValueError, OSError) as error:
        text = str(error)
        raise type(error)(f"{path}: {text}" if "127.0.0.1" in text else text) from error


def _open_answered_shard(path):
    shard_files.PAUSES = ()  # a damaged answer does not heal
    with _answering(path.read_bytes()) as url:
        return _named(lambda: _open_shards(f"{url}/a.tar"), path)


def _numbers(rng, folder):
    np.savez(file := io.BytesIO(), a=rng.integers(0, 9, 300))
    return file.getvalue()


def _open_download(path):
    shutil.rmtree(path.parent / "cache", ignore_errors=True)
    with _answering(path.read_bytes()) as url:
        os.environ[MIRROR] = url
        row = PublishedFile("B/16", "x", "a/b.npz", 224, None)
        target = _named(lambda: fetch(row, path.parent / "cache", 2.0, retries=0), path)
    with np.load(target) as file:
        return [{name: file[name].tolist() for name in file}]


DATA = {
    "pictures .tar": (_make_tar, "a.tar", _open_shards),
    "pictures .parquet": (_make_packed("parquet"), "a.parquet", _open_shards),
    "packed folder": (_make_packed("tar"), "a", _open_shards, True),
    "table .csv": (_make_table, "a.csv", _open_table),
    "features .parquet": (_make_features, "a.parquet", _open_features, True),
    "features .index": (_make_index, "a.parquet.index", _open_index, True),
    "configuration .yaml": (_make_config, "a.yaml", _open_config),
    "answer with a shard .http": (_make_answer(_tar, "x/tar"), "a.http", _open_answered_shard),
    "answer with arrays .http": (_make_answer(_numbers, "x/zip"), "a.http", _open_download),
}
