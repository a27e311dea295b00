"""Which shards are read, and how labels, splits and indexes are made of them."""

import io
import json
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.data.gray_pictures import grays
from tests.data.gray_shards import load, png, samples, write_tar
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.shards import expand_braces

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("shard_cache")]


def test_names_say_the_splits(tmp_path):
    for place, values in {
        "pets-train-000.tar": range(5),
        "pets-train-001.tar": range(5, 7),
        "pets-validation-000.tar": range(10, 14),
        "train/dogs.tar": (20, 21),
        "val/dogs.tar": (22, 23),
    }.items():
        write_tar(tmp_path / place, samples(values))
    dataset = load(tmp_path)
    assert list(dataset.splits) == ["train", "validation"] and dataset.class_names == ("0", "1")
    assert grays(dataset.split("train")) == [*range(7)]
    assert grays(dataset.split("test")) == [*range(10, 14)]
    assert grays(load(tmp_path / "pets-train-{000..001}.tar", test_percent=0).split("train")) == [
        *range(7)
    ]
    nested = load(tmp_path / "{train,val}/*.tar")
    assert grays(nested.split("train")) == [20, 21] and grays(nested.split("val")) == [22, 23]
    assert nested.split("val").name(1) == f"{tmp_path}/val/dogs.tar record 1"


def test_shards_without_labels_are_for_runs_without(tmp_path):
    write_tar(tmp_path / "a.tar", [(f"{i}.png", png(i)) for i in range(4)])
    with pytest.raises(ValueError, match=r"must have a class. Received: .*a.tar record 0 without"):
        load(tmp_path)
    dataset = load(tmp_path, labeled=False, test_percent=0)
    assert dataset.class_names == () and grays(dataset.split("train")) == [0, 1, 2, 3]


def test_data_sets_of_hugging_face_are_read(tmp_path):
    """Their layout: a struct of bytes and path, names of classes in the schema or as labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"bytes": png(i), "path": None} for i in range(7)]
    note = {"info": {"features": {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}}}}
    table = pa.table({"image": rows, "label": [0, 1, 1, 0, 1, 0, 0], "kind": [*"baabcab"]})
    path = tmp_path / "train-00000-of-00001.parquet"
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(note)}), path, row_group_size=3
    )
    dataset = load(path, test_percent=0)
    assert dataset.class_names == ("cat", "dog")
    train = dataset.split("train")
    assert grays(train) == [*range(7)] and train.labels.tolist() == [0, 1, 1, 0, 1, 0, 0]
    named = load(path, test_percent=0, label_columns="kind")
    assert named.class_names == ("a", "b", "c")
    assert named.split("train").labels.tolist() == [1, 0, 0, 1, 2, 0, 1]
    with pytest.raises(ValueError, match="train-00000-of-00001.parquet.* no column 'breed'"):
        load(path, label_columns="breed")


def test_braces_stand_for_names():
    assert expand_braces("a-{08..11}.{x,yz}") == [
        f"a-{number}.{suffix}" for number in ("08", "09", "10", "11") for suffix in ("x", "yz")
    ]
    for pattern in ("a{0..99999999}", "a{3..1}", "{0..9999}{0..9999}"):
        with pytest.raises(ValueError, match=r"million|range in a pattern|1000000 shards"):
            expand_braces(pattern)


def test_names_of_no_shards_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*a-000.tar'"):
        load(tmp_path / "a-{000..003}.tar")
    for pattern, remedy in {
        "a.tar.gz": "with a.tar.gz. Unpack compressed files",
        "a.tar b.tgz": "with b.tgz. Unpack compressed files",
        "a.tar b.parquet": "with (tar, parquet|parquet, tar). .*name files of one",
        "a.zip README.md": "with README.md, a.zip. .*name files of one, such as shards:FOLDER/",
    }.items():
        shutil.rmtree(tmp_path / "x", ignore_errors=True)
        for name in pattern.split():
            write_tar(tmp_path / "x" / name, samples([1]))
        for folder in ("x", "x/*"):
            with pytest.raises(ValueError, match=f"must be files of one format.*{remedy}"):
                load(tmp_path / folder)
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="must be files of one format.*/none' with no files"):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    ("members", "column", "names", "labels"),
    [
        ([{"cls": "dog"}, {"cls": " cat\n"}, {"cls": "dog"}], (), ("cat", "dog"), [1, 0, 1]),
        ([{"cls": "\ufeffK\u00e4fer"}, {"cls": "2a"}], (), ("2a", "K\u00e4fer"), [1, 0]),
        ([{"cls.txt": "2"}, {"cls.txt": "0"}], (), ("0", "1", "2"), [2, 0]),
        ([{"label": "b", "json": "{"}, {"label.txt": "a"}], (), ("a", "b"), [1, 0]),
        ([{"json": '{"label": 3}'}, {"json": '{"label": 1.0}'}], (), tuple("0123"), [3, 1]),
        ([{"json": '{"label": "cat"}'}, {"json": '{"cls": "ant"}'}], (), ("ant", "cat"), [1, 0]),
        ([{"meta.json": '{"class": "b", "id": 7}'}, {"class": "a"}], (), ("a", "b"), [1, 0]),
        ([{"json": '{"breed": "b"}', "cls": "9"}, {"breed": "a"}], "breed", ("a", "b"), [1, 0]),
        ([{"txt": "b c"}, {"TXT": "a"}], "txt", ("a", "b c"), [1, 0]),
    ],
)
def test_members_of_tar_files_say_the_class(tmp_path, members, column, names, labels):
    files = []
    for number, of_record in enumerate(members):
        files.append((f"{number}.png", png(number)))
        files += [(f"{number}.{suffix}", text.encode()) for suffix, text in of_record.items()]
    write_tar(tmp_path / "a.tar", files)
    dataset = load(tmp_path, test_percent=0, label_columns=column)
    assert dataset.class_names == names
    assert dataset.split("train").labels.tolist() == labels
    assert grays(dataset.split("train")) == [*range(len(members))]


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("a.png", png(1)), ("a.txt", b"a cat")], r"must have a class.*Name the labels in"),
        (
            [("a.png", png(1)), ("a.json", b'{"kind": 3, "label": [1, 2]}')],
            r"must have a class.*Name the labels in",
        ),
        ([("a.v2.png", png(1)), ("a.cls", b"1")], "hold pictures.*none"),
    ],
)
def test_shards_without_classes_or_pictures_are_refused(tmp_path, members, message):
    write_tar(tmp_path / "a.tar", members)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_the_root_of_a_repository_stands_for_its_shards(tmp_path):
    write_tar(tmp_path / "data" / "train-00000-of-00001.tar", samples(range(4)))
    write_tar(tmp_path / "data" / "test-00000-of-00001.tar", samples(range(4, 6)))
    for name in ("README.md", ".gitattributes", ".git/x.tar", "docs/index.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    dataset = load(tmp_path)
    assert grays(dataset.split("train")) == [*range(4)] and grays(dataset.split("test")) == [4, 5]
    (tmp_path / "data").rename(tmp_path / "train")
    write_tar(tmp_path / "val" / "0.tar", samples((7, 8)))
    assert grays(load(tmp_path).split("val")) == [7, 8]
    (tmp_path / "train").rename(tmp_path / "cats")
    with pytest.raises(
        ValueError, match=r"in cats, val. Give one of them, such as shards:.*/cats$"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            "is a pointer of Git LFS. Run `git lfs",
        ),
        (b"\x1f\x8b\x08\0" + bytes(600), r"is not a whole shard \("),
        (b"<!DOCTYPE html><html>", "is a web page. Download the file itself"),
    ],
)
@pytest.mark.parametrize("kind", ["tar", "parquet", "tfrecord", "array_record"])
def test_what_came_in_place_of_a_shard_is_named(tmp_path, kind, content, message):
    (tmp_path / f"a.{kind}").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a.{kind}' {message}"):
        load(tmp_path)


def test_pictures_are_reduced_once(tmp_path, rng):
    for name, size in {"a/1.png": (60, 40), "a/2.png": (10, 30), "b/3.jpg": (32, 64)}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pixels = rng.integers(0, 256, (*size, 3), dtype="uint8")
        Image.fromarray(pixels).save(tmp_path / name)
    folder = data.load(f"folder:{tmp_path}", 3, DataConfig(test_percent=0))
    data.pack_shards(folder, tmp_path / "shards", format="parquet", image_size=20)
    reduced = load(tmp_path / "shards", test_percent=0).split("train")
    for i, name in enumerate(folder.split("train").name(i) for i in range(3)):
        encoded, _ = reduced.encoded(i)
        if name.endswith("2.png"):
            assert encoded == (tmp_path / "a" / "2.png").read_bytes()
            continue
        picture = Image.open(io.BytesIO(encoded))
        assert picture.size == ((20, 30) if name.endswith("1.png") else (40, 20))
        expected = Image.open(name).convert("RGB").resize(picture.size, Image.BICUBIC)
        difference = np.subtract(np.asarray(picture), np.asarray(expected), dtype="int32")
        assert np.abs(difference).mean() < 4


def test_packing_refuses_what_it_would_spoil(packed, tmp_path):
    dataset = load(packed / "tar", test_percent=0)
    with pytest.raises(ValueError, match="must be a new or an empty folder. Received: '.*tar'"):
        data.pack_shards(dataset, packed / "tar")
    with pytest.raises(ValueError, match="must be one of 'tar', 'parquet'.*Received: format='zip'"):
        data.pack_shards(dataset, tmp_path / "x", format="zip")
    assert not (tmp_path / "x").exists()


def test_names_stand_for_themselves_where_there_is_such_a_file(tmp_path, monkeypatch):
    """Signs of patterns, hidden files, links and relative paths."""
    for name, values in {"x{1,2}/a[1].tar": (1, 2), "y/.a.tar": (8, 9), "y/b.tar": (3, 4)}.items():
        write_tar(tmp_path / name, samples(values))
    for pattern in ("x{1,2}", "x{1,2}/a[1].tar"):
        assert grays(load(tmp_path / pattern, test_percent=0).split("train")) == [1, 2]
    monkeypatch.chdir(tmp_path)
    for pattern in ("y", "y/*", "./y/b.tar", "y/[a-c].tar", "y/?.tar"):
        split = load(pattern, test_percent=0).split("train")
        assert grays(split) == [3, 4] and split.name(1) == f"{tmp_path}/y/b.tar record 1"
    (tmp_path / "z").mkdir()
    (tmp_path / "z" / "b.tar").symlink_to("../y/b.tar")
    assert grays(load("z", test_percent=0).split("train")) == [3, 4]
    write_tar(tmp_path / "y" / "b.tar", samples((5, 6)))  # the link is as old as before
    assert grays(load("z", test_percent=0).split("train")) == [5, 6]
    (tmp_path / "y" / "c.tar").mkdir()
    with pytest.raises(FileNotFoundError, match=r"There is no file '.*y/c.tar', but a directory"):
        load("y")
