"""Data sets of rows: CSV or Parquet tables of paths and labels, and those of Hugging Face."""

import collections
import contextlib
import csv
import io
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data import labels
from vit_keras.data.boxes import FLAGGED, Annotated, with_boxes
from vit_keras.data.dataset import SPLITS as KNOWN_SPLITS
from vit_keras.data.dataset import Source, in_sequence, split_name
from vit_keras.data.files import file_source, labels_in_names
from vit_keras.data.masks import with_masks
from vit_keras.data.picture_files import SUFFIXES, read_file
from vit_keras.data.picture_paths import PictureFiles
from vit_keras.support import extras
from vit_keras.support.checks import check_choice
from vit_keras.support.files import check_arrived

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
DECIMAL_COMMA = re.compile(r"\A(\s*[-+]?\d+),(\d+\s*)\Z")
# Usual names of columns, without punctuation and in lower case, the most common first.
PATHS = (
    *("path", "filepath", "filename", "file", "imagepath", "imagefile", "image", "imagename"),
    *("imgpath", "imgname", "img", "imageid", "idcode", "picture", "photo", "id", "name"),
)
MASKS = ("mask", "maskpath", "maskfile", "masks", "segmentation")
LABELS = ("label", "labels", "class", "classname", "labelname", "category", "target")
SPLITS = ("split", "splits", "subset", "partition", "usage", "phase", "set")
EDGES = (
    *(("xmin", "x1", "left"), ("ymin", "y1", "top")),
    *(("xmax", "x2", "right"), ("ymax", "y2", "bottom")),
)
SIDES = (("height", "imageheight"), ("width", "imagewidth"))
NUMBERED = {"0": "train", "1": "test"}, {"0": "train", "1": "validation", "2": "test"}
LOOKED_AT = 20  # rows to inspect for the column that names files


class Table(NamedTuple):
    """A table as read: the cells by column, and notes on its form."""

    path: str
    columns: dict[str, list]
    notes: list[str]

    def named(self, names: tuple[str, ...]) -> list[str]:
        """Returns the first column with each of these names, in the order of the names."""
        plain = lambda column: re.sub(r"[\W_]", "", column).casefold()
        known = {plain(column): column for column in reversed(self.columns)}
        return [known[name] for name in names if name in known]

    def column(self, name: str, field: str) -> list:
        """Returns the cells of a column that a field of the configuration names."""
        check_choice(name, self.columns, f"data.{field}")
        return self.columns[name]


def load(path: str, config: DataConfig, task: str, labeled: bool) -> Source:
    """Opens a CSV or Parquet file with columns of paths, labels and, optionally, splits.

    Cells are text until a task says otherwise. Paths are relative to the table, and rows keep their
    order. `config` may name the columns. The columns path, label, mask and split are also found by
    their usual names, in upper or lower case; the data set's notes list them. If a table spells a
    file name differently, the only file that fits is taken. A mask column without a column of
    labels holds masks: see `masks.mask_code`. Columns xmin, ymin, xmax and ymax hold boxes, a row
    for each object; a row with neither class nor numbers is a picture without objects. Without a
    split column, or if it has no held-out rows, `config.test_percent` of each class is held out.

    Raises:
        FileNotFoundError: If there is no table at `path`.
        ValueError: If the table cannot be read, lacks a column or a value, names files that do not
            exist, or has classes without training images.
        ImportError: If PyArrow is not installed and the file is Parquet.
    """
    table = read_table(path, config)
    files = PictureFiles(os.path.dirname(os.path.abspath(path)))
    path_column = _path_column(table, config, files)
    paths = _paths(files, table, path_column)
    splits, split_column = _splits(table)
    used = {path_column, split_column, config.group_column}
    masks = table.named(MASKS)[:1]
    edges = [name for names in EDGES for name in table.named(names)[:1]]
    is_long = len(edges) == len(EDGES) and not {*edges} & {*config.label_columns}
    rows: Sequence[int] = range(len(paths))
    if task == "boxes" or (task == "auto" and is_long):
        rows, pictures = _annotated(table, paths, splits, edges, config)
        known = labels.no_labels(len(rows), "boxes")
    else:
        known = _labels(table, paths, config, task, labeled, used, masks)
    mask_files = _paths(files, table, masks[0]) if known.kind == "masks" else []
    groups = config.group_column and table.column(config.group_column, "group_column")
    source = file_source(
        f"table:{path}",
        files.root,
        [paths[i] for i in rows],
        known,
        splits[rows],
        groups=_texts(groups[i] for i in rows) if groups else None,
        notes=tuple(table.notes),
    )
    if known.kind == "boxes":
        return with_boxes(source, files.root, pictures)
    return with_masks(source, files.root, mask_files, config) if mask_files else source


def _texts(cells: Iterable) -> list[str]:
    """Returns the cells' texts, which are empty for unknown cells."""
    return [str(labels.text_of(cell) or "") for cell in cells]


def read_table(path: str, config: DataConfig) -> Table:
    """Reads the cells of a file; all of them are text except in Parquet."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"There is no table at {path!r}.")
    if not path.lower().endswith(".parquet"):
        return _csv(path, config)
    pyarrow, parquet = (extras.require(name) for name in ("pyarrow", "pyarrow.parquet"))
    try:
        texts = [f.name for f in parquet.read_schema(path) if pyarrow.types.is_string(f.type)]
        table = parquet.read_table(path, read_dictionary=texts)
        return Table(path, {name: _cells(table[name]) for name in table.column_names}, [])
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path!r} cannot be read as a .parquet table ({error})") from error


def _cells(column) -> list:
    """Returns the cells of an Arrow column; equal texts share one object, as in the file."""
    cells = []
    for chunk in column.chunks:
        if hasattr(chunk, "dictionary"):
            texts = chunk.dictionary.to_pylist()
            cells += [None if k is None else texts[k] for k in chunk.indices.to_pylist()]
        else:
            cells += chunk.to_pylist()
    return cells


def _csv(path, config):
    text, notes = _decoded(path, config.encoding)
    first, *rest = re.split(r"\r\n|\r|\n", text, maxsplit=1)
    separator = {"tab": "\t", "\\t": "\t"}.get(config.separator or "", config.separator)
    if first.casefold().startswith("sep=") and len(first) == 5:  # a line for Excel
        separator, text = first[4], "".join(rest)
    if not separator:
        separator = max(SEPARATORS, key=lambda sign: len(next(csv.reader([first], delimiter=sign))))
        if separator != ",":
            notes.append(f"columns are separated by {SEPARATORS[separator]}")
    header, *lines = _records(path, text, separator)
    header = [*map(labels.text_of, header)]
    if not any(header) or any(name.lower().endswith(SUFFIXES) for name in header):
        raise ValueError(
            f"A table needs a header such as path,label. Received: {path!r} starting with {first!r}"
        )
    if twice := [name for name, count in collections.Counter(header).items() if name and count > 1]:
        raise ValueError(f"Columns need different names. Received: {path!r} with {twice} twice")
    columns = {n: [line[k] for line in lines] for k, n in enumerate(header) if n}
    for name, cells in columns.items() if "," not in (separator, config.label_separator) else ():
        if commas := [c for c in cells if DECIMAL_COMMA.match(c)]:
            columns[name] = [DECIMAL_COMMA.sub(r"\1.\2", c) for c in cells]
            notes.append(f"commas in {name!r} are decimal points, such as in {commas[0]!r}")
    return Table(path, columns, notes)


def _decoded(path, encoding):
    """Returns the text of a file, and how it was decoded if not as UTF-8."""
    data = pathlib.Path(path).read_bytes()
    likely = "utf-16-le" if data[1:2] == b"\0" else "utf-8-sig"
    likely = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else likely
    for name in (encoding,) if encoding else (likely, "cp1252"):
        with contextlib.suppress(UnicodeError, LookupError):
            said = f"read as {name}; data.encoding can name another encoding"
            return data.decode(name), [] if name.startswith("utf-8") else [said]
    raise ValueError(
        "A table must be Parquet, or text in UTF-8, UTF-16, cp1252 or data.encoding. Received: "
        f"{path!r} with data.encoding={encoding!r}. Save other tables as CSV first"
    )


def _records(path, text, separator):
    """Returns the lines of a table as lists of cells; the first one is the header."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records, begins = [], 1
    try:
        for record in reader:
            if any(record):
                records.append(record)
                if len(record) != len(records[0]):
                    raise csv.Error(f"{len(record)} cells, not the header's {len(records[0])}")
            begins = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path!r} cannot be read as a table from line {begins} on ({error}). Repair the "
            "line, close its quotes, or give data.separator"
        ) from error
    return records or [[]]


def _path_column(table: Table, config: DataConfig, files: PictureFiles) -> str:
    """Returns the column of paths: the configured one, or one found by its name or its values."""
    if name := config.path_column:
        table.column(name, "path_column")
        return name
    cells = lambda name: table.column(name, "path_column")[:LOOKED_AT]
    exists = lambda name: all(map(files.find, cells(name)))
    likely = (*table.named(PATHS), *table.columns) or ("path",)
    chosen = next(filter(exists, likely), likely[0])
    if chosen != "path":
        table.notes.append(f"column of the paths: {chosen}")
    return chosen


def _paths(files: PictureFiles, table: Table, column: str) -> list[str]:
    """Returns the file of each row.

    Raises:
        ValueError: If a file does not exist, or if a cell could mean more than one.
    """
    cells = [*map(labels.text_of, table.columns[column])]
    choices = [files.find(cell) for cell in table.columns[column]]
    if wrong := [(cell, paths) for cell, paths in zip(cells, choices) if len(paths) != 1]:
        raise ValueError(
            f"Each row of a table must name one file. Received: {table.path!r}, where {len(wrong)} "
            f"name none or several, such as {dict(wrong[:5])}. Paths are relative to "
            f"{files.root!r}; data.path_column can name a column other than {column!r}"
        )
    paths = [path for (path,) in choices]
    if other := [(cell, path) for cell, path in zip(cells, paths) if path != cell]:
        table.notes.append(
            f"{len(other):,} of {len(paths):,} files have other names than in the table, "
            "such as {1!r} for {0!r}".format(*other[0])
        )
    return paths


def _splits(table: Table) -> tuple[np.ndarray, str | None]:
    """Returns each row's split, `(N,)` strings, and the column with it; "train" without one."""
    for column in table.named(SPLITS):
        cells = [labels.text_of(cell) for cell in table.columns[column]]
        numbered = next((names for names in NUMBERED if {*map(str, cells)} <= {*names}), {})
        names = [numbered.get(str(cell)) or split_name(str(cell)) for cell in cells]
        if column.casefold() != "split" and not {*names} <= {*KNOWN_SPLITS}:
            continue
        if empty := [row for row, cell in enumerate(cells, 1) if not cell]:
            raise ValueError(
                f"Every row of {table.path!r} needs a value in {column!r}. Received: "
                f"{len(empty):,} without one, such as row {empty[0]}"
            )
        if numbered or column != "split":
            pairs = sorted({*zip(map(str, cells), names)})
            said = ", ".join(f"{old} is {new}" for old, new in pairs)
            table.notes.append(f"column of the splits: {column}, where {said}")
        return np.array(names), column
    return np.full(len(next(iter(table.columns.values()))), "train"), None


def _labels(table, paths, config, task, labeled, used, masks) -> labels.Labels:
    """Returns the labels of the rows; for masks, only the kind."""
    if config.label_pattern:
        return labels_in_names(paths, config.label_pattern)
    left = [name for name in table.columns if name not in used]
    named = [*config.label_columns] or table.named(LABELS)[:1]
    if masks and (task == "masks" or (task == "auto" and not named)):
        return labels.no_labels(len(paths), "masks")
    if not named and not labeled:
        return labels.no_labels(len(paths))
    named = named or (left if len(left) == 1 else [])
    if not named:
        raise ValueError(
            f"{table.path!r} needs a column of labels. Received: {list(table.columns)}. Name one, "
            "or several, in data.label_columns"
        )
    if not config.label_columns and named != ["label"]:
        table.notes.append(f"column of the labels: {named[0]}")
    columns = {name: table.column(name, "label_columns") for name in named}
    return labels.read_labels(table.path, columns, config, task)


def _annotated(table: Table, paths, splits, edges, config: DataConfig) -> tuple[list[int], list]:
    """Joins the rows of each picture; a row holds one object, or nothing.

    Returns:
        The first row of each picture, and the picture's annotations.
    """
    kinds = [*config.label_columns, *table.named(LABELS)][:1]
    if len(edges) < len(EDGES) or not kinds:
        raise ValueError(
            f"{table.path!r} must have columns xmin, ymin, xmax, ymax and class. "
            f"Received: {[*table.columns]}"
        )

    def texts_of(column):
        cells = table.column(column, "label_columns") if column else [""] * len(paths)
        return ["" if text.casefold() in labels.EMPTY else text for text in _texts(cells)]

    others = [next(iter(table.named(names)), "") for names in (*SIDES, *FLAGGED.values())]
    source, pictures = os.path.basename(table.path), dict[str, tuple[int, Annotated]]()
    objects = collections.defaultdict[str, list[tuple]](list)
    for row, cells in enumerate(zip(paths, *map(texts_of, (kinds[0], *edges, *others)))):
        file, kind, *texts = cells
        *corners, height, width = map(labels.as_number, texts[:6])
        flags = [f for f, text in zip(FLAGGED, texts[6:]) if labels.YES_OR_NO.get(text.casefold())]
        if any(cells[1:6]):
            objects[file].append((kind, *corners, max(flags, default=0)))
        annotated = Annotated(file, source, splits[row], objects[file], (height, width))
        if pictures.setdefault(file, (row, annotated))[1].split != splits[row]:
            raise ValueError(f"A picture must be in one split. Received: {file!r} in several")
    rows, known = zip(*pictures.values())
    return [*rows], [*known]


SAVED_BY_HUB = ("dataset_dict.json", "state.json")  # files of `save_to_disk`
OBJECT_KINDS = ("category", "categories", "label", "labels", "class", "classes")


def load_hub(name: str, config: DataConfig, task: str, labeled: bool) -> Source:
    """Opens `hf:NAME`, which the library `datasets` downloads and prepares first if necessary.

    Without a held-out split, `config.test_percent` of each class is held out; the pictures' numbers
    decide which. Splits in which no picture has a class are left out if classes are needed.

    Args:
        name: `USER/NAME`, with `@REVISION` and `:CONFIG` if needed, or a folder: one with the files
            of a data set, or one that `save_to_disk` wrote.
        config: The column of the labels and the held-out share.
        task: What the labels are, as for `data.load`.
        labeled: Whether all pictures must have a class. If not, a data set in which some lack one
            has no `class_names`.

    Raises:
        FileNotFoundError: If there is no such data set.
        ValueError: If it cannot be opened, or has no pictures or no classes. The message gives its
            columns.
        ImportError: If `datasets` or Pillow is not installed.
    """
    opened = _hub_splits(name)
    rows = _library().concatenate_datasets([*opened.values()])
    of_kind = lambda kind: [key for key, of in rows.features.items() if isinstance(of, kind)]
    images, classes = of_kind(_library().Image), of_kind(_library().ClassLabel)
    boxed = _object_column(rows, config, task)
    usual = [key for key in LABELS[:2] if key in rows.features]
    alone = classes if len(classes) == 1 or not labeled else []  # several are ambiguous
    columns = () if boxed else tuple(config.label_columns or (*usual, *alone)[:1])
    if not images or (labeled and not (columns or boxed)):
        has = {key: getattr(of, "dtype", type(of).__name__) for key, of in rows.features.items()}
        raise ValueError(
            "A data set needs a column of images, and one of classes or of objects with a bbox "
            f"field. Received: hf:{name} with {has}. Name the classes in data.label_columns"
        )
    image = "image" if "image" in images else images[0]
    known = in_sequence(f"hf:{name}", {key: len(of_split) for key, of_split in opened.items()})
    if column := config.group_column:
        known["groups"] = _texts(_hub_cells(rows, column, True))
    of_rows = labels.no_labels(len(rows))
    if columns:
        are_numbers = task == "numbers" or (task == "auto" and len(columns) > 1)
        cells = {column: _hub_cells(rows, column, are_numbers) for column in columns}
        order = getattr(_element(rows.features[columns[0]]), "names", ())
        of_rows = labels.read_labels(f"hf:{name}", cells, config, task, order)

    def files(indices):
        used = [split for split, of in known["splits"].items() if np.isin(of, indices).any()]
        paths = [file["filename"] for split in used for file in opened[split].cache_files]
        return [(os.path.basename(path), path) for path in paths]

    source = Source(f"hf:{name}", of_rows, _pictures(rows, image), files=files, **known)
    if boxed:
        pictures, order = _hub_objects(rows, boxed, source.name_of)
        source = with_boxes(source, "", pictures, order, "either")
    return source


def _library() -> Any:
    return extras.require("datasets")


def _hub_splits(name):
    """Returns the splits of a data set by name, as `datasets.Dataset`."""
    library, is_folder = _library(), os.path.isdir(name)
    place, _, variant = (os.path.abspath(name), "", "") if is_folder else name.partition(":")
    path, _, revision = (place, "", "") if is_folder else place.partition("@")
    try:
        if any(pathlib.Path(path, file).is_file() for file in SAVED_BY_HUB):
            opened = library.load_from_disk(path)
        else:
            opened = library.load_dataset(path, variant or None, revision=revision or None)
    except Exception as error:  # each kind of file, and the network, raises its own errors
        for file in pathlib.Path(path).rglob("*.parquet"):
            check_arrived(file)
        kind = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise kind(f"hf:{name} cannot be opened ({error!r:.300})") from error
    return dict(opened) if isinstance(opened, dict) else {"train": opened}


def _element(feature):
    """Returns the type of a column, or of the items of its lists."""
    return getattr(feature, "feature", feature)


def _hub_cells(rows, column, are_numbers=False) -> list:
    """Returns the cells of a column; numbers that stand for names become names.

    A negative number becomes None (no name), unless `are_numbers` and the column has no names.
    """
    cells = rows.select_columns([column]).with_format("arrow")[:].column(0).to_pylist()
    feature = _element(rows.features[column])
    if not str(getattr(feature, "dtype", "")).startswith(("int", "uint")):
        return cells
    names = getattr(feature, "names", None)
    if are_numbers and not names:
        return cells
    text = lambda k: None if k is None or k < 0 else names[k] if names else k
    return [[*map(text, cell)] if isinstance(cell, list) else text(cell) for cell in cells]


def _object_column(rows, config, task) -> str | None:
    """Returns the column of lists of objects with a bbox field; None if there is none."""
    if task not in ("auto", "boxes") or (task == "auto" and config.label_columns):
        return None
    kinds = {key: _element(kind) for key, kind in rows.features.items()}
    columns = [key for key, kind in kinds.items() if isinstance(kind, dict) and "bbox" in kind]
    return next(iter(columns), None)


def _hub_objects(rows, column, name_of) -> tuple[list[Annotated], Sequence[str]]:
    """Returns the annotations of each picture, and the names of the classes in order."""
    fields, pictures = _element(rows.features[column]), list[Annotated]()
    sides = ("height", "width") if {"height", "width"} <= {*rows.features} else ()
    kind = next((field for field in OBJECT_KINDS if field in fields), "")
    order = getattr(_element(fields.get(kind)), "names", ())
    for i, (cell, *said) in enumerate(zip(*(_hub_cells(rows, c) for c in (column, *sides)))):
        where, items, objects = name_of(i), cell or [], list[tuple]()
        if isinstance(items, dict):  # a record of lists
            lists = (values or [] for values in items.values())
            items = [dict(zip(items, values)) for values in itertools.zip_longest(*lists)]
        for item in filter(None, items):
            box, value = item["bbox"] or [], item.get(kind)
            if order and isinstance(value, int):
                value = order[value] if value in range(len(order)) else None
            flat = {key.replace("_", "").lower(): value for key, value in item.items()}
            flags = (flag for flag, names in FLAGGED.items() for name in names if flat.get(name))
            objects.append((labels.text_of(value), *box, next(flags, 0)))
        pictures.append(Annotated(where, "", "", objects, said or (0, 0)))
    return pictures, order


def _pictures(rows, image) -> Callable[[int], bytes]:
    """Returns a function that reads the bytes of the picture at an index."""
    pictures = rows.select_columns([image]).cast_column(image, _library().Image(decode=False))

    def picture(i):
        value = pictures[i][image] or {}
        held = value.get("bytes")
        return read_file(value.get("path") or "") if held is None else held

    return picture
