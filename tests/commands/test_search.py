"""`embed` and `search` in each format, beside cosines in NumPy."""

import csv
import io
import json

import numpy as np
import pyarrow.parquet
import pytest
from PIL import Image

import vit_keras
from tests.helpers import randomize, to_numpy
from vit_keras import commands, data, models, retrieval
from vit_keras.commands import run
from vit_keras.models import VisionTransformer
from vit_keras.weights import save_model

pytestmark = pytest.mark.on("torch")

TOP = 3
NAMES = ["0.png", "1 <b>&\", '.png", "2.png", "3.png", "4.png", "5.png"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, labeled pictures (one has a name that HTML must escape), and their table."""
    folder, rng = tmp_path_factory.mktemp("search"), np.random.default_rng(0)
    model = randomize(VisionTransformer(16, 8, 24, 2, 3, 40, 4, name="small"), rng)
    save_model(model, folder / "small.keras")
    for kind in ("train/a&b", "train/c", "test/c"):
        (folder / "photos" / kind).mkdir(parents=True)
        for name in NAMES:
            pixels = rng.integers(0, 256, (16, 16, 3), dtype="uint8")
            Image.fromarray(pixels).save(folder / "photos" / kind / name)
    run(["embed", str(folder / "small.keras"), f"folder:{folder / 'photos'}", *out(folder)])
    return folder


def out(folder):
    return ["--out", str(folder / "a.parquet")]


@pytest.fixture(scope="module")
def queries(folder):
    (folder / "new").mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (20, 30, 3), dtype="uint8")
    Image.fromarray(pixels).save(folder / "new" / "query.png")
    (folder / "new" / "bad.png").write_bytes(b"not a picture")
    return [str(folder / "new" / name) for name in ("query.png", "bad.png")]


@pytest.fixture(scope="module")
def outputs(folder, queries):
    command = ["search", str(folder / "a.parquet"), *queries, "--rows", "7", "2"]
    command += ["--top", str(TOP), "--skip_unreadable"]
    for suffix in ("csv", "jsonl", "parquet", "html"):
        run([*command, "--out", str(folder / "out" / f"a.{suffix}")])
    run([*command, "--format", "table", "--out", str(folder / "out" / "a.txt")])
    return folder / "out"


def expected(folder, queries):
    """(query, [(path, label, row, similarity), …]) of the four queries."""
    table = pyarrow.parquet.read_table(folder / "a.parquet").to_pylist()
    model = models.intermediates(small(folder))
    images = [np.asarray(Image.open(row["path"]), "float32") for row in table]
    features = to_numpy(model(np.stack(images) / 127.5 - 1)["token"])
    image = model_input(folder, data.read_image(queries[0], 3))
    vectors = [features[7], features[2], to_numpy(model(image[None])["token"])[0]]
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    answers = []
    for name, own, vector in zip(
        (table[7]["path"], table[2]["path"], queries[0]), (7, 2, None), vectors
    ):
        shares = unit(features) @ unit(vector)
        order = [i for i in np.argsort(-shares) if i != own][:TOP]
        rows = [(table[i]["path"], table[i]["label"], i, shares[i]) for i in order]
        answers.append((name, rows))
    return [*answers, (queries[1], [])]


def small(folder):
    return vit_keras.open(folder / "small.keras")


def model_input(folder, pixels):
    preprocessing = small(folder).preprocessing
    return data.normalize(data.resize(pixels, (16, 16), preprocessing), preprocessing)


def of_rows(rows):
    """The rows of a table as queries with their matches."""
    answers = {}
    for row in rows:
        matches = answers.setdefault(row["query"], [])
        if row["path"]:
            assert int(row["rank"]) == len(matches) + 1
            label, share = row["label"], np.float32(row["similarity"])
            matches.append((row["path"], label, int(row["row"]), share))
    return list(answers.items())


def test_every_format_says_the_same(folder, queries, outputs):
    with open(outputs / "a.csv", newline="") as file:
        written = {"csv": of_rows(csv.DictReader(file))}
    written["parquet"] = of_rows(pyarrow.parquet.read_table(outputs / "a.parquet").to_pylist())
    lines = [json.loads(line) for line in (outputs / "a.jsonl").read_text().splitlines()]
    keys = ("path", "label", "row")
    written["jsonl"] = [
        (x["query"], [(*(m[k] for k in keys), np.float32(m["similarity"])) for m in x["matches"]])
        for x in lines
    ]
    assert written["csv"] == written["parquet"] == written["jsonl"]
    wanted = expected(folder, queries)
    for (query, matches), (name, rows) in zip(written["csv"], wanted, strict=True):
        assert query == name and [m[:3] for m in matches] == [tuple(r[:3]) for r in rows]
        np.testing.assert_allclose([m[3] for m in matches], [r[3] for r in rows], atol=1e-5)
    assert [bool(line["error"]) for line in lines] == [False, False, False, True]
    text = (outputs / "a.txt").read_text()
    for name, rows in wanted:
        shown = [f"  {share:6.3f}  {path}  {label}\n" for path, label, _, share in rows]
        assert f"{name}:{'' if rows else ' '}" in text and "".join(shown) in text


def test_the_same_embed_command_is_complete_and_another_is_refused(folder, capsys):
    command = ["embed", str(folder / "small.keras"), f"folder:{folder / 'photos'}", *out(folder)]
    content = (folder / "a.parquet").read_bytes()
    assert commands.main(command) == 0
    assert f"complete already: {folder / 'a.parquet'}, 18 pictures" in capsys.readouterr().out
    assert commands.main([*command, "--tokens", "class"]) == 1
    assert "was made by another job" in capsys.readouterr().err
    assert (folder / "a.parquet").read_bytes() == content
    table = pyarrow.parquet.read_table(folder / "a.parquet")
    assert table.column_names == ["path", "label", "split", "embedding", "error"]
    assert sorted(set(table["split"].to_pylist())) == ["test", "train"]


def test_paths_of_standard_input_are_embedded_in_their_order(folder, tmp_path, monkeypatch):
    paths = [str(folder / "photos" / "train" / "c" / name) for name in ("3.png", "0.png")]
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(paths)))
    run(["embed", str(folder / "small.keras"), "-", "--layer", "encoderblock_0"]
        + ["--tokens", "patches", "--dtype", "float16", *out(tmp_path)])  # fmt: skip
    table = retrieval.EmbeddingTable(tmp_path / "a.parquet")
    assert [picture.path for picture in table.pictures([0, 1])] == paths
    images = [np.asarray(Image.open(path), "float32") / 127.5 - 1 for path in paths]
    tokens = to_numpy(models.intermediates(small(folder))(np.stack(images))["encoderblock_0"])
    patches, _ = table.embeddings([0, 1])
    np.testing.assert_allclose(patches, tokens[:, 1:].reshape(2, 2, 2, 24), rtol=1e-3, atol=1e-3)
    assert commands.main(["search", str(tmp_path / "a.parquet"), "--rows", "0"]) == 1
