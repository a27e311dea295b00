"""Looks at a data set before training: what its pictures are, and what may spoil a result."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vit_keras.config import DataConfig
from vit_keras.data.dataset import Dataset, Split, base_split, count_classes
from vit_keras.data.depth import as_array, as_picture, at_levels, pillow, viewable
from vit_keras.data.files import Layout
from vit_keras.data.held_out import train_dev_test
from vit_keras.data.labels import described
from vit_keras.data.picture_files import decode, open_encoded
from vit_keras.support import extras
from vit_keras.support.checks import listed
from vit_keras.support.command_line import on_one_line
from vit_keras.support.machine import read_ahead
from vit_keras.support.tasks import KINDS

HASHED = 128  # pixels: pictures are reduced to one or two times this side before they are hashed
BITS, SIDE = 64, 32  # of a phash, and pixels of the picture that it is computed from
SMALLEST = 32  # pixels, the smallest side for a phash: smaller pictures merely look alike
COLOR_DISTANCE = 16  # levels by which a quarter's mean color may differ in a copy
SPOILED = {  # by what differs between two pictures that look alike
    "splits": "in two splits, so the measured accuracy is too high: keep one of each pair",
    "classes": "with two labels: compare them, and keep the right one",
    "": "twice in a class: keep one of each pair",
}
SKEWED = 3.0  # ratio of the largest class to the smallest
FEW = 10  # training pictures per class
UNKNOWN = 0.5  # share of unknown values that deserves a warning
LINES = 10  # shown in a warning
# Pictures of unsupported kinds; most need one command or one export to become readable.
UNSUPPORTED = (
    *(".jxl", ".jp2", ".j2k", ".psd", ".svg", ".tga", ".ppm", ".pgm", ".pbm", ".ico", ".eps"),
    *(".pdf", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2", ".xcf"),
)


class Picture(NamedTuple):
    """What is known about a picture.

    Attributes:
        name: Its path, or its position in the data set.
        split: The split that it belongs to.
        class_name: Its class.
        error: Why training cannot read it, or None.
        width: The upright width in pixels.
        height: The upright height in pixels.
        kind: Pillow's mode, such as "RGB", "L" or "P, transparent", or "uint16 of 6 channels".
        digest: The SHA-256 of its bytes.
        phash: The 64 bits of the perceptual hash.
        colors: The mean RGB levels of each quarter.
        levels: The lowest and the highest level of its file.
    """

    name: str
    split: str
    class_name: str
    error: str | None = None
    width: int = 0
    height: int = 0
    kind: str = ""
    digest: str = ""
    phash: int = 0
    colors: tuple[int, ...] = (0,) * 12
    levels: tuple[float, float] = (0, 0)


def splits_of_run(dataset: Dataset, config: DataConfig) -> dict[str, Split]:
    """Returns the splits that a run uses, by name; for most kinds of data sets, the others too.

    Raises:
        ValueError: If a split of the run does not exist.
    """
    splits = config.train_split, config.test_split
    names = [base_split(name, dataset.splits) or name for name in splits]
    if config.dev_percent:
        names[1] = f"{config.dev_percent:g}% of {names[0]}"
    train, dev, test = train_dev_test(dataset, config)
    chosen = dict(zip(names, (train, dev))) | ({} if test is dev else {"the fold": test})
    if not dataset.name.startswith(("folder:", "table:", "shards:", "hf:")):
        return chosen
    used = {part.split("[")[0] for name in names for part in name.split("+")}
    return chosen | {name: split for name, split in dataset.splits.items() if name not in used}


def survey_pictures(dataset: Dataset, splits: dict[str, Split]) -> Iterator[Picture]:
    """Reads every picture of some splits as training does, on all cores.

    Args:
        dataset: The data set.
        splits: The splits to look at, by name.

    Returns:
        An iterator of one `Picture` for each picture, in the order of the splits. It never raises
        for an unreadable picture, but sets its `error`.

    Raises:
        ImportError: If a package of the extra `data` is not installed.
    """
    jobs = ((name, split, i) for name, split in splits.items() for i in range(len(split)))
    kind, names = dataset.kind, dataset.class_names
    text_of = lambda label: described(kind, label, names) if names else "no label"
    return read_ahead(lambda job: _look(*job, text_of), jobs)


def _look(split_name, split, index, text):
    name = split.name(index)
    channels = 3 if split.channels == 1 and not split.bands else split.channels  # for the colors
    try:
        data = split.encoded(index)
        pixels = as_array(decode(data, channels, None, split.bands))
        at_levels(pixels, split.levels)
        label = split.label(index, pixels.shape[:2])
        kind = _kind(data, pixels) if isinstance(data, bytes) else "in memory"
    except ImportError:
        raise
    except Exception as error:  # file libraries raise their own errors
        return Picture(name, split_name, text(split.labels[index]), split.fault(index, error))
    (height, width), digest = pixels.shape[:2], hashlib.sha256(bytes(data)).hexdigest()
    known = (name, split_name, text(label), None, width, height, kind, digest)
    return Picture(*known, *hashes(pixels), (pixels.min().item(), pixels.max().item()))


def _kind(data, pixels):
    if pixels.dtype == np.uint8:
        with contextlib.suppress(ValueError), open_encoded(data) as picture:
            return picture.mode + ", transparent" * picture.has_transparency_data
    return f"{pixels.dtype} of {as_array(decode(data, None)).shape[-1]} channels"


def hashes(pixels: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """Returns the perceptual hash of pixels `(H, W, C)`, and the mean colors of their quadrants.

    The hash has a bit for each of the 8 by 8 lowest frequencies of the cosine transform: whether
    its value is above their median. The `phash` of imagehash is the same, but needs PyWavelets.
    The picture is reduced by an integer factor first, which changes few bits and saves time.
    """
    picture = as_picture(viewable(pixels)).convert("RGB")
    picture = picture.reduce(max(1, min(picture.size) // HASHED))
    resampling = pillow().Resampling
    gray = picture.convert("L").resize((SIDE, SIDE), resampling.LANCZOS)
    lowest = extras.require("scipy.fft").dctn(np.asarray(gray, "float64"))[:8, :8]
    bits = np.packbits(lowest > np.median(lowest)).tobytes()
    quarters = np.asarray(picture.resize((2, 2), resampling.BOX))
    return int.from_bytes(bits, "big"), tuple(quarters.ravel().tolist())


class Pair(NamedTuple):
    """Two pictures that look alike, the earlier one first.

    Attributes:
        distance: The number of bits in which their perceptual hashes differ, 0 to 64.
    """

    first: Picture
    second: Picture
    distance: int

    @property
    def is_exact(self) -> bool:
        """Whether both have the same bytes."""
        return self.first.digest == self.second.digest


def find_pairs(pictures: Sequence[Picture], distance: int = 4) -> list[Pair]:
    """Finds near-duplicates; if a side has fewer than 32 pixels, only identical files count.

    Each picture is paired with the most similar earlier one of the same split and class, of another
    split, of another class, and of another split and class. A picture that occurs n times thus
    gives n - 1 pairs, not n²/2.

    Args:
        pictures: From `survey_pictures`, the training images first.
        distance: The largest number of bits, 0 to 16, in which the hashes of a pair may differ.

    Returns:
        The pairs, the most similar first.
    """
    readable = [picture for picture in pictures if picture.error is None]
    exact = lambda p: (int(p.digest[:16], 16), *[0] * 12)
    look = lambda p: (p.phash, *p.colors) if min(p.width, p.height) >= SMALLEST else exact(p)
    rows = np.array([*map(look, readable)], "uint64").reshape(-1, 13)
    unique, inverse = np.unique(rows, axis=0, return_inverse=True)
    colors = unique[:, 1:].astype("int64")
    alike = collections.defaultdict(list)  # by row of `unique`, the similar rows
    for first, second, bits in near_hashes(unique[:, 0], distance):
        if abs(colors[first] - colors[second]).max() <= COLOR_DISTANCE:
            alike[first].append((bits, second))
            alike[second].append((bits, first))
    earliest: dict[int, dict[tuple, int]] = {}  # by row of `unique`, and by split and class
    pairs = []
    for place, (picture, row) in enumerate(zip(readable, inverse.ravel().tolist())):
        best: dict[tuple, tuple[int, int]] = {}
        for bits, other in [(0, row), *alike.get(row, ())]:
            for group, first in earliest.get(other, {}).items():
                kind = group[0] == picture.split, group[1] == picture.class_name
                best[kind] = min(best.get(kind, (BITS, 0)), (bits, first))
        pairs += [Pair(readable[first], picture, bits) for bits, first in best.values()]
        earliest.setdefault(row, {}).setdefault((picture.split, picture.class_name), place)
    return sorted(pairs, key=lambda pair: pair.distance)


def near_hashes(hashes: np.ndarray, distance: int) -> list[tuple[int, int, int]]:
    """Finds all pairs of 64-bit hashes `(N,)` that differ in at most `distance` bits.

    If two hashes differ in d bits, at least one of d + 1 bands of bits is the same in both. So
    hashes are sorted by each band and compared only within equal bands.

    Returns:
        The pairs as (first index, second index, bits), each once.
    """
    hashes, pairs = np.asarray(hashes, "uint64"), set[tuple[int, int, int]]()
    edges = np.linspace(0, BITS, distance + 2).astype(int).tolist()
    for low, high in itertools.pairwise(edges):
        bands = (hashes >> np.uint64(low)) & np.uint64(2 ** (high - low) - 1)
        order = np.argsort(bands, kind="stable")
        places, step = np.arange(len(order) - 1), 1
        while len(places):
            one, two = order[places], order[places + step]
            bits = np.bitwise_count(hashes[one] ^ hashes[two])
            near = bits <= distance
            ends = np.sort([one[near], two[near]], axis=0).tolist()
            pairs.update(zip(*ends, bits[near].tolist()))
            step += 1
            places = places[(bands[one] == bands[two]) & (places + step < len(order))]
    return list(pairs)


@dataclasses.dataclass
class Review:
    """The findings about a data set.

    Attributes:
        problems: Why it cannot be trained on.
        warnings: What may spoil the result.
        facts: Numbers and names by topic, in JSON types.
    """

    problems: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def warn(self, names: Sequence[str], what: str, advice: str = "") -> None:
        """Adds a warning about some names, unless there are none."""
        if names:
            self.warnings.append(f"{what}: {listed(map(on_one_line, names))}{advice}")

    def add_files(self, layout: Layout, needs_classes: bool = True) -> None:
        """Adds the findings from the names of a folder's files, and of its folders of classes."""
        unsupported = [path for path in layout.others if path.lower().endswith(UNSUPPORTED)]
        others = {*layout.others}.difference(unsupported)
        kinds = collections.Counter(os.path.splitext(p)[1].lower() or "no suffix" for p in others)
        self.facts |= {"unsupported": unsupported, "not_pictures": dict(sorted(kinds.items()))}
        self.facts |= {"in_no_class": layout.loose, "unused_folders": layout.unused}
        loose = layout.loose if needs_classes and layout.classes else []
        splits = f". The splits are {', '.join(layout.roots)}"
        self.warn(unsupported, "unsupported pictures are left out", ". Convert them to JPEG or PNG")
        self.warn(loose, "pictures outside folders of classes are left out", ". Move them into one")
        self.warn(layout.unused, "folders that are not splits are left out", splits)
        self.problems += layout.problems if needs_classes else []

    def add_labels(self, dataset: Dataset, splits: dict[str, Split]) -> None:
        """Adds the findings from the labels of some splits, training images first."""
        kind, names = dataset.kind, dataset.class_names
        self.facts |= {"kind": kind, "classes": [*names], "notes": [*dataset.notes]}
        self.facts["images"] = {name: len(split) for name, split in splits.items()}
        self.warnings += spoilers(dataset, splits)
        if kind in ("labels", "numbers"):
            unknown = np.isnan(next(iter(splits.values())).labels).mean(axis=0) > UNKNOWN  # (K,)
            what = f"{kind} that are unknown for more than half of the training pictures"
            advice = ". They are learned from the other pictures alone"
            self.warn(list(itertools.compress(names, unknown)), what, advice)
        if kind == "numbers":
            self.facts["numbers"] = {
                key: {name: _known_figures(of) for name, of in zip(names, split.labels.T)}
                for key, split in splits.items()
            }
        elif names:
            self._add_counts(count_classes(dataset, splits))

    def _add_counts(self, counts: dict[str, dict[str, int]]) -> None:
        """Adds the findings from the numbers of pictures by split and class."""
        (_, train), *held_out = counts.items()
        self.facts["pictures"] = counts
        ranked = sorted(train, key=train.__getitem__)
        least, most = ranked[0], ranked[-1]
        if train[least]:
            ratio = train[most] / train[least]
            self.facts["imbalance"] = round(ratio, 3)
            if ratio >= SKEWED:
                self.warnings.append(
                    f"imbalance: {most!r} has {ratio:.1f} times as many pictures as {least!r} "
                    f"({train[most]:,} and {train[least]:,}). Add pictures of the small classes, "
                    "and judge a model by each class's accuracy, which `vit-keras evaluate` prints"
                )
        few = [name for name in ranked if train[name] < FEW]
        self.warn(few, f"classes with fewer than {FEW} training pictures", ". Add pictures")
        for split, count in held_out:
            what = f"classes without pictures in {split!r}, so their accuracy stays unknown"
            self.warn([name for name in count if not count[name]], what)

    def add_pictures(
        self, pictures: Sequence[Picture], splits: dict[str, Split], stop: bool = True
    ) -> None:
        """Adds what `survey_pictures` found; with `stop`, an unreadable picture is a problem."""
        self.facts["unreadable"] = errors = {p.name: p.error for p in pictures if p.error}
        if errors:
            stops = "each stops a run. Repair or remove them, or set data.on_corrupt to skip"
            which = stops if stop else "the next picture replaces each"
            texts = self.problems if stop else self.warnings
            texts.append(_block(f"{len(errors):,} unreadable; {which}:", [*errors.values()]))
        readable = [picture for picture in pictures if not picture.error]
        if self.facts.get("kind", "classes") == "classes":  # others have sets of classes
            left = {(p.split, p.class_name) for p in readable}
            for split, name in sorted({(p.split, p.class_name) for p in pictures} - left):
                self.problems.append(f"no picture of {name!r} in {split!r} can be read")
        if readable:
            width, height = np.array([(p.width, p.height) for p in readable]).T
            sides = {"width": width, "height": height, "aspect": np.round(width / height, 3)}
            self.facts |= {name: _figures(values) for name, values in sides.items()}
            low, high = zip(*(p.levels for p in readable))
            self.facts["levels"] = [min(low), max(high)]
            self.facts["kinds"] = dict(collections.Counter(p.kind for p in readable).most_common())
        annotated = next(iter(splits.values())).source.sides
        if annotated is not None:
            said = annotated[np.concatenate([split.indices for split in splits.values()])].tolist()
            are_other = lambda p, said: said[0] and not p.error and [p.height, p.width] != said
            other = [p.name for p, of_p in zip(pictures, said, strict=True) if are_other(p, of_p)]
            advice = (
                ". Their boxes are scaled, and are misplaced if they were annotated before the "
                "pictures were turned upright: look at them with --out sheet.png"
            )
            self.warn(other, "pictures whose sides differ from those in their annotations", advice)

    def add_pairs(self, pairs: Sequence[Pair]) -> None:
        """Adds the findings about near-duplicates."""
        self.facts["duplicates"] = rows = [*map(_pair_facts, pairs)]
        differing = lambda row: [name for name in SPOILED if name and len({*row[name]}) > 1]
        for name, what in SPOILED.items():
            if chosen := [row for row in rows if name in (differing(row) or [""])]:
                head = f"pictures that look alike, {what} ({len({x['second'] for x in chosen}):,})"
                self.warnings.append(_block(head, [*map(_line, chosen)]))


def _figures(values):
    """Returns the least, the median and the greatest of some values; nothing if there are none."""
    figures = (np.min, np.median, np.max) if len(values) else ()
    return {figure.__name__: round(float(figure(values)), 6) for figure in figures}


def _known_figures(values):
    known = values[~np.isnan(values)].astype("float64")
    return {"known": len(known), **_figures(known)}


def _pair_facts(pair):
    one, two, bits = pair
    groups = {"splits": [one.split, two.split], "classes": [one.class_name, two.class_name]}
    names = {"first": one.name, "second": two.name}
    return {**names, "distance": bits, "exact": pair.is_exact, **groups}


def _line(row):
    same = "the same file" if row["exact"] else f"{row['distance']} of 64 bits differ"
    pictures = zip((row["first"], row["second"]), row["splits"], row["classes"])
    both = " and ".join(f"{name} ({split}, {of})" for name, split, of in pictures)
    return on_one_line(f"{both}: {same}")


def _block(head, lines):
    """Writes the first few lines below a heading, and counts the rest."""
    more = [f"and {len(lines) - LINES:,} more"] if len(lines) > LINES else []
    return "\n  ".join([head, *lines[:LINES], *more])


def spoilers(dataset: Dataset, splits: dict[str, Split]) -> list[str]:
    """Says what may spoil the results on some splits: shared groups, and constant numbers."""
    review = Review(warnings=[*dataset.warnings])
    groups = {name: {*(split.groups or ())} - {""} for name, split in splits.items()}
    for one, other in itertools.combinations(groups, 2):
        what = f"groups in both {one!r} and {other!r}, so the measured result is too good"
        review.warn(sorted(groups[one] & groups[other]), what)
    for name, split in splits.items() if dataset.kind == "numbers" else ():
        same = [len(np.unique(values[~np.isnan(values)])) < 2 for values in split.labels.T]
        what = f"numbers that are constant in {name!r} and so have no R²"
        review.warn(list(itertools.compress(dataset.class_names, same)), what, ". Leave them out")
    return review.warnings


def describe_splits(
    dataset: Dataset, train: Split, test: Split, dev: Split | None = None
) -> list[str]:
    """Describes the pictures and classes of a run.

    Args:
        dataset: The data set.
        train: The images that the run trains on.
        test: The images that the run is judged on.
        dev: The images that it is tuned on; None for `test`.

    Returns:
        A line with the numbers of pictures and classes, the held-out share, and the smallest and
        the largest class; and lines that say how the images were held out, what was found or
        guessed about the files, and what may spoil the result. Class sizes that are unknown without
        reading the images are left out.
    """
    kind, count = KINDS[dataset.kind], len(dataset.class_names)
    outputs = f"of {count} {kind.one if count == 1 else kind.several}"
    more = 0 if dev is None or dev is test else len(dev)
    line = (
        f"{dataset.name}: {len(train):,} pictures {outputs if count else 'without labels'}, and "
        f"{len(test):,} ({len(test) / (len(train) + more + len(test)):.1%}) held out"
    )
    line += f", and {more:,} to choose by" if more else ""
    if train.labels_are_known and count:
        (counts,) = count_classes(dataset, {"train": train}).values()
        least, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
        if counts[least] == counts[most]:
            line += f"; each {kind.one} has {counts[most]:,}"
        else:
            line += f"; a {kind.one} has {counts[least]:,} ({least}) to {counts[most]:,} ({most})"
    warnings = spoilers(dataset, {"train": train, "test": test})
    return [line, *dataset.notes, *(f"warning: {text}" for text in warnings)]
