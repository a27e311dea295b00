# ruff: noqa: E501 - rows of tables of cases
"""Tables of images, and their labels and numbers."""

import os

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

from tests.data.gray_shards import grays, write
from vit_keras import data
from vit_keras.config import Config, DataConfig
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once


def stored(path, columns):
    table = pyarrow.table(columns)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return f"table:{path}"


def pictures(root, *names):
    """Pictures whose gray level is their place in `names`."""
    for value, name in enumerate(names):
        write(root / name, value)


def opened(path, task="auto", **fields):
    name = path if isinstance(path, str) else f"table:{path}"
    return data.load(name, 1, DataConfig(**{"test_percent": 0, **fields}), task)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_names_files_labels_and_splits(tmp_path, suffix):
    names = ["d/0.png", "d/1.png", "d/2.png", "d/3.png", str(tmp_path / "d/4.png")]
    pictures(tmp_path, *names)
    columns = {"path": names, "label": [10, 9, 100, 10, 9]}
    columns["split"] = ["train"] * 3 + ["validation"] * 2
    dataset = opened(stored(tmp_path / f"rows{suffix}", columns))
    assert dataset.class_names == ("9", "10", "100")  # as numbers, not as text
    assert grays(dataset.split("train")) == [0, 1, 2]  # rows keep their order
    np.testing.assert_array_equal(dataset.split("train").labels, [1, 0, 2])
    assert grays(dataset.split("test")) == [3, 4]
    del columns["split"]
    columns["label"] = ["x", "b", "b", "x", "b"]
    dataset = opened(stored(tmp_path / f"more{suffix}", columns), test_percent=40)
    assert dataset.class_names == ("b", "x")
    np.testing.assert_array_equal(np.bincount(dataset.split("test").labels), [1, 1])
    assert dataset.notes[0].startswith("no held-out split: 40% of each class, 2 pictures, are")


def test_files_that_are_no_tables_are_named(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 is not enough")
    (tmp_path / "a.xlsx").write_bytes(b"PK\3\4\x81\xff")
    pyarrow.parquet.write_table(pyarrow.table({}), tmp_path / "no_columns.parquet")
    for name, message in {
        "bad.parquet": "bad.parquet' cannot be read as a .parquet table",
        "no_columns.parquet": r"data.path_column.* must be .*\. Received: .*'path'",
        "nowhere.csv": "no table at '.*nowhere.csv'",
        "a.xlsx": "must be Parquet, or text in .* Received: '.*a.xlsx'.* Save other tables as CSV",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            opened(tmp_path / name)


NAMES = ("007.png", "07.png", "7.png", "8.png")
FORMS = {  # a text, its encoding, options, and the classes of the pictures to train on
    "text stays text": ("path,label\n" + "{0},007\n{1},07\n{2},7\n{3},007 ", "utf-8", {}, "007|07|7|007"),
    "cp1252": ("path,label\n{0},Käfer\n{1},b\n{2},b\n{3},Käfer", "cp1252", {}, "Käfer|b|b|Käfer"),
    "given encoding": ("path,label\n{0},Жук\n{1},b\n{2},b\n{3},b", "koi8-r", {"encoding": "koi8-r"}, "Жук|b|b|b"),
    "UTF-16": ("path;label\n{0};Käfer\n{1};b\n{2};b\n{3};b", "utf-16", {}, "Käfer|b|b|b"),
    "UTF-16 without its mark": ("path;label\n{0};a\n{1};b\n{2};b\n{3};b", "utf-16-le", {}, "a|b|b|b"),
    "two forms of Unicode": ("path,label\n{0},ä\n{1},a\u0308\n{2},b\n{3},b", "utf-8", {}, "ä|ä|b|b"),
    "semicolons and spaces": (" path ; label \n{0};cat \n{1}; cat\n{2};dog\n{3};dog", "utf-8", {}, "cat|cat|dog|dog"),
    "Excel's line": ("sep=;\npath;label\n{0};a\n{1};b\n{2};b\n{3};b", "utf-8", {}, "a|b|b|b"),
    "given separator": ("path~label\n{0}~a\n{1}~b\n{2}~b\n{3}~b", "utf-8", {"separator": "~"}, "a|b|b|b"),
    "quoted line breaks elsewhere": ('path,note,label\n{0},"x\ny, z",a\n{1},,b\n{2},,b\n{3},,b', "utf-8", {}, "a|b|b|b"),
    "a name twice, in two cases": ("path,label,Label\n{0},a,x\n{1},b,x\n{2},b,y\n{3},b,y", "utf-8", {}, "a|b|b|b"),
    "an index of pandas": (",file_name,label\n0,{0},a\n1,{1},b\n2,{2},b\n3,{3},b", "utf-8", {}, "a|b|b|b"),
    "a column by its files": ("number,scan,label\n1,{0},a\n2,{1},b\n3,{2},b\n4,{3},b", "utf-8", {}, "a|b|b|b"),
    "a given column": ("image,other,label\nx,{0},a\ny,{1},b\nz,{2},b\nw,{3},b", "utf-8", {"path_column": "other"}, "a|b|b|b"),
    "the one column left": ("id_code,diagnosis\n{0},a\n{1},b\n{2},b\n{3},b", "utf-8", {}, "a|b|b|b"),
    "classes in names": ("image\n{0}\n{1}\n{2}\n{3}", "utf-8", {"label_pattern": r"^(\d+)\."}, "007|07|7|8"),
    "commas between labels": ("path;label\n{0};1,2\n{1};b\n{2};b\n{3};b", "utf-8", {"label_separator": ","}, "1,2|b|b|b"),
    "unknown classes": ("path,label\n{0},a\n{1},?\n{2},b\n{3},b", "utf-8", {"unknown": "?"}, "a||b|b"),
    "one column is 1": ("path,nv,mel\n{0},1,0\n{1},0.0,1.0\n{2},0,1\n{3},0,1", "utf-8", {"label_columns": "nv,mel"}, "nv|mel|mel|mel"),
    "Training and Testing": ("path,label,split\n{0},a,Training\n{1},b,Testing\n{2},b,Training\n{3},b,training", "utf-8", {}, "a||b|b"),
    "0 and 1": ("path,label,split\n{0},a,0\n{1},b,1\n{2},b,0\n{3},b,0", "utf-8", {}, "a||b|b"),
    "0, 1 and 2": ("path,label,Split\n{0},a,0\n{1},b,2\n{2},b,1\n{3},b,0", "utf-8", {}, "a|||b"),
    "no split": ("path,label,set\n{0},a,easy\n{1},b,hard\n{2},a,easy\n{3},b,hard", "utf-8", {}, "a|b|a|b"),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_table_is_read_as_people_write_it(tmp_path, form):
    text, encoding, fields, classes = FORMS[form]
    pictures(tmp_path, *NAMES)
    (tmp_path / "rows.csv").write_bytes(text.format(*NAMES).encode(encoding))
    task = "classes" if form == "one column is 1" else "auto"
    dataset = opened(tmp_path / "rows.csv", task, **fields)
    train = dataset.split("train")
    expected = {value: name for value, name in enumerate(classes.split("|")) if name}
    assert [dataset.class_names[k] for k in train.labels] == [*expected.values()]
    assert grays(train) == [*expected]
    assert "test" not in dataset.splits or grays(dataset.split("test")) == [1]


FILES = {  # files, the cell that means the first of them, and what else the table says
    "no suffix": (("train_images/0a1b.png", "other/0a1c.png"), "0a1b"),
    "a drive": (("b/1.png", "c/1.png"), "C:\\data\\a\\b\\1.png"),
    "a folder above": (("train/p1/view1.png", "train/p2/view1.png"), "Small/train/p1/view1.png"),
    "the other form of Unicode": (("Ka\u0308fer.png", "b.png"), "Käfer.png"),
}


@pytest.mark.parametrize("case", FILES)
def test_the_one_file_that_fits_is_taken_and_said(tmp_path, case):
    names, cell = FILES[case]
    pictures(tmp_path, *names)
    write(tmp_path / "__MACOSX" / names[0].replace("/", "_"), 9)
    (tmp_path / "rows.csv").write_text(f"path,label\n{cell},a\n{names[1]},b\n")
    dataset = opened(tmp_path / "rows.csv")
    assert grays(dataset.split("train")) == [0, 1]
    note = f"1 of 2 files have other names than in the table, such as {names[0]!r} for {cell!r}"
    assert note in dataset.notes


TASKS = {  # columns, options, the task, and what is said of it
    "fractions": ({"label": ["1.5", "2", ""]}, {}, "numbers", "'label' holds fractions"),
    "decimal commas": ({"label": ["1,5", "2", "0,25"]}, {}, "numbers", "decimal points, such as in '1,5'"),
    "spaces beside decimals": ({"label": ["1,5 ", "2", " 0,25"]}, {}, "numbers", "decimal points, such as in '1,5 '"),
    "many whole numbers": ({"label": [*map(str, range(30))]}, {}, "classes", "--task numbers if they are"),
    "several in one": ({"label": ["a|b", "a", "b"]}, {}, "classes", "--task labels if '|' separates"),
    "0 and 1": ({"a": ["1", "0", "1"], "b": ["1", "", "0"]}, {}, "labels", "hold 0 and 1"),
    "exactly one": ({"a": ["1", "0", "0"], "b": ["0", "1", "1"]}, {}, "labels", "--task classes turns"),
    "CheXpert": ({"a": ["1", "-1.0", "0"], "b": ["0", "", "1"]}, {}, "numbers", "'a' holds '-1.0' in row 2; if it stands for unknown, give --task labels --data.unknown=-1.0"),
    "unknown": ({"a": ["1", "-1.0", "0"], "b": ["0", "", "1"]}, {"unknown": "-1.0"}, "labels", "hold 0 and 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", TASKS)
def test_the_task_that_was_guessed_is_said(tmp_path, case):
    columns, fields, kind, said = TASKS[case]
    count = len(next(iter(columns.values())))
    pictures(tmp_path, *(f"{i}.png" for i in range(count)))
    lines = [";".join(["path", *columns])]
    lines += [";".join([f"{i}.png", *row]) for i, row in enumerate(zip(*columns.values()))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    dataset = opened(tmp_path / "rows.csv", label_columns=list(columns), **fields)
    assert dataset.kind == kind
    assert any(said in note for note in dataset.notes), dataset.notes
    assert any(note.startswith(f"task: {kind}, since ") for note in dataset.notes)
    if kind in ("labels", "numbers"):
        known = {"": np.nan} | ({"-1.0": np.nan} if fields else {})
        number = lambda cell: float(known.get(cell, cell.replace(",", ".")))
        expected = np.array([[*map(number, row)] for row in zip(*columns.values())], "float32")
        np.testing.assert_array_equal(dataset.split("train").labels, expected)


BROKEN = {
    "no files": ("path,label\n" + "".join(f"gone{i}.png,{i % 2}\n" for i in range(7)) + "{0},1\n", {}, r"where 7 name none or several, such as {'gone0.png': \[\], .*'gone4.png': \[\]}. Paths are relative to"),
    "no labels": ("path,x,y\n{0},0,1\n{1},1,0\n", {}, r"needs a column of labels. Received: \['path', 'x', 'y'\]. Name one, or several, in"),
    "a label is missing": ("path,label\n{0},a\n{1},\n", {}, r"must have a class. Received: 'table:.*csv' with 1 without one, such as .*/07.png. Name"),
    "a split is missing": ("path,label,Split\n{0},a,train\n{1},b,\n", {}, "needs a value in 'Split'. Received: 1 without one, such as row 2"),
    "a class to test alone": ("path,label,split\n{0},a,train\n{1},b,test\n", {}, r"must have training images. Received: .*without any for \['b'\]. Add"),
    "an open quote": ('path,label\n{0},a\n{1},"b\n{2},a\n{3},b\n', {}, r"from line 3 on \(unexpected end of data\).*close its quotes"),
    "a cell too many": ("path,label\n{0},a\n{1},b,c\n", {}, r"from line 3 on \(3 cells, not the header's 2\).*data.separator"),
    "no header": ("{0},a\n{1},b\n{2},a\n", {}, "needs a header such as path,label.*starting with"),
    "a column twice": ("path,label,label\n{0},a,b\n", {}, r"need different names.*\['label'\] twice"),
    "no paths": ("a,b\n1,2\n3,4\n", {}, "must name one file. Received: .*'3': .*data.path_column can name a column other than 'a'"),
    "two files": ("path,label\nscan,a\n{1},b\n", {}, r"must name one file.*'scan': \['x/scan.png', 'y/scan.png'\]}"),
    "no positives": ("path,a,b\n{0},0,1\n{1},0,0\n{2},0,1\n", {"label_columns": "a,b"}, r"without any for \['a'\]. Add some, or leave out these"),
    "a pattern that does not match": ("path\n{0}\n{1}\n", {"label_pattern": "^x(.)"}, r"must match the name of each file.*2 names .*'007.png'"),
    "a label of 2": ("path,a,b\n{0},0,1\n{1},2,1\n", {"label_columns": "a,b", "task": "labels"}, r"The column 'a' of .* must hold 0, 1 or nothing in each row. Received: '2' in row 2"),
    "beyond float32": ("path,a\n{0},1\n{1},1e39\n", {"label_columns": "a", "task": "numbers"}, "must hold a number or nothing in each row. Received: '1e39' in row 2"),
    "seconds since 1970": ("path,a\n{0},1700000000\n{1},1700000040\n", {"label_columns": "a", "task": "numbers"}, "than float32.s rounding. Received: 1700000000 with a standard deviation of 20 in the column 'a'"),
    "no class or two": ("path,a,b\n{0},0,1\n{1},1,1\n", {"label_columns": "a,b", "task": "classes"}, "exactly one is 1 in each row. Received: .*1 other rows, such as row 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_table_is_said(tmp_path, case):
    text, fields, message = BROKEN[case]
    pictures(tmp_path, *NAMES, "x/scan.png", "y/scan.png")
    (tmp_path / "rows.csv").write_text(text.format(*NAMES))
    with pytest.raises(ValueError, match=message):
        opened(tmp_path / "rows.csv", **fields)


def test_groups_stay_whole(tmp_path):
    names = [f"{i:02}.png" for i in range(40)]
    pictures(tmp_path, *names)
    of_patients = [f"p{i // 4}" for i in range(40)]
    columns = {"path": names, "label": [*"ab" * 20], "Patient_ID": of_patients}
    name = stored(tmp_path / "rows.csv", columns)
    fields = {"test_percent": 20, "group_column": "Patient_ID"}
    patients = lambda split: {gray // 4 for gray in grays(split)}
    dataset = opened(name, **fields)
    train, test = dataset.split("train"), dataset.split("test")
    assert not patients(train) & patients(test) and len(train) == 32 and not dataset.warnings
    for options in ({"dev_percent": 25.0}, {"fold": (1, 3)}):
        parts = data.train_dev_test(dataset, DataConfig(**fields, **options))
        assert not patients(parts[0]) & patients(parts[1])
        assert len(parts[0]) + len(parts[1]) == 32 and len(parts[1]) >= 8
    columns["split"] = ["test"] * 2 + ["train"] * 38
    dataset = opened(stored(tmp_path / "rows.csv", columns), **fields)
    lines = data.describe_splits(dataset, dataset.split("train"), dataset.split("test"))
    assert "warning: groups in both 'train' and 'test'" in lines[-1] and lines[-1].endswith(": p0")


def test_a_picture_in_several_rows_is_in_one_part(tmp_path):
    names = [f"{i}.png" for i in range(10)]
    pictures(tmp_path, *names)
    columns = {"path": names * 2, "label": [*"ab" * 10]}
    dataset = opened(stored(tmp_path / "rows.csv", columns), test_percent=30)
    train, test = (set(grays(dataset.split(name))) for name in ("train", "test"))
    assert train | test == {*range(10)} and not train & test


nan = np.nan


@pytest.fixture
def six(tmp_path):
    """Columns of six pictures, of which two are held out."""
    names = [f"{i}.png" for i in range(6)]
    pictures(tmp_path, *names)
    return {"path": names, "split": ["train"] * 4 + ["test"] * 2}


def labels_of(dataset):
    return np.concatenate([dataset.split(name).labels for name in ("train", "test")])


def test_a_list_in_a_cell_is_several_labels(six, tmp_path):
    expected = [[0, 1], [1, 1], [0, 0], [nan, nan], [1, 0], [0, 1]]
    lists = [["sun"], ["sea", "sun"], [], None, ["sea"], ["sun"]]
    dataset = opened(name := stored(tmp_path / "rows.parquet", {**six, "label": lists}))
    assert dataset.kind == "labels" and dataset.class_names == ("sea", "sun")
    np.testing.assert_array_equal(labels_of(dataset), expected)
    for task in ("classes", "numbers"):
        with pytest.raises(ValueError, match=f"need --task labels and .*: {task}, .'label'"):
            opened(name, task)
    texts = ["sun", "sea; sun", "", "", "sea", "sun"]  # CSV has no lists, and nothing is no label
    name = stored(tmp_path / "rows.csv", {**six, "label": texts})
    dataset = opened(name, "labels", label_separator=";")
    np.testing.assert_array_equal(labels_of(dataset), np.nan_to_num(expected))
    name = stored(tmp_path / "rows.csv", {**six, "sun": ["1", "no", "", "0", "1", "Yes"]})
    dataset = opened(name, "labels", label_columns="sun")  # one column is one label
    assert dataset.class_names == ("sun",)
    np.testing.assert_array_equal(labels_of(dataset)[:, 0], [1, 0, nan, 0, 1, 1])


LISTS = r"each once. Received: \[.*\] in row 1 of the column 'lab"
NAN = "must have a class. Received: .* with 1 without one, such as .*/2.png"


@pytest.mark.parametrize(
    ("labels", "message"),
    [([[1, 0, 1]] * 6, LISTS), ([[0.5, 0.25]] * 6, LISTS), ([0.0, 1.0, nan, 1.0, 0.0, 0.0], NAN)],
)
def test_lists_of_numbers_and_nan_are_no_labels(six, tmp_path, labels, message):
    name = stored(tmp_path / "rows.parquet", {**six, "label": labels})
    with pytest.raises(ValueError, match=message):
        opened(name)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_unknown_whole_number_may_be_stored_as_a_float(six, tmp_path, suffix):
    name = stored(tmp_path / f"rows{suffix}", {**six, "age": [1.5, -9.0, nan, 2.0, -9.0, 3.0]})
    dataset = opened(name, "numbers", label_columns="age", unknown=-9)
    np.testing.assert_array_equal(labels_of(dataset)[:, 0], [1.5, nan, nan, 2, nan, 3])


def test_numbers_become_standardized_targets(six, tmp_path):
    values = np.array([[1, 10], [3, nan], [nan, 30], [5, 20], [7, 7], [0, 0]])
    columns = {n: [None if np.isnan(v) else v for v in of] for n, of in zip("ab", values.T)}
    name = stored(tmp_path / "rows.parquet", six | columns)
    dataset = opened(name, "numbers", label_columns="a,b")
    train = dataset.split("train")
    task = data.learned_task(dataset, train, Config())
    known = [values[:4, k][~np.isnan(values[:4, k])] for k in range(2)]
    np.testing.assert_allclose(task.mean, [v.mean() for v in known])
    np.testing.assert_allclose(task.std, [v.std() for v in known])
    options = {"image_size": (8, 8), "preprocessing": Preprocessing(), "batch": 4}
    ((_, targets),) = data.eval_batches(train, num_classes=2, task=task, **options)
    np.testing.assert_allclose(targets, (values[:4] - task.mean) / task.std, rtol=1e-6)
    assert data.captions_of(targets, ("a", "b"), task) == ["a 1, b 10", "a 3", "b 30", "a 5, b 20"]


def test_a_picture_in_several_folders_has_several_labels(tmp_path):
    for value, folder in enumerate(("sea", "sea", "sun", "sun", "sand")):
        write(tmp_path / folder / f"{value}.png", value)
    os.symlink(tmp_path / "sea" / "0.png", tmp_path / "sun" / "again.png")
    os.link(tmp_path / "sea" / "0.png", tmp_path / "sand" / "0.png")
    config = DataConfig(test_percent=0, test_split="train")
    dataset = data.load(f"folder:{tmp_path}", 1, config)
    split = dataset.split("train")
    assert dataset.kind == "labels" and dataset.class_names == ("sand", "sea", "sun")
    found = dict(zip(grays(split), split.labels.tolist()))
    assert found == {0: [1, 1, 1], 1: [0, 1, 0], 2: [0, 0, 1], 3: [0, 0, 1], 4: [1, 0, 0]}
    with pytest.raises(ValueError, match="are labels. Received: task='numbers'"):
        data.load(f"folder:{tmp_path}", 1, config, "numbers")
    as_classes = data.load(f"folder:{tmp_path}", 1, config, "classes")
    assert as_classes.kind == "classes" and len(as_classes.split("train")) == 7


def test_losses_that_balance_need_all_classes():
    dataset = data.load("digits", 1)
    train = dataset.split("train")
    config = Config(balance="weights")
    shares = data.learned_task(dataset, train, config).shares
    np.testing.assert_allclose(shares, np.bincount(train.labels) / len(train))
    assert data.learned_task(dataset, train, Config()) == Task()
    with pytest.raises(ValueError, match=r"only one of the two for .'9'.. Set balance to none"):
        data.learned_task(dataset, train.part(np.flatnonzero(train.labels < 9)), config)


def test_a_table_of_held_out_rows_alone_can_be_judged_but_not_trained_on(tmp_path):
    pictures(tmp_path, *NAMES)
    columns = {"path": NAMES, "label": [*"abab"], "split": ["test"] * 4}
    dataset = opened(stored(tmp_path / "rows.csv", columns))
    assert grays(dataset.split("test")) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="must be one of 'test', .* Received: split='train'"):
        data.train_dev_test(dataset, DataConfig())
