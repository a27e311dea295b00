"""Lists of pictures: files and folders, and the images of a data set."""

import itertools
import os
import pathlib

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import data, retrieval
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.on("torch")


def test_images_of_a_data_set_without_files(tmp_path):
    model = randomize(
        VisionTransformer(8, 4, 12, 1, 3, 20, 5, channels=1), np.random.default_rng(0)
    )
    embedder = retrieval.open_embedder(model)
    listed = retrieval.list_pictures(["digits"], channels=1)
    first = retrieval.PictureList(itertools.islice(listed.pictures, 1433, 1441), listed.read)
    read = lambda number, *rest: listed.read(number + 1433, *rest)
    job = retrieval.EmbeddingJob(embedder, first._replace(read=read), tmp_path / "a.parquet")
    list(job.run())
    table = retrieval.EmbeddingTable(tmp_path / "a.parquet")
    dataset = data.load("digits", 1)
    train, test = dataset.split("train"), dataset.split("test")
    assert len(train) == 1437  # so that both splits are read
    images = np.stack([*map(train.read, range(1433, 1437)), *map(test.read, range(4))])
    expected = to_numpy(retrieval.embedding_model(model)((images / 127.5 - 1).astype("float32")))
    assert_close(table.embeddings(range(8))[0], expected)
    rows = table.pictures(range(8))
    assert rows[5].path == "digits test[1]" and rows[5].label == str(test.labels[1])


def test_pictures_are_listed_as_the_arguments_say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("cat/0.png", "cat/1.png", "dog/0.png"):
        path = pathlib.Path("photos", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    paths = lambda *names: [p.path for p in retrieval.list_pictures(names).pictures]
    assert paths("photos") == [f"photos/{name}.png" for name in ("cat/0", "cat/1", "dog/0")]
    assert paths("folder:photos/cat") == paths("photos/cat")  # no folders of classes
    assert paths("photos/dog", "photos") == paths("photos/dog") + paths("photos/cat")
    with pytest.raises(ValueError, match="stand alone. Received: 'digits' beside 'photos'"):
        paths("photos", "digits")
    pathlib.Path("digits").mkdir()
    with pytest.raises(ValueError, match=r"must hold .*Received: 'digits', with none"):
        paths("digits")
    with pytest.raises(FileNotFoundError, match="no picture and no folder at 'nowhere'"):
        paths("nowhere")
    os.rename("photos/cat", "cat")
    assert len(paths("photos")) == 1
