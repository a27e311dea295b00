"""Damaged and hostile shards, notes and indexes are refused by their names."""

import json
import os
import shutil
import tarfile

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data.gray_shards import load, png, samples, write_tar
from tests.helpers import run_script
from vit_keras import data
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.data.shards.formats import FORMATS, example_class, framed
from vit_keras.models import Preprocessing

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]

GOOD = [*samples(range(3))]
HOSTILE = {
    "points outside": [*GOOD, ("../../etc/x.png", png(1))],
    "'/etc/x.png' points outside": [*GOOD, ("/etc/x.png", png(1))],
    "two members of the same kind": [*GOOD, ("a.png", png(1)), ("a.png", png(1))],
    "'a' has two members": [*GOOD, ("a.png", png(1)), ("a.jpg", png(1))],
    "all be names, and that of its record 3 is 'cat'": [
        *GOOD,
        ("a.png", png(1)),
        ("a.cls", b"cat"),
    ],
    "'a.cls' must hold the number": [*GOOD, ("a.png", png(1)), ("a.cls", b"cat\ndog")],
    "'a.cls' holds more than 256 bytes": [*GOOD, ("a.png", png(1)), ("a.cls", b"1" * 1000)],
    "'a.json' is damaged": [*GOOD, ("a.png", png(1)), ("a.json", b"{")],
    "class 99999999, not one of": [*GOOD, ("a.png", png(1)), ("a.cls", b"99999999")],
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_members_are_refused(tmp_path, reason, shard_cache):
    write_tar(tmp_path / "a.tar", HOSTILE[reason])
    with pytest.raises(ValueError, match=rf"a.tar' is not a whole shard \(.*{reason}.*Restore it"):
        load(tmp_path)
    assert not any(path.is_dir() for path in shard_cache.iterdir())  # nothing is kept of it


def spoiled(content):
    """Damaged copies of a tar file with a member of `content`'s size in its last header."""
    yield "cut in a picture", content[:1700]
    yield "cut in a header", content[: 512 * 5 + 100]
    yield "cut before the end", content[: content.index(b"\0" * 1024)]
    for offset in range(0, len(content) - 1024, 512):
        if content[offset + 257 : offset + 262] == b"ustar":
            header = bytearray(content[offset : offset + 512])
            header[3] ^= 1  # so that its checksum is wrong
            yield f"header {offset}", content[:offset] + bytes(header) + content[offset + 512 :]
    member = tarfile.TarInfo("z.png")
    member.size = 2**40
    yield "lying size", content[:1024] + member.tobuf(tarfile.GNU_FORMAT) + content[1536:]
    yield "empty", b""
    yield "gzip", b"\x1f\x8b\x08" + bytes(600)


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_shards_are_refused_by_their_names(packed, tmp_path, kind, rng):
    """At any byte: by their hashes in shards.json, and without it where the format shows it."""
    name = f"train-00000.{kind}"
    content = (packed / kind / name).read_bytes()
    shutil.copytree(packed / kind, tmp_path / "x")
    for place in rng.integers(0, len(content), 5):
        spoiled = bytearray(content)
        spoiled[place] ^= 16
        (tmp_path / "x" / name).write_bytes(spoiled)
        with pytest.raises(ValueError, match=rf"{name}' is not a whole shard \(its SHA-256"):
            load(tmp_path / "x")
    (tmp_path / "x" / name).write_bytes(content[:-100])
    with pytest.raises(ValueError, match=rf"{name}' is not a whole shard \(it has \d+ bytes, and"):
        load(tmp_path / "x")
    (tmp_path / "x" / "shards.json").unlink()
    whole = len(content) if kind != "tar" else content.index(b"\0" * 1024)  # and zeros behind
    for length in (0, 11, whole // 2, whole - 9):
        (tmp_path / "x" / name).write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"{name}' is not a whole shard"):
            load(tmp_path / "x", test_percent=0)


def test_a_damaged_picture_is_skipped_and_counted(packed, tmp_path):
    shutil.copytree(packed / "tar", tmp_path / "x")
    (tmp_path / "x" / "shards.json").unlink()
    path = tmp_path / "x" / "train-00000.tar"
    content = bytearray(path.read_bytes())
    place = content.index(b"\x89PNG", content.index(b"00000003.png"))
    content[place + 20 : place + 30] = b"x" * 10
    path.write_bytes(content)
    options = {"image_size": (4, 6), "preprocessing": Preprocessing(), "batch": 5}
    dataset = load(tmp_path / "x", test_percent=0, on_corrupt="skip")
    (images, _), *_ = data.eval_batches(dataset.split("train"), **options)
    levels = np.round((images[:, 0, 0, 0] + 1) * 127.5).astype(int)
    assert levels.tolist() == [0, 1, 2, 4, 4]
    assert dataset.unreadable.report() == f"1 unreadable images replaced: {path} record 3"
    split = load(tmp_path / "x", test_percent=0).split("train")
    with pytest.raises(UnreadableImageError, match=r"x/train-00000.tar record 3' cannot be read"):
        split.read(3)


def test_a_changed_note_is_refused(packed, tmp_path):
    shutil.copytree(packed / "tar", tmp_path / "x")
    file = tmp_path / "x" / "shards.json"
    note = json.loads(file.read_text())
    note["classes"] = note["classes"][::-1]  # of which a flipped letter is another case
    file.write_text(json.dumps(note))
    with pytest.raises(ValueError, match=r"shards.json' is damaged \(its `classes` was changed"):
        load(tmp_path / "x")
    del note["checksums"]
    file.write_text(json.dumps(note))
    assert list(load(tmp_path / "x").class_names) == note["classes"]


SPOILED_NOTES = {
    "its `classes` must be a list": {"classes": {}},
    r"its `splits.train\[0\].bytes` must be an integer": "bytes",
    "must name files of its folder. Received: '../a.tar'": "../a.tar",
    "'/a.tar'": "/a.tar",
    "names of 1 classes": {"classes": ["cat"]},
}


@pytest.mark.parametrize("message", SPOILED_NOTES)
def test_a_note_that_says_wrong_things_is_refused(packed, tmp_path, message):
    shutil.copytree(packed / "tar", tmp_path / "x")
    note, change = json.loads((packed / "tar" / "shards.json").read_text()), SPOILED_NOTES[message]
    del note["checksums"]
    if isinstance(change, dict):
        note |= change
    elif change == "bytes":
        note["splits"]["train"][0]["bytes"] = "many"
    else:
        note["splits"]["train"][0]["file"] = change
    (tmp_path / "x" / "shards.json").write_text(json.dumps(note))
    with pytest.raises(ValueError, match=f"(shards.json|.tar)'.*{message}"):
        load(tmp_path / "x")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        *(
            ("records.bin", lambda b, i=i: b[:i] + bytes([b[i] ^ 1]) + b[i + 1 :], "its SHA-256")
            for i in (0, 8, 19, 399)  # an offset, a length, and labels
        ),
        ("records.bin", lambda b: b[:-20], "its SHA-256"),
        ("records.bin", lambda b: b"", "its SHA-256"),
        ("index.json", lambda b: b.replace(b"[20]", b"[19]"), "its `records` was changed"),
        ("index.json", lambda b: b.replace(b"[20]", b'"20"'), "its `records` must be a list"),
        ("index.json", lambda b: b[:-9], "it is not JSON"),
    ],
)
def test_a_damaged_index_is_refused(packed, shard_cache, name, change, message):
    load(packed / "tar", test_percent=0)
    (folder,) = (path for path in shard_cache.iterdir() if path.is_dir())
    content = (folder / name).read_bytes()
    assert change(content) != content
    (folder / name).write_bytes(change(content))
    with pytest.raises(ValueError, match=rf"/{name}' is damaged .{message}.*built anew"):
        load(packed / "tar", test_percent=0)


@pytest.mark.parametrize("labels", [(0, b"cat"), (b"cat", 0), (0, 1, b"1"), (-1,), (2**40,)])
@pytest.mark.parametrize("in_one", [True, False])
def test_labels_of_two_kinds_are_refused(tmp_path, labels, in_one):
    """In one shard or in several, whichever comes first; numbers of no class as well."""
    examples = [example_class()() for _ in labels]
    for example, label in zip(examples, labels):
        example.features.feature["image"].bytes_list.value.append(png(1))
        values = example.features.feature["label"]
        (values.bytes_list if isinstance(label, bytes) else values.int64_list).value.append(label)
    for number, example in enumerate(examples):
        path = tmp_path / f"{0 if in_one else number}.tfrecord"
        with open(path, "ab") as file:
            file.write(framed(example.SerializeToString()))
    with pytest.raises(ValueError, match=r"tfrecord' is not a whole .*(all be names|not one of 0)"):
        load(tmp_path)


def test_a_picture_that_a_dictionary_repeats_takes_its_memory_once(tmp_path):
    """1 kB of a file stands for 3 GB: in one process, what one row takes."""
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", picture), ("label", pa.int64())])
    row = {"image": {"bytes": png(7) + bytes(3 * 2**20), "path": "a.png"}, "label": 0}
    path = tmp_path / "a.parquet"
    with parquet.ParquetWriter(
        path, schema, compression="zstd", dictionary_pagesize_limit=2**22
    ) as file:
        file.write_table(
            pa.concat_tables([pa.Table.from_pylist([row, row | {"label": 1}] * 25, schema)] * 20)
        )
    assert path.stat().st_size < 2**14
    code = (
        "from benchmarks import memory; from vit_keras import data; "
        "from vit_keras.config import DataConfig; "
        f"s = data.load('shards:{path}', 1, DataConfig(test_percent=0), labeled=False); "
        "s = s.split('train'); s.read(0); "
        "before = memory.peak(); "
        "assert s.read(70).max() == 7 and len(s) == 1000; "
        "print(memory.peak() - before)"
    )
    assert float(run_script("-c", code).stdout.split()[-1]) < 0.25  # GiB


def test_a_long_label_that_a_dictionary_repeats_is_refused(tmp_path):
    row = {"image": png(7), "label": "a" * 2**20}
    table = pa.Table.from_pylist([row] * 100)
    parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(ValueError, match="a label takes more than 256 bytes"):
        load(tmp_path)


def test_a_manifest_that_is_no_file_is_refused(packed, tmp_path):
    shutil.copytree(packed / "tar", tmp_path / "pipe")
    file = tmp_path / "pipe" / "shards.json"
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="shards.json' is not a file"):
        load(tmp_path / "pipe")
