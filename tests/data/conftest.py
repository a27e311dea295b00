"""Fixtures for shards."""

import pytest

from tests.data.gray_shards import load, samples, write_tar
from vit_keras import data
from vit_keras.data.shards.formats import FORMATS


@pytest.fixture
def shard_cache(tmp_path, monkeypatch):
    """An empty cache of indexes."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "vit_keras" / "shards"


@pytest.fixture(scope="session")
def packed(tmp_path_factory):
    """Shards of each format with 20 pictures."""
    root = tmp_path_factory.mktemp("packed")
    write_tar(root / "source" / "train.tar", samples(range(20)))
    dataset = load(root / "source", test_percent=0)
    for kind in FORMATS:
        data.pack_shards(dataset, root / kind, format=kind)
    return root
