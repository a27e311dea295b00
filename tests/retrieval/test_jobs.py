"""A job of embedding: its table beside the model's own outputs, stops at any part, and changes."""

import itertools

import numpy as np
import pytest
from PIL import Image

from tests.helpers import assert_close, killed_before, to_numpy, write_picture
from tests.retrieval.test_embedder import build
from vit_keras import models, retrieval
from vit_keras.retrieval import embedder

pytestmark = pytest.mark.on("torch")

BATCH, ROWS = 4, 8  # of a part


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture
def pictures(tmp_path):
    """23 pictures in two folders of classes."""
    rng, paths = np.random.default_rng(2), []
    for i in range(23):
        paths.append(tmp_path / "photos" / ("cat" if i % 3 else "dog") / f"{i:02}.png")
        write_picture(paths[-1], rng, (16, 24))
    return sorted(paths)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(embedder, "PART_ROWS", ROWS)


def job_of(model, folder, out, tokens="pool", normalize=False, **options):
    made = retrieval.open_embedder(model, tokens=tokens, normalize=normalize)
    listed = retrieval.list_pictures([folder])
    return retrieval.EmbeddingJob(made, listed, out, **{"batch": BATCH, **options})


def outputs_of(model, paths, layer):
    pixels = np.stack([np.asarray(Image.open(path), "float32") for path in paths])
    images = ((pixels / 255 - 0.3) / 0.4).astype("float32")
    return to_numpy(models.intermediates(model)(images)[layer])


@pytest.mark.parametrize("tokens", ["pool", "class", "mean", "patches"])
def test_a_table_holds_what_the_model_puts_out(model, pictures, tmp_path, tokens):
    out, normalize = tmp_path / "new" / "a.parquet", tokens in ("class", "mean")
    dtype = "float16" if tokens == "mean" else "float32"
    job = job_of(model, tmp_path / "photos", out, tokens, normalize, dtype=dtype)
    assert sum(job.run()) == len(pictures) == job.done == job.total
    tokens_out = outputs_of(model, pictures, "encoder_norm")
    expected = {
        "pool": tokens_out[:, 0],
        "class": tokens_out[:, 0],
        "mean": tokens_out[:, 1:].mean(axis=1),
        "patches": tokens_out[:, 1:].reshape(-1, 2, 3, 12),
    }[tokens]
    if normalize:
        expected = expected / np.linalg.norm(expected, axis=-1, keepdims=True)
    table = retrieval.EmbeddingTable(out)
    starts, values, present = zip(*table.pieces())
    assert starts == (0, 8, 16) and np.concatenate(present).all() and len(table) == 23
    assert_close(np.concatenate(values), expected, {"float32": 4e-6, "float16": 1e-3}[dtype])
    some, _ = table.embeddings([20, 3, 9, 3])
    np.testing.assert_array_equal(some, np.concatenate(values)[[20, 3, 9, 3]])
    listed = table.pictures([20, 3, 9])
    assert [picture.path for picture in listed] == [str(pictures[i]) for i in (20, 3, 9)]
    assert not job.folder.exists()


def test_a_job_that_is_killed_again_and_again_ends_with_the_same_bytes(model, pictures, tmp_path):
    killed, whole = tmp_path / "killed.parquet", tmp_path / "whole.parquet"
    done, operations = [], 0
    while not killed.exists():
        operations += 6
        with killed_before(operations):
            list(job_of(model, tmp_path / "photos", killed).run())
        done.append(job_of(model, tmp_path / "photos", killed).done)
    assert {ROWS, 2 * ROWS} & {*done} and sorted(done) == done
    list(job_of(model, tmp_path / "photos", whole).run())
    assert killed.read_bytes() == whole.read_bytes()


def test_an_unreadable_picture_stops_or_has_a_row(model, pictures, tmp_path):
    pictures[9].write_bytes(b"not a picture")
    out, photos = tmp_path / "a.parquet", tmp_path / "photos"
    with pytest.raises(ValueError, match=r"\.png' cannot be read as an image"):
        list(job_of(model, photos, out).run())
    job = job_of(model, photos, out, on_error="skip")
    assert job.done == 8  # the part before it is complete
    list(job.run())
    table = retrieval.EmbeddingTable(out)
    values, present = table.embeddings(range(23))
    assert table.count_errors() == 1 and np.flatnonzero(~present).tolist() == [9]
    readable = [path for path in pictures if path != pictures[9]]
    expected = outputs_of(model, readable, "token")
    assert_close(values[present], expected)


def test_what_has_changed_is_named(model, pictures, tmp_path):
    photos, out = tmp_path / "photos", tmp_path / "a.parquet"
    stopped = job_of(model, photos, out).run()
    list(itertools.islice(stopped, 3))
    stopped.close()

    def assert_refused(message, other=model, **options):
        with pytest.raises(ValueError, match=message):
            job_of(other, photos, out, **options)

    assert_refused(r"a\.parquet\.parts' belongs .*batch: 4 there, 5 here", batch=5)
    assert_refused(r"tokens: 'pool' there, 'mean' here.*another --out", tokens="mean")
    content = pictures[12].read_bytes()
    pictures[12].write_bytes(content + b" ")
    assert_refused(r"another job \(pictures: .*'count': 23.*'count': 23")
    pictures[12].write_bytes(content)
    list(job_of(model, photos, out).run())
    assert_refused(r"was made by another job .*normalize: False there", normalize=True)
    pictures[0].unlink()
    assert_refused(r"was made by another job .*'count': 23.*'count': 22")
