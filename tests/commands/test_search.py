"""`embed` and `search` in each format, beside cosines in NumPy."""

import csv
import html
import json
import shutil

import numpy as np
import pyarrow.parquet
import pytest

from tests.helpers import write_picture
from vit_keras import data, retrieval
from vit_keras.commands import run

pytestmark = pytest.mark.on("torch")

TOP = 3
NAMES = ["0.png", "1 <b>&\", '.png", "2.png", "3.png", "4.png", "5.png"]


def embed(folder):
    words = [str(folder / "small.keras"), f"folder:{folder / 'photos'}"]
    run(["embed", *words, "--out", str(folder / "a.parquet")])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model_file):
    """A model, labeled pictures (one has a name that HTML must escape), and their table."""
    folder, rng = tmp_path_factory.mktemp("search"), np.random.default_rng(0)
    shutil.copy(model_file, folder)
    for kind in ("train/a&b", "train/c", "test/c"):
        for name in NAMES:
            write_picture(folder / "photos" / kind / name, rng)
    embed(folder)
    return folder


def answers_of(folder, queries):
    """(query, [(path, label, row, similarity), …]) of the four queries, from Python."""
    table = retrieval.EmbeddingTable(folder / "a.parquet")
    embedder = retrieval.open_query_embedder(table)
    rows = retrieval.search_rows(table, [7, 2], count=TOP)
    new = retrieval.search_pictures(table, embedder, queries, count=TOP, on_error="skip")
    for row, answer in zip((7, 2), rows):
        assert row not in [match.row for match in answer.matches]
    known = lambda match: (match.picture.path, match.picture.label, match.row, match.similarity)
    return [(answer.query.path, [*map(known, answer.matches)]) for answer in [*rows, *new]]


def test_every_format_says_the_same(folder):
    write_picture(folder / "new" / "query.png", np.random.default_rng(1), (20, 30))
    (folder / "new" / "bad.png").write_bytes(b"not a picture")
    queries = [str(folder / "new" / name) for name in ("query.png", "bad.png")]
    command = ["search", str(folder / "a.parquet"), *queries, "--rows", "7", "2"]
    command += ["--top", str(TOP), "--skip_unreadable"]
    outputs, written = folder / "out", {}
    for suffix in ("csv", "jsonl", "html"):
        run([*command, "--out", str(outputs / f"a.{suffix}")])
    run([*command, "--format", "table", "--out", str(outputs / "a.txt")])
    with open(outputs / "a.csv", newline="") as file:
        for row in csv.DictReader(file):
            matches = written.setdefault(row["query"], [])
            if row["path"]:
                assert int(row["rank"]) == len(matches) + 1
                share = np.float32(row["similarity"])
                matches.append((row["path"], row["label"], int(row["row"]), share))
    lines = [json.loads(line) for line in (outputs / "a.jsonl").read_text().splitlines()]
    known = lambda m: (m["path"], m["label"], m["row"], np.float32(m["similarity"]))
    assert [*written.items()] == [(x["query"], [*map(known, x["matches"])]) for x in lines]
    assert [bool(line["error"]) for line in lines] == [False, False, False, True]
    wanted, text = answers_of(folder, queries), (outputs / "a.txt").read_text()
    page = (outputs / "a.html").read_text()
    for (query, matches), (name, rows) in zip(written.items(), wanted, strict=True):
        assert query == name and [m[:3] for m in matches] == [tuple(r[:3]) for r in rows]
        np.testing.assert_allclose([m[3] for m in matches], [r[3] for r in rows], atol=1e-5)
        shown = [f"  {share:6.3f}  {path}  {label}\n" for path, label, _, share in rows]
        assert f"{name}:{'' if rows else ' '}" in text and "".join(shown) in text
        assert all(f'title="{html.escape(path)}"' in page for path, *_ in rows)


def test_the_same_embed_command_is_complete_and_labels_are_those_of_the_data(folder, capsys):
    embed(folder)
    assert f"already complete: {folder / 'a.parquet'}, 18 pictures" in capsys.readouterr().out
    table = pyarrow.parquet.read_table(folder / "a.parquet")
    assert table.column_names == ["path", "label", "split", "embedding", "error"]
    dataset = data.load(f"folder:{folder / 'photos'}", 3)
    rows = []
    for key, split in dataset.splits.items():
        rows += [(split.name(i), dataset.class_names[k], key) for i, k in enumerate(split.labels)]
    assert [*zip(*(table[name].to_pylist() for name in ("path", "label", "split")))] == rows
