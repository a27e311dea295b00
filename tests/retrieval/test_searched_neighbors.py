"""Neighbors, from the graph and from all rows, beside scikit-learn's."""

import json
import pathlib
import re

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from benchmarks.search_recall import clusters, normal, planes, write_table
from tests.helpers import assert_close
from vit_keras import retrieval
from vit_keras.retrieval import tables

pytestmark = pytest.mark.on("torch")


def expected(vectors, queries, count):
    """The nearest rows by cosine distance, and their similarities."""
    search = NearestNeighbors(n_neighbors=count, metric="cosine", algorithm="brute").fit(vectors)
    distances, rows = search.kneighbors(queries)
    return rows, 1 - distances


@pytest.fixture
def small_is_large(monkeypatch):
    monkeypatch.setattr(tables, "EXACT_NUMBERS", 5500)


def test_exact_neighbors_are_those_of_scikit_learn(tmp_path):
    rng = np.random.default_rng(0)
    vectors, queries = (rng.normal(size=(n, 7)) * rng.lognormal(size=(n, 1)) for n in (300, 20))
    table = write_table(tmp_path / "a.parquet", vectors.astype("float32"), piece=64)
    rows, similarities = expected(vectors, queries, 9)
    answers = retrieval.exact_neighbors(table, queries, 9)
    for found, wanted, shares in zip(answers, rows, similarities, strict=True):
        np.testing.assert_array_equal(found.rows, wanted)
        assert_close(found.similarities, shares)
    assert len(retrieval.exact_neighbors(table, queries, 500)[0].rows) == 300


@pytest.mark.parametrize("kind", [clusters, planes])
def test_the_index_finds_95_percent_by_default(kind, tmp_path, small_is_large):
    vectors = kind(np.random.default_rng(1), 3200, 48).astype("float32")
    queries, vectors = vectors[:200], vectors[200:]
    index = retrieval.open_index(write_table(tmp_path / "a.parquet", vectors))
    rows, similarities = expected(vectors, queries, 10)
    answers = index.search(queries, 10)
    assert np.mean([np.isin(row, a.rows).mean() for row, a in zip(rows, answers)]) >= 0.95
    for answer, shares in zip(answers, similarities):
        assert (np.diff(answer.similarities) <= 0).all() and len(set(answer.rows)) == 10
        assert answer.similarities[0] <= shares[0] + 1e-5
    found = np.concatenate([answer.rows for answer in index.search(vectors, 1)])
    assert (found == np.arange(3000)).mean() >= 0.99


@pytest.mark.parametrize("suffix", ["", ".index"])
def test_a_damaged_table_or_index_is_refused_by_name(tmp_path, small_is_large, suffix):
    vectors = normal(np.random.default_rng(6), 1500, 8).astype("float32")
    table = write_table(tmp_path / "a.parquet", vectors)
    retrieval.open_index(table)
    file = pathlib.Path(f"{table.path}{suffix}")
    content = bytearray(file.read_bytes())
    content[len(content) // 5] ^= 1
    for damaged in (content, content[:-100]):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=rf"{re.escape(str(file))}' (is dam|cannot be read)"):
            retrieval.open_index(retrieval.EmbeddingTable(table.path))
    if suffix:
        index = retrieval.open_index(table, rebuild=True)
        assert index.search(vectors[:1], 3)[0].rows[0] == 0


def table_of(path, vectors, errors, about, said=None):
    """A table of vectors of six numbers, whose description may be another one."""
    schema = tables.schema([6], about["dtype"], about)
    pictures = [retrieval.Picture(f"{i}.png") for i in range(len(vectors))]
    note = {tables.METADATA: json.dumps(about if said is None else said)}
    rows = tables.table_of(schema, pictures, vectors, errors).replace_schema_metadata(note)
    tables.write(path, schema.with_metadata(note), [rows])
    return retrieval.EmbeddingTable(path)


def test_rows_without_an_embedding_are_no_neighbors(tmp_path, small_is_large):
    vectors = normal(np.random.default_rng(5), 1200, 6).astype("float16")
    errors = ["cannot be read" if i % 7 == 0 else None for i in range(1200)]
    about = {"shape": [6], "dtype": "float16"}
    table = table_of(tmp_path / "a.parquet", vectors, errors, about)
    known = np.array([i for i in range(1200) if i % 7])
    rows, similarities = expected(vectors[known].astype("float32"), vectors[:30], 4)
    index = retrieval.open_index(table)
    exact = retrieval.exact_neighbors(table, vectors[:30], 4)
    for answer, wanted, shares in zip(exact, known[rows], similarities, strict=True):
        np.testing.assert_array_equal(answer.rows, wanted)
        np.testing.assert_allclose(answer.similarities, shares, atol=2e-3)
    graph = np.stack([answer.rows for answer in index.search(vectors[:30], 4)])
    assert np.isin(graph, known).all()
    # The graph differs from build to build: its threads add rows in any order.
    assert np.mean([np.isin(row, found).mean() for row, found in zip(known[rows], graph)]) >= 0.95
    assert table.count_errors() == 172


def test_a_table_that_lies_is_refused(tmp_path):
    good, vectors = {"shape": [6], "dtype": "float32"}, np.ones((3, 6), "float32")
    write = lambda *said: table_of(tmp_path / "a.parquet", vectors, [None] * 3, good, *said)
    lies = ([10**9], [3], [6, 10**9], [], [-6, -1])
    for description in (*({**good, "shape": shape} for shape in lies), {"shape": [6]}):
        with pytest.raises(ValueError, match="must have the columns|needs.*dtype|dtype"):
            write(description)
    vectors[1, 2] = np.nan
    with pytest.raises(ValueError, match="a.parquet' holds embeddings that are not finite"):
        retrieval.search_rows(write(), [0])
