"""Data sets of picture files: what folders and tables are read into, held out, and opened as."""

import dataclasses
import os
import re
import unicodedata
from collections.abc import Sequence

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import (
    Dataset,
    Origin,
    Split,
    UnreadableImages,
    read_file,
    without_held_out,
)
from vit_keras.data.held_out import hold_out
from vit_keras.data.labels import LABEL_KINDS, NO_CLASS, Labels
from vit_keras.data.masks import MaskCode, mask_code, mask_split
from vit_keras.support import extras

HEIC = (".heic", ".heif")


@dataclasses.dataclass
class Rows:
    """N pictures in files, and what is known of each.

    Attributes:
        name: The name of the data set, as `load` takes it.
        root: The folder that the files are relative to.
        files: The N files.
        labels: Their labels; of masks, the names of the classes alone.
        splits: The split of each, `(N,)` strings; "train" where the source has none.
        lacks: What the source has not where all are "train", such as "no folder test".
        groups: The group of each picture, empty for one of its own; None without groups.
        masks: The mask of each picture, relative to `root`.
        mask_code: Makes a mask `(H, W)` uint8 of the bytes of its file.
        notes: What was found or guessed, a sentence each.
        warnings: What may spoil a result, a sentence each.
    """

    name: str
    root: str
    files: list[str]
    labels: Labels
    splits: np.ndarray
    lacks: str
    groups: list[str] | None = None
    masks: list[str] | None = None
    mask_code: MaskCode | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def part(self, rows: np.ndarray) -> "Rows":
        """The rows with some numbers."""
        take = lambda values: values and [values[i] for i in rows]
        return dataclasses.replace(
            self,
            files=take(self.files),
            labels=self.labels._replace(values=self.labels.values[rows]),
            splits=self.splits[rows],
            groups=take(self.groups),
            masks=take(self.masks),
        )


def labels_in_names(paths: Sequence[str], pattern: str) -> Labels:
    """Finds the class of each file in its name, as fast.ai's `from_name_re` does.

    Raises:
        ValueError: If the pattern is none of one group, or does not match a name.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"`data.label_pattern` must be a pattern: {error}") from error
    matches = [compiled.search(re.split(r"[\\/]", path)[-1]) for path in paths]
    unmatched = [path for path, match in zip(paths, matches) if not (match and match.re.groups)]
    if unmatched or not paths:
        raise ValueError(
            "`data.label_pattern` must match the name of each file, with the class in brackets, "
            f"such as '^(.+)_\\d+'. Received: {pattern!r}, and {len(unmatched):,} names that it "
            f"does not match, such as {unmatched[:5]}"
        )
    texts = [unicodedata.normalize("NFC", match[1] or "") for match in matches if match]
    names = sorted({*texts})
    return Labels("classes", tuple(names), np.searchsorted(names, texts).astype("int32"))


def with_masks(rows: Rows, masks: list[str], config: DataConfig) -> Rows:
    """Adds the mask of each row, relative to the root, and what its pixels stand for."""
    train = [os.path.join(rows.root, masks[i]) for i in np.flatnonzero(rows.splits == "train")]
    code = mask_code(rows.root, train, config)
    labels = Labels("masks", code.names, np.zeros((len(masks), 1)))
    return dataclasses.replace(rows, masks=masks, mask_code=code, labels=labels)


def open_rows(rows: Rows, channels: int, config: DataConfig) -> Dataset:
    """Opens rows as a data set, and holds out `config.test_percent` where nothing is.

    Raises:
        ValueError: If there are no training images, or none of a class or label.
    """
    if rows.labels.kind == "classes":
        rows = rows.part(np.flatnonzero(rows.labels.values != NO_CLASS))
    if rows.groups is None and len({*rows.files}) < len(rows.files):
        rows = dataclasses.replace(rows, groups=rows.files)  # a picture in several rows is one
    held_out_by, splits = "", rows.splits.astype(object)
    if "train" in splits and without_held_out({*splits}, config.test_split):
        (train,) = np.nonzero(splits == "train")
        known = rows.part(train)
        kind, names, values, _ = known.labels
        held_out, held_out_by = hold_out(
            rows.lacks, known.files, kind, values, known.groups, config, bool(names)
        )
        splits[train[held_out]] = "test"
    _check_trained(rows, splits)
    unreadable, opened = UnreadableImages(config.on_corrupt == "stop"), {}
    for split in sorted({*splits}, key=lambda name: (name != "train", name)):
        part = rows.part(np.flatnonzero(splits == split))
        opened[split] = _open(part, channels, unreadable)
    return Dataset(
        rows.name,
        opened,
        rows.labels.names,
        unreadable,
        held_out_by,
        rows.labels.kind,
        rows.notes,
        rows.warnings,
    )


def _check_trained(rows: Rows, splits):
    """Raises ValueError unless there is a split train that has all classes or labels."""
    if "train" not in splits:
        raise ValueError(
            f"{rows.name!r} needs pictures of the split train. Received: {sorted({*splits})}"
        )
    labels = rows.labels
    if broken := [name for name in labels.names if not is_one_line(name) or not name]:
        raise ValueError(
            f"The name of a class must be text on one line. Received: {broken[:5]} in "
            f"{rows.name!r}. Rename it; in a table, look for a quote that is not closed"
        )
    if labels.kind == "masks" or not labels.names:
        return
    counts = LABEL_KINDS[labels.kind].counts(labels.values[splits == "train"], labels.names)
    if untrained := [name for name, count in counts.items() if not count]:
        every = LABEL_KINDS[labels.kind].counts(labels.values, labels.names)
        where = "only in other splits" if any(every[n] for n in untrained) else "nowhere"
        remedy = "Leave out its rows" if labels.kind == "classes" else "Leave out its column"
        raise ValueError(
            f"All {labels.kind} must have training images. Received: {rows.name!r}, which has "
            f"{untrained} {where}. {remedy}, or add training images"
        )


def is_one_line(name: str) -> bool:
    """Whether a name has no line breaks, no control characters, and no bytes that are no text."""
    return not any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in name)


def _open(rows: Rows, channels: int, unreadable: UnreadableImages) -> Split:
    """One split of rows."""
    extras.check("PIL", extra="data", purpose="Reading pictures")
    if any(path.lower().endswith(HEIC) for path in rows.files):
        extras.check("pillow_heif", extra="heic", purpose="Reading HEIC pictures")
    places = [os.path.join(rows.root, path) for path in rows.files]
    masks = [os.path.join(rows.root, path) for path in rows.masks or ()]
    origin = Origin(
        files=lambda: [*zip(rows.files, places), *zip(rows.masks or (), masks)],
        name=places.__getitem__,
        channels=channels,
        unreadable=unreadable,
    )
    if rows.mask_code:
        return mask_split(places, masks, rows.mask_code, origin, rows.groups)
    labels = rows.labels.values
    return Split(
        labels,
        encoded=lambda i: (read_file(places[i]), labels[i]),
        origin=origin,
        groups=rows.groups,
    )
