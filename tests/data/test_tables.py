"""Tables of images: their contents, held-out images, and errors."""

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.data.gray_pictures import grays, write
from vit_keras import data
from vit_keras.config import DataConfig

pytestmark = pytest.mark.once


def stored(path, columns):
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return f"table:{path}"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_names_files_labels_and_splits(tmp_path, suffix):
    values = [30, 5, 100, 31, 6]
    for value in values:
        write(tmp_path / "pictures" / f"{value}.png", value)
    columns = {
        "path": [f"pictures/{v}.png" for v in values[:-1]] + [str(tmp_path / "pictures/6.png")],
        "label": [10, 9, 100, 10, 9],
        "split": ["train", "train", "train", "validation", "validation"],
    }
    dataset = data.load(stored(tmp_path / f"rows{suffix}", columns), 1)
    assert dataset.class_names == ("9", "10", "100")  # as numbers, not as text
    assert grays(dataset.split("train")) == [30, 5, 100]  # rows keep their order
    np.testing.assert_array_equal(dataset.split("train").labels, [1, 0, 2])
    assert grays(dataset.split("test")) == [31, 6]
    del columns["split"]
    columns["label"] = ["x", "b", "b", "x", "b"]
    dataset = data.load(stored(tmp_path / f"more{suffix}", columns), 1, DataConfig(test_percent=40))
    assert dataset.class_names == ("b", "x")
    np.testing.assert_array_equal(np.bincount(dataset.split("test").labels), [1, 1])
    assert dataset.held_out_by.startswith("no column split: 40 % of each class, 2 pictures, are")


def test_a_table_of_training_rows_alone_holds_out_a_share(tmp_path):
    values = [*range(6), *range(100, 106)]
    for value in values:
        write(tmp_path / f"{value}.png", value)
    columns = {
        "path": [f"{value}.png" for value in values],
        "label": ["a" if value < 50 else "b" for value in values],
        "split": ["Train"] * 10 + ["extra"] * 2,
    }
    name = stored(tmp_path / "rows.csv", columns)
    dataset = data.load(name, 1, DataConfig(test_percent=25))
    assert sorted(grays(dataset.split("train")) + grays(dataset.split("test"))) == values[:10]
    np.testing.assert_array_equal(np.bincount(dataset.split("test").labels), [2, 1])
    assert grays(dataset.split("extra")) == [104, 105]
    assert dataset.held_out_by.startswith("no row of the split test: 25 % of each class, 3 pict")
    for test_split in ("extra", "train[50%:]"):
        dataset = data.load(name, 1, DataConfig(test_split=test_split))
        assert len(dataset.split("train")) == 10 and not dataset.held_out_by


def test_faults_of_a_table_are_named(tmp_path):
    for value in (1, 2):
        write(tmp_path / f"{value}.png", value)
    there = ["1.png", "2.png"]

    def refused(message, columns, name="rows.csv", error=ValueError):
        with pytest.raises(error, match=message):
            data.load(stored(tmp_path / name, columns) if columns else f"table:{name}", 3)

    gone = [f"gone{i}.png" for i in range(7)]
    first = r"\['gone0.png', 'gone1.png', 'gone2.png', 'gone3.png', 'gone4.png'\]"
    labels = [0, 1] * 4
    refused(
        f"names 7 that do not, such as {first}. Paths are relative to",
        {"path": [*gone, there[0]], "label": labels},
    )
    refused(r"needs the columns path and label. Received: \['path', 'class'\], without label",
            {"path": there, "class": [0, 1]})  # fmt: skip
    refused("needs a label. Received: 1 without one, such as row 1",
            {"path": there, "label": [0, None]})  # fmt: skip
    refused(r"needs rows of the split train. Received: \['test'\]",
            {"path": there, "label": [0, 1], "split": ["test", "test"]})  # fmt: skip
    refused(r"must have training images. Received: .*which has \['b'\]",
            {"path": there, "label": ["a", "b"], "split": ["train", "test"]})  # fmt: skip
    refused("at least two classes", {"path": there, "label": ["a", "a"]})
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not enough")
    refused("bad.parquet' cannot be read as a .parquet table", None, tmp_path / "bad.parquet")
    refused("no table at 'nowhere.csv'", None, "nowhere.csv", FileNotFoundError)
    refused("needs a .csv or .parquet file. Received: 'rows.txt'", None, "rows.txt")
