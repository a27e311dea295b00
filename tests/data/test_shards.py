"""Shards of every format hold what the folder holds: the same batches, bit for bit."""

import json

import numpy as np
import pytest
from PIL import Image

from vit_keras import data
from vit_keras.config import AugmentConfig
from vit_keras.models import Preprocessing
from vit_keras.support.files import sha256

pytestmark = pytest.mark.once

FORMATS = ("tar", "parquet", "tfrecord", "array_record")
IMAGES = {"image_size": (16, 16), "preprocessing": Preprocessing()}
COUNTS = {"ant": 30, "bee": 12, "cat": 8}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Fifty pictures of three classes, of several formats, and their shards of each format."""
    rng, root = np.random.default_rng(3), tmp_path_factory.mktemp("shards")
    for name, count in COUNTS.items():
        (root / "folder" / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (20 + i % 5, 24, 3), dtype="uint8")
            suffix = ("jpg", "png", "webp")[i % 3]
            Image.fromarray(pixels).save(root / "folder" / name / f"{i}.{suffix}")
    folder = data.load(f"folder:{root / 'folder'}", 3)
    for kind in FORMATS:
        data.pack_shards(folder, root / kind, format=kind)
    return root


def small_shards(dataset, folder, kind, monkeypatch):
    """Packs a data set into several shards of unequal numbers of pictures."""
    from vit_keras.data.shards import packing

    monkeypatch.setattr(packing, "MEGABYTE", 1000)
    return data.pack_shards(dataset, folder, format=kind, shard_mb=10)


def train_batches(dataset, start_step=0, shard=(0, 1), **changes):
    return data.train_batches(
        dataset.split("train"),
        **IMAGES,
        batch=8,
        augment_config=AugmentConfig(crop="inception", flip=True, mixup_alpha=0.2),
        seed=5,
        start_step=start_step,
        total_steps=9,
        num_classes=3,
        shard=shard,
        **changes,
    )


def assert_equal(batches, others):
    for batch, other in zip(batches, others, strict=True):
        for one, two in zip(batch, other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.fixture(scope="module")
def expected(root):
    """The folder, and its batches."""
    folder = data.load(f"folder:{root / 'folder'}", 3)
    return folder, [tuple(map(np.asarray, batch)) for batch in train_batches(folder)]


@pytest.mark.parametrize("kind", FORMATS)
def test_shards_give_the_batches_of_the_folder(root, expected, kind, tmp_path, monkeypatch):
    folder, batches = expected
    manifest = small_shards(folder, tmp_path / "shards", kind, monkeypatch)
    counts = [entry["images"] for entry in manifest["splits"]["train"]]
    assert len(counts) > 2 and len(set(counts)) > 1 and sum(counts) == 45
    dataset = data.load(f"shards:{tmp_path / 'shards'}", 3)
    assert dataset.class_names == folder.class_names and not dataset.held_out_by
    for name in ("train", "test"):
        split, other = dataset.split(name), folder.split(name)
        np.testing.assert_array_equal(split.labels, other.labels)
        for i in range(len(other)):
            assert split.encoded(i) == other.encoded(i)
    rank, rows = (1, slice(4, 8)) if kind != "parquet" else (0, slice(0, 4))  # of two processes
    part = [tuple(x[rows] for x in batch) for batch in batches[3:]]
    assert_equal(train_batches(dataset, start_step=3, shard=(rank, 2)), part)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", FORMATS)
def test_a_run_on_shards_may_stop_and_be_judged(root, expected, kind):
    folder, batches = expected
    dataset = data.load(f"shards:{root / kind}", 3)
    assert_equal(train_batches(dataset), batches)
    assert_equal(train_batches(dataset, start_step=6), batches[6:])
    held_out = [data.eval_batches(d.split("test"), **IMAGES, batch=4) for d in (dataset, folder)]
    assert_equal(*held_out)


@pytest.mark.parametrize("kind", FORMATS)
def test_hashes_and_counts_are_those_of_the_files(root, kind):
    manifest = json.loads((root / kind / "shards.json").read_text())
    assert manifest["classes"] == list(COUNTS) and manifest["format"] == kind
    entries = [entry for of_split in manifest["splits"].values() for entry in of_split]
    assert sorted(entry["file"] for entry in entries) == sorted(
        path.name for path in (root / kind).iterdir() if path.name != "shards.json"
    )
    for entry in entries:
        path = root / kind / entry["file"]
        assert entry["bytes"] == path.stat().st_size and entry["sha256"] == sha256(path)
