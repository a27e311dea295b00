"""Embedding models, embedders of models and exported files, and lists of pictures to embed."""

import dataclasses
import itertools
import json
import pathlib

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, write_picture
from vit_keras import data, exporting, models, retrieval, weights
from vit_keras.models import Preprocessing, ResNet, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def build(classifier="token", seed=0, **more):
    model = VisionTransformer((16, 24), 8, **SIZES, classifier=classifier, **more)
    model.preprocessing = Preprocessing((0.3,), (0.4,))
    return randomize(model, np.random.default_rng(seed))


def images_for(model, count=3):
    return np.random.default_rng(1).normal(size=(count, *model.input_shape[1:])).astype("float32")


def outputs_of(model, images):
    outputs = models.intermediates(model)(images)
    return {name: to_numpy(x) for name, x in outputs.items()}


@pytest.mark.parametrize("classifier", ["token", "gap", "map", "gap_norm"])
def test_pool_is_what_the_head_reads(classifier):
    model = build(classifier, representation_size=7)
    images = images_for(model)
    expected = outputs_of(model, images)["pre_logits"]
    embedding = retrieval.embedding_model(model)
    assert_close(embedding(images), expected, rtol=2e-6)
    layer = {"token": "token", "gap": "gap", "map": "MAPHead_0", "gap_norm": "encoder_norm"}
    named = retrieval.embedding_model(model, layer[classifier])
    expected = outputs_of(model, images)[layer[classifier]]
    assert_close(named(images), expected, rtol=2e-6)


def test_feature_maps_of_resnets():
    network = randomize(ResNet(32, (1, 1), 0.5, 5), np.random.default_rng(0), 0.1)
    images = images_for(network, 2)
    x = outputs_of(network, images)["relu"]
    patches = to_numpy(retrieval.embedding_model(network, tokens="patches")(images))
    assert_close(patches, x, rtol=2e-6)
    mean = to_numpy(retrieval.embedding_model(network, "block1", "mean")(images))
    expected = outputs_of(network, images)["block1"].mean(axis=(1, 2))
    assert_close(mean, expected)


def test_the_same_weights_are_known_in_every_file(tmp_path):
    """The description is equal on all backends, for it is compared with this one."""
    model = build()
    weights.save(model, tmp_path / "a.keras")
    weights.save(model, tmp_path / "a.safetensors", format="timm")
    embedder = retrieval.open_embedder(model)
    assert retrieval.open_embedder(tmp_path / "a.keras").description == embedder.description
    loaded = retrieval.open_embedder(tmp_path / "a.safetensors", tokens="mean")
    assert loaded.description["weights"] == embedder.description["weights"]
    other = retrieval.open_embedder(build(seed=1)).description
    assert {k for k in other if other[k] != embedder.description[k]} == {"weights"}


def test_exported_features_are_embeddings(tmp_path):
    model, file = build(), tmp_path / "files" / "model.onnx"
    options = {"formats": ["onnx"], "output": "features"}
    exporting.export(model, tmp_path / "files", **options)
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 24, 3)).astype("float32")
    exported = retrieval.open_embedder(file)
    prepared = exported.preprocessing.normalize(images)
    expected = retrieval.embedding_model(model)(model.preprocessing.normalize(images))
    assert_close(exported.run(prepared), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="takes no `layer` and only tokens='pool'.*'mean'"):
        retrieval.open_embedder(file, tokens="mean")
    manifest = tmp_path / "files" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"output": "logits"}))
    with pytest.raises(ValueError, match=r"give features. Received: .*which gives classes. Exp"):
        retrieval.open_embedder(file)


def test_a_search_refuses_another_model(tmp_path, rng):
    model, other = build(), build(seed=1)
    model.preprocessing = dataclasses.replace(model.preprocessing, rounding="none")
    weights.save(model, tmp_path / "a.keras")
    pictures = [tmp_path / "photos" / f"{i}.png" for i in range(6)]
    for path in pictures:
        write_picture(path, rng, (16, 24))
    listed, about = retrieval.list_pictures([tmp_path / "photos"]), {"model": f"{tmp_path}/a.keras"}
    made, out = retrieval.open_embedder(model), tmp_path / "a.parquet"
    list(retrieval.EmbeddingJob(made, listed, out, about=about).run())
    table = retrieval.EmbeddingTable(out)
    embedder = retrieval.open_query_embedder(table)
    answers = list(retrieval.search_pictures(table, embedder, [pictures[4], pictures[1]], count=1))
    assert [answer.matches[0].row for answer in answers] == [4, 1]
    assert all(answer.matches[0].similarity == pytest.approx(1, abs=1e-5) for answer in answers)
    changes = [
        (None, r"needs the model .*other.keras.*weights: '\w+' there"),
        ({"mean": (0.5,)}, r"preprocessing: .*'mean': \[0.3\].*\[0.5\]"),
    ]
    for fields, message in changes:
        if fields:
            other.set_weights(model.get_weights())
            other.preprocessing = dataclasses.replace(model.preprocessing, **fields)
        weights.save(other, tmp_path / "other.keras")
        with pytest.raises(ValueError, match=message):
            retrieval.open_query_embedder(table, tmp_path / "other.keras")
    (tmp_path / "a.keras").rename(tmp_path / "b.keras")
    with pytest.raises(FileNotFoundError, match=r"a\.keras'$"):
        retrieval.open_query_embedder(table)
    assert retrieval.open_query_embedder(table, tmp_path / "b.keras").shape == (12,)
    del table.description["model"]
    with pytest.raises(ValueError, match=r"a\.parquet' does not say which model made it. Give"):
        retrieval.open_query_embedder(table)


def test_images_of_a_data_set_without_files(tmp_path):
    model = VisionTransformer(8, 4, **SIZES, channels=1)
    randomize(model, np.random.default_rng(0))
    listed, numbers = retrieval.list_pictures(["digits"], channels=1), range(1433, 1441)
    some = [*itertools.islice(listed.pictures, numbers.start, numbers.stop)]  # of both splits
    read = lambda number, *rest: listed.read(numbers[number], *rest)
    made, pictures = retrieval.open_embedder(model), retrieval.PictureList(some, read)
    list(retrieval.EmbeddingJob(made, pictures, tmp_path / "a.parquet").run())
    table, dataset = retrieval.EmbeddingTable(tmp_path / "a.parquet"), data.load("digits", 1)
    train, test = dataset.split("train"), dataset.split("test")
    images = np.stack([*map(train.read, range(1433, 1437)), *map(test.read, range(4))])
    expected = to_numpy(retrieval.embedding_model(model)((images / 127.5 - 1).astype("float32")))
    assert_close(table.embeddings(range(8))[0], expected)
    row = table.pictures(range(8))[5]
    assert row.path == "digits test[1]" and row.label == str(test.labels[1])


def test_pictures_are_listed_as_the_arguments_say(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    for name in ("cat/0.png", "cat/1.png", "dog/0.png"):
        write_picture(tmp_path / "photos" / name, rng)
    pathlib.Path("digits").mkdir()
    paths = lambda *names: [p.path for p in retrieval.list_pictures(names).pictures]
    assert paths("photos") == [f"photos/{name}.png" for name in ("cat/0", "cat/1", "dog/0")]
    assert paths("folder:photos/cat") == paths("photos/cat")  # no folders of classes
    splits = {"cat/0": "train", "dog/0": "train", "cat/1": "a+b"}  # any text names a split
    rows = [f"photos/{name}.png,{name[:3]},{split}" for name, split in splits.items()]
    pathlib.Path("rows.csv").write_text("\n".join(["path,label,split", *rows]))
    listed = [
        (p.path, p.label, p.split) for p in retrieval.list_pictures(["table:rows.csv"]).pictures
    ]
    expected = [(f"{tmp_path}/photos/{name}.png", name[:3], of) for name, of in splits.items()]
    assert listed == expected
    assert paths("photos/dog", "photos") == paths("photos/dog") + paths("photos/cat")
    with pytest.raises(ValueError, match="must be the only argument. Received: photos, folder:"):
        paths("photos", "folder:photos")
    with pytest.raises(ValueError, match=r"must lead to pictures .*: 'digits', which leads to"):
        paths("digits")  # the folder
