"""Embedders of models and exported files, and how a search knows its model."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from tests.helpers import assert_close, randomize
from vit_keras import retrieval, weights
from vit_keras.commands import run
from vit_keras.models import Preprocessing, VisionTransformer

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def build(seed=0):
    model = VisionTransformer(16, 8, **SIZES)
    model.preprocessing = Preprocessing((0.3,), (0.4,))
    return randomize(model, np.random.default_rng(seed))


def table_of(model, folder, about=None):
    """Embeds six pictures."""
    rng = np.random.default_rng(3)
    (folder / "photos").mkdir(exist_ok=True)
    for i in range(6):
        pixels = rng.integers(0, 256, (16, 16, 3), dtype="uint8")
        Image.fromarray(pixels).save(folder / "photos" / f"{i}.png")
    listed = retrieval.list_pictures([folder / "photos"])
    embedder = retrieval.open_embedder(model)
    job = retrieval.EmbeddingJob(embedder, listed, folder / "a.parquet", about=about or {})
    list(job.run())
    return retrieval.EmbeddingTable(folder / "a.parquet")


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
    model = build()
    weights.save(model, tmp_path / "a.keras")
    export = ["export", str(tmp_path / "a.keras"), "--format", "onnx", "--out"]
    run([*export, str(tmp_path / "files"), "--output", "features"])
    (file,) = (tmp_path / "files").glob("*.onnx")
    images = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3)).astype("float32")
    exported = retrieval.open_embedder(file)
    prepared = exported.preprocessing.normalize(images)
    expected = retrieval.embedding_model(model)(model.preprocessing.normalize(images))
    assert_close(exported.run(prepared), expected, rtol=1e-5)
    with pytest.raises(ValueError, match="takes no `layer` and only `tokens` 'pool'.*'mean'"):
        retrieval.open_embedder(file, tokens="mean")
    manifest = tmp_path / "files" / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"output": "logits"}))
    with pytest.raises(ValueError, match=r"need features. Received: .*which gives classes. Export"):
        retrieval.open_embedder(file)


def test_a_search_refuses_another_model(tmp_path):
    model, other = build(), build(seed=1)
    model.preprocessing = dataclasses.replace(model.preprocessing, rounding="none")
    weights.save(model, tmp_path / "a.keras")
    weights.save(other, tmp_path / "other.keras")
    table = table_of(model, tmp_path, {"model": str(tmp_path / "a.keras")})
    embedder = retrieval.open_query_embedder(table)
    pictures = [tmp_path / "photos" / f"{i}.png" for i in (4, 1)]
    answers = list(retrieval.search_pictures(table, embedder, pictures, count=1))
    assert [answer.matches[0].row for answer in answers] == [4, 1]
    assert all(answer.matches[0].similarity == pytest.approx(1, abs=1e-5) for answer in answers)
    with pytest.raises(ValueError, match=r"needs the model .*other.keras.*weights: '\w+' there"):
        retrieval.open_query_embedder(table, tmp_path / "other.keras")
    other.set_weights(model.get_weights())
    other.preprocessing = dataclasses.replace(model.preprocessing, mean=(0.5,))
    weights.save(other, tmp_path / "other.keras")
    with pytest.raises(ValueError, match=r"preprocessing: .*'mean': \[0.3\].*\[0.5\]"):
        retrieval.open_query_embedder(table, tmp_path / "other.keras")
    other.preprocessing = dataclasses.replace(model.preprocessing, rounding="torchvision")
    weights.save(other, tmp_path / "other.keras")
    with pytest.raises(ValueError, match="'rounding': 'none'.*'rounding': 'torchvision'"):
        retrieval.open_query_embedder(table, tmp_path / "other.keras")
    (tmp_path / "a.keras").rename(tmp_path / "b.keras")
    with pytest.raises(FileNotFoundError, match=r"is not at .*a.keras'. Give its place"):
        retrieval.open_query_embedder(table)
    assert retrieval.open_query_embedder(table, tmp_path / "b.keras").shape == (12,)
