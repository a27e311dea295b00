"""Which shards are read, what is made of them, and damaged ones."""

import io
import json
import pathlib
import shutil

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pyarrow import parquet

from tests.data.crafted_pictures import peak_mb, reset_peak
from tests.data.gray_shards import grays, load, png, samples, write_tar
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.shards import expand_braces
from vit_keras.data.shards.formats import FORMATS

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]


def test_names_say_the_splits(tmp_path):
    places = {"pets-train-000": range(5), "pets-train-001": range(5, 7)}
    places |= {"pets-validation-000": range(10, 14), "train/dogs": (20, 21), "val/dogs": (22, 23)}
    for place, values in places.items():
        write_tar(tmp_path / f"{place}.tar", samples(values))
    dataset = load(tmp_path)
    assert list(dataset.splits) == ["train", "validation"] and dataset.class_names == ("0", "1")
    assert grays(dataset.split("train")) == [*range(7)]
    assert grays(dataset.split("test")) == [*range(10, 14)]
    named = load(tmp_path / "pets-train-{000..001}.tar", test_percent=0)
    assert grays(named.split("train")) == [*range(7)]
    nested = load(tmp_path / "{train,val}/*.tar")
    assert grays(nested.split("train")) == [20, 21] and grays(nested.split("val")) == [22, 23]
    assert nested.split("val").name(1) == f"{tmp_path}/val/dogs.tar record 1"


def test_shards_without_labels_are_for_runs_without(tmp_path):
    write_tar(tmp_path / "a.tar", [(f"{i}.png", png(i)) for i in range(4)])
    dataset = load(tmp_path, labeled=False, test_percent=0)
    assert dataset.class_names == () and grays(dataset.split("train")) == [0, 1, 2, 3]
    for members, message in (
        ({"a.png": png(1)}, r"must have a class. Received: .* 1 without one.*a.tar record 0. Name"),
        ({"a.png": png(1), "a.json": b'{"label": [1, 2]}'}, "must have a class"),
        ({"a.v2.png": png(1), "a.cls": b"1"}, "contain pictures.*none"),
    ):
        write_tar(tmp_path / "a.tar", members.items())
        with pytest.raises(ValueError, match=message):
            load(tmp_path)


def test_braces_stand_for_names():
    expected = [f"a-{number}.{end}" for number in ("08", "09", "10", "11") for end in ("x", "yz")]
    assert expand_braces("a-{08..11}.{x,yz}") == expected
    for pattern in ("a{0..99999999}", "a{3..1}", "{0..9999}{0..9999}"):
        with pytest.raises(ValueError, match=r"million|range in a pattern|1000000 shards"):
            expand_braces(pattern)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("a.tar b.tgz", "with a.tar, b.tgz. Unpack compressed files"),
        ("a.tar b.parquet", "with a.tar, b.parquet. .*name files of one format"),
        ("a.zip README.md", "with .*(README.md|a.zip). .*of one format, such as shards:FOLDER/"),
    ],
)
def test_names_of_no_shards_are_refused(tmp_path, names, message):
    for name in names.split():
        write_tar(tmp_path / "x" / name, samples([1]))
    with pytest.raises(ValueError, match=f"must be files of one format.*/x' {message}"):
        load(tmp_path / "x")
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*b-000.tar'"):
        load(tmp_path / "x" / "b-{000..003}.tar")


@pytest.mark.parametrize(
    ("members", "column", "names", "labels"),
    [
        ([{"cls": "dog"}, {"cls": " cat\n"}, {"cls": "dog"}], (), ("cat", "dog"), [1, 0, 1]),
        ([{"label": "b", "json": "{"}, {"label.txt": "a"}], (), ("a", "b"), [1, 0]),
        ([{"json": '{"label": 3}'}, {"json": '{"label": 1.0}'}], (), tuple("0123"), [3, 1]),
        ([{"json": '{"label": "cat"}'}, {"json": '{"cls": "ant"}'}], (), ("ant", "cat"), [1, 0]),
        ([{"meta.json": '{"class": "b", "id": 7}'}, {"class": "a"}], (), ("a", "b"), [1, 0]),
        ([{"json": '{"breed": "b"}', "cls": "9"}, {"breed": "a"}], "breed", ("a", "b"), [1, 0]),
        ([{"npy": "an array of it", "cls": "a"}, {"cls": "b"}], (), ("a", "b"), [0, 1]),
    ],
)
def test_members_of_tar_files_say_the_class(tmp_path, members, column, names, labels):
    files = []
    for number, of_record in enumerate(members):
        files += [(f"{number}.png", png(number)), (f"._{number}.png", b"of macOS")]
        files += [(f"{number}.{suffix}", text.encode()) for suffix, text in of_record.items()]
    write_tar(tmp_path / "a.tar", files)
    dataset = load(tmp_path, test_percent=0, label_columns=column)
    assert dataset.class_names == names
    assert dataset.split("train").labels.tolist() == labels
    assert grays(dataset.split("train")) == [*range(len(members))]


def test_the_root_of_a_repository_stands_for_its_shards(tmp_path):
    for name, values in {"train": range(4), "test": (4, 5)}.items():
        write_tar(tmp_path / "data" / f"{name}-00000-of-00001.tar", samples(values))
    for name in (".git/x.tar", "docs/index.md"):
        write_tar(tmp_path / name, [])
    dataset = load(tmp_path)
    assert grays(dataset.split("train")) == [*range(4)] and grays(dataset.split("test")) == [4, 5]
    (tmp_path / "data").rename(tmp_path / "train")
    write_tar(tmp_path / "val" / "0.tar", samples((7, 8)))
    assert grays(load(tmp_path).split("val")) == [7, 8]
    (tmp_path / "train").rename(tmp_path / "cats")
    with pytest.raises(ValueError, match=r"in cats, val. Give one of .*such as shards:.*/cats$"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer. Run"),
        (b"\x1f\x8b\x08\0" + bytes(600), r"is not a whole shard \("),
        (b"<!DOCTYPE html><html>", "is a web page. Download the file itself"),
    ],
)
@pytest.mark.parametrize("kind", FORMATS)
def test_what_came_in_place_of_a_shard_is_named(tmp_path, kind, content, message):
    (tmp_path / f"a.{kind}").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.{kind}' {message}"):
        load(tmp_path)


def test_pictures_are_reduced_once(tmp_path, rng):
    sizes = {"a/1.png": ((60, 40), (20, 30)), "a/2.png": ((10, 30), None)}
    sizes["b/3.jpg"] = (32, 64), (40, 20)
    for name, (sides, _) in sizes.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*sides, 3), dtype="uint8")).save(tmp_path / name)
    folder = data.load(f"folder:{tmp_path}", 3, DataConfig(test_percent=0))
    data.pack_shards(folder, tmp_path / "shards", format="parquet", image_size=20)
    with pytest.raises(ValueError, match="must be new or empty. Received: '.*shards'"):
        data.pack_shards(folder, tmp_path / "shards")
    reduced = load(tmp_path / "shards", test_percent=0).split("train")
    for i, path in enumerate(map(folder.split("train").name, range(3))):
        encoded, size = reduced.encoded(i), sizes[path[-7:]][1]
        if size is None:
            assert encoded == pathlib.Path(path).read_bytes()
            continue
        picture = Image.open(io.BytesIO(encoded))
        expected = Image.open(path).convert("RGB").resize(size, Image.BICUBIC)
        assert picture.size == size
        assert np.abs(np.asarray(picture, int) - np.asarray(expected)).mean() < 4


def test_names_stand_for_themselves_where_there_is_such_a_file(tmp_path, monkeypatch):
    for name, values in {"x{1,2}/a[1].tar": (1, 2), "y/.a.tar": (8, 9), "y/b.tar": (3, 4)}.items():
        write_tar(tmp_path / name, samples(values))
    for pattern in ("x{1,2}", "x{1,2}/a[1].tar"):
        assert grays(load(tmp_path / pattern, test_percent=0).split("train")) == [1, 2]
    monkeypatch.chdir(tmp_path)
    for pattern in ("y", "y/*", "./y/b.tar", "y/[a-c].tar", "y/?.tar"):
        split = load(pattern, test_percent=0).split("train")
        assert grays(split) == [3, 4] and split.name(1) == f"{tmp_path}/y/b.tar record 1"
    for name, value in {"w/a[1].tar": 1, "w/a1.tar": 2}.items():
        write_tar(tmp_path / name, samples([value]))
    assert grays(load("w/{a[1],a1}.tar", test_percent=0).split("train")) == [1, 2]
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "b.tar").symlink_to("../y/b.tar")
    assert grays(load("z", test_percent=0).split("train")) == [3, 4]
    write_tar(tmp_path / "y" / "b.tar", samples((5, 6)))  # the link is as old as before
    assert grays(load("z", test_percent=0).split("train")) == [5, 6]


PICTURE = ("a.png", png(1))
HOSTILE = {  # members of a tar file after good ones
    "'a' has two members": [PICTURE, ("a.jpg", png(1))],
    "all names or all numbers.* the label of its record 3 is 'cat'": [PICTURE, ("a.cls", b"cat")],
    "'a.cls' must hold a class's number": [PICTURE, ("a.cls", b"cat\ndog")],
    "'a.cls' holds more than 256 bytes": [PICTURE, ("a.cls", b"1" * 1000)],
    "'a.json' is damaged": [PICTURE, ("a.json", b"{")],
    "label of its record 3 is -1": [PICTURE, ("a.cls", b"-1")],
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_members_are_refused(tmp_path, reason, shard_cache):
    write_tar(tmp_path / "a.tar", [*samples(range(3)), *HOSTILE[reason]])
    with pytest.raises(ValueError, match=rf"a.tar' is not a whole shard \(.*{reason}.*Restore or"):
        load(tmp_path)
    assert not any(path.is_dir() for path in shard_cache.iterdir())  # nothing is kept of it


@pytest.mark.parametrize("kind", FORMATS)
def test_cut_shards_are_refused_by_their_names(packed, tmp_path, kind):
    file = shutil.copytree(packed / kind, tmp_path / "x") / f"train-00000.{kind}"
    content = file.read_bytes()
    file.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=rf"{file.name}' is not a .* \(its SHA-256 is"):
        load(tmp_path / "x")
    (tmp_path / "x" / "shards.json").unlink()
    whole = len(content) if kind != "tar" else content.index(b"\0" * 1024)  # and zeros behind
    for length in (0, 11, whole // 2, whole - 9):
        file.write_bytes(content[:length])
        with pytest.raises(ValueError, match=rf"{file.name}' is not a whole shard"):
            load(tmp_path / "x", test_percent=0)


@pytest.fixture
def note(packed, tmp_path):
    """The content of a copied shards.json, and a function that writes it and opens the shards."""
    shutil.copytree(packed / "tar", tmp_path / "x")
    file = tmp_path / "x" / "shards.json"
    content = json.loads(file.read_text())
    return content, lambda: (file.write_text(json.dumps(content)), load(tmp_path / "x"))[1]


SPOILED_NOTES = {  # fields of shards.json, or of the first shard
    r"is damaged \(its `classes` was changed": {"classes": ["1", "0"]},
    "its `classes` must be a list": {"classes": {}},
    r"its `splits.train\[0\].bytes` must be an integer": {"bytes": "many"},
    "must name files beside it. Received: '../a.tar'": {"file": "../a.tar"},
    "names for 1 classes": {"classes": ["cat"]},
}


@pytest.mark.parametrize("message", SPOILED_NOTES)
def test_a_note_that_was_changed_or_says_wrong_things_is_refused(note, message):
    (content, read), change = note, SPOILED_NOTES[message]
    if "was changed" not in message:
        del content["checksums"]
    (content if "classes" in change else content["splits"]["train"][0]).update(change)
    with pytest.raises(ValueError, match=f"(shards.json|.tar)'.*{message}"):
        read()


def test_a_damaged_index_is_refused(packed, shard_cache):
    load(packed / "tar", test_percent=0)
    (file,) = shard_cache.glob("*.npz")
    whole = file.read_bytes()
    for place in (0, whole.index(b"offset"), whole.index(b"NUMPY", len(whole) // 3) + 140):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=rf"{file.name}' is damaged .*to rebuild it"):
            load(packed / "tar", test_percent=0)


def test_a_picture_that_a_dictionary_repeats_takes_its_memory_once(tmp_path):
    """1 kB of a file stands for 3 GB."""
    picture = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    schema = pa.schema([("image", picture), ("label", pa.int64())])
    row = {"image": {"bytes": png(7) + bytes(3 * 2**20), "path": "a.png"}, "label": 0}
    path = tmp_path / "a.parquet"
    table = pa.concat_tables([pa.Table.from_pylist([row, row | {"label": 1}] * 25, schema)] * 20)
    parquet.write_table(table, path, compression="zstd", dictionary_pagesize_limit=2**22)
    assert path.stat().st_size < 2**14
    split = load(path, test_percent=0, labeled=False).split("train")
    split.read(0)
    reset_peak()
    before = peak_mb()
    assert split.read(70).max() == 7 and len(split) == 1000
    assert peak_mb() - before < 250


def test_a_long_label_that_a_dictionary_repeats_is_refused(tmp_path):
    row = {"image": png(7), "label": "a" * 2**20}
    table = pa.Table.from_pylist([row] * 100)
    parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    with pytest.raises(ValueError, match="a label takes more than 256 bytes"):
        load(tmp_path)


def test_numbers_of_rows_that_only_sum_to_few_are_refused(tmp_path):
    table, path = pa.Table.from_pylist([{"image": png(7)}] * 201), tmp_path / "a.parquet"
    parquet.write_table(table, path, row_group_size=101)
    content = path.read_bytes()
    # Thrift's 64-bit integers, the last of each group: 101 becomes 8000, and 100 becomes -7900.
    for old, new in ((b"\x16\xca\x01", b"\x16\x80\x7d"), (b"\x16\xc8\x01", b"\x16\xb7\x7b")):
        content = new.join(content.rsplit(old, 1))
    path.write_bytes(content)
    with pytest.raises(ValueError, match="it cannot hold 15900 pictures"):
        load(tmp_path, labeled=False)
