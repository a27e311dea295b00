"""Describes formats, without files: their names and layouts, and links of tensors and variables."""

import dataclasses
import itertools
import math
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import keras
import numpy as np

from vit_keras.models.architectures import Numerics, VisionTransformerArchitecture


@dataclasses.dataclass(frozen=True)
class Link:
    """Ties tensors of a file to variables of a model.

    Attributes:
        theirs: Canonical names of tensors in the file.
        ours: Paths of variables in the model.
        read: Takes the arrays of `theirs` and returns those of `ours`, in order.
        write: The reverse of `read`.
        unpadded: Whether shapes with and without leading ones are equivalent.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[..., tuple[np.ndarray, ...]]
    write: Callable[..., tuple[np.ndarray, ...]]
    unpadded: bool = False

    @property
    def path(self) -> str:
        """The path of the first variable, or "" for tensors that no variable holds."""
        return self.ours[0] if self.ours else ""

    def fits(self, shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
        """Whether a tensor with `shape` can be read as one with the written shape `expected`."""
        start = lambda sizes: itertools.dropwhile(lambda size: self.unpadded and size == 1, sizes)
        return tuple(start(shape)) == tuple(start(expected))


def misfits(
    links: Iterable[Link],
    shapes: Mapping[str, tuple[int, ...]],
    variables: Mapping[str, keras.Variable],
    sized: Collection[str] = (),
) -> list[str]:
    """Returns a line for each tensor that is missing in a file, or that has another shape there.

    Args:
        links: The links.
        shapes: The shapes in the file, by canonical names.
        variables: The variables of the model, by paths.
        sized: Paths of variables whose tensors may have other shapes.
    """
    faults = []
    for link in links:
        ours = ", ".join(link.ours)
        absent = [name for name in link.theirs if name not in shapes]
        faults += [f"missing in the file: {name} -> {ours}" for name in absent]
        if absent or link.path in sized:
            continue
        blank = [np.broadcast_to(np.float32(0), variables[path].shape) for path in link.ours]
        faults += [
            f"{name} -> {ours} is {shapes[name]} in the file, {expected.shape} in the model"
            for name, expected in zip(link.theirs, link.write(*blank))
            if not link.fits(shapes[name], expected.shape)
        ]
    return faults


BATCH_NUMBERS = 2**23  # of tensors to read together; a larger tensor is read with fewer others


def read_links(links: Iterable[Link], file: Any, made: Mapping = types.MappingProxyType({})):
    """Yields links, the paths of their variables, and new values.

    Args:
        links: The links.
        file: An open `WeightFile`.
        made: The values of some links, by the path of the first variable.
    """
    links = list(links)
    counts = (sum(math.prod(file.shapes[name]) for name in link.theirs) for link in links)
    ends = zip(itertools.accumulate(counts), links)
    for _, batch in itertools.groupby(ends, lambda pair: pair[0] // BATCH_NUMBERS):
        few = [link for _, link in batch]
        theirs = [name for link in few if link.path not in made for name in link.theirs]
        arrays = file.tensors.read_all(dict.fromkeys(file.names[name] for name in theirs))
        for link in few:
            values = made.get(link.path)
            if values is None:
                values = link.read(*(arrays[file.names[name]] for name in link.theirs))
            yield from ((link, *value) for value in zip(link.ours, values))
        del arrays, values  # before the next ones are read


def assign(links: Iterable[Link], file: Any, made: Mapping, variables: Mapping) -> None:
    """Assigns the variables of links; the arguments are as in `read_links`."""
    for _, path, array in read_links(links, file, made):
        shape = variables[path].shape  # only its size differs: the file leaves out a 0
        variables[path].assign(np.ascontiguousarray(np.broadcast_to(array, shape)))


def same(theirs: str, ours: str) -> Link:
    """Links one tensor with the same layout on both sides."""
    return Link((theirs,), (ours,), lambda x: (x,), lambda x: (x,))


def zeros(ours: str) -> Link:
    """Sets a variable that files leave out to zero, and refuses to write another value."""

    def write(x):
        if x.any():
            raise ValueError(
                f"{ours!r} must be 0, because the format has no place for it. Received: a model in "
                "which it is not; save it as .keras or .weights.h5"
            )
        return ()

    return Link((), (ours,), lambda: (np.zeros((), "float32"),), write)


def constant(name: str, value, rule: str = "") -> Link:
    """Writes a tensor that models do not have; with a `rule`, reading refuses another value."""
    value = np.asarray(value, "float32")

    def read(held):
        if rule and not np.array_equal(held, value):
            raise ValueError(f"{rule}. Received: {held}")
        return ()

    return Link((name,), (), read, lambda: (value,))


def unread(names: Iterable[str]) -> Link:
    """Accounts for tensors of a file that models do not have."""
    return Link(tuple(names), (), lambda *x: (), lambda: ())


def arranged(theirs: str, ours: str, pattern: str, **sizes: int) -> Link:
    """Links one tensor whose axes are split and rearranged, in the notation of einops.

    Args:
        theirs: The name of the tensor.
        ours: The path of the variable.
        pattern: The axes in the file and in the model, such as "(h d) w -> w h d".
        **sizes: The sizes of axes in parentheses. One size in each pair may be left out.
    """
    left, right = pattern.split(" -> ")
    groups = [(inner or axis).split() for inner, axis in re.findall(r"\(([^)]*)\)|(\w+)", left)]
    names = [axis for group in groups for axis in group]
    order = [names.index(axis) for axis in right.split()]

    def read(x):
        held: dict[str, int] = {}
        for group, size in zip(groups, x.shape):
            others = math.prod(sizes.get(axis, 1) for axis in group)
            held |= {axis: sizes.get(axis, size // others) for axis in group}
        return (x.reshape([held[axis] for axis in names]).transpose(order),)

    def write(x):
        x = x.transpose(np.argsort(order))
        held = dict(zip(names, x.shape))
        return (x.reshape([math.prod(held[axis] for axis in group) for group in groups]),)

    return Link((theirs,), (ours,), read, write)


def stacked(theirs: str, links: list[Link], sizes: list[int], axis: int) -> Link:
    """Links one tensor that holds those of several links, of `sizes` along an axis."""
    ends = np.cumsum(sizes)[:-1]

    def read(x):
        pieces = zip(links, np.split(x, ends, axis))
        return tuple(value for part, piece in pieces for value in part.read(piece))

    def write(*arrays):
        left = iter(arrays)
        pieces = [part.write(*itertools.islice(left, len(part.ours))) for part in links]
        return (np.concatenate([piece for (piece,) in pieces], axis),)

    return Link((theirs,), tuple(path for part in links for path in part.ours), read, write)


@dataclasses.dataclass(frozen=True)
class Format:
    """One row in the table of formats.

    Attributes:
        name: The name for `source=` and `format=`.
        suffixes: The suffixes of the files to write, the usual one first.
        detect: Takes a set of canonical names; returns whether they belong to this format.
        admits: The same for ambiguous tensors if the user or the file's name gives the format; None
            to use `detect`.
        file_names: A regular expression for the beginning of such file names.
        infer: Takes `{canonical name: shape}` and the configuration; returns the constructor's
            arguments that they determine.
        links: Takes an architecture, the canonical names of a file to read (None to write), and the
            configuration beside it; returns the links.
        numerics: Takes `{canonical name: shape}`, which may be empty, and the configuration;
            returns the numerics of the project's code.
        assumption: Takes `{canonical name: shape}`, the configuration and the user's arguments;
            returns what is assumed about an incomplete file, for a message, or an empty text.
        slots_optional: Whether files may have positions for only the patches, without slots for the
            tokens before them.
        canonical: Takes a name; returns it without old spellings and prefixes, as in `links`.
        holds_activation: Whether its folders record the activation of the classifier.
        values: The canonical names of small tensors whose values determine how the model computes;
            the configuration holds them in a dictionary "values".
        head: The prefixes of canonical names that belong to the classifier.
        ignored: The prefixes of canonical names that models do not use.
        wraps: Takes the canonical names; returns whether a classifier that another program added
            has the same input as the format's own.
        architecture: The class whose `from_model` makes the input of `links`.
        as_read: Takes an architecture; returns the arguments that the project's code fixes, or
            that its files hold in an equivalent form.
        config_files: Takes an architecture and its numerics; returns `{file name: JSON}`, the
            project's configuration beside the weights.
        folder_name: The name of its file in a folder; None for the usual name with its suffix.
        h5_groups: For `.weights.h5`: takes names and whether to write a folder; returns
            `{file: {name: groups}}`, see `containers.keras_h5.write_h5`.
    """

    name: str
    suffixes: tuple[str, ...]
    detect: Callable[[set[str]], bool]
    infer: Callable[[dict[str, tuple[int, ...]], dict], dict[str, Any]]
    links: Callable[..., Iterable[Link]]
    numerics: Callable[[dict[str, tuple[int, ...]], dict], Numerics | None]
    slots_optional: bool = False
    assumption: Callable[..., str] = lambda shapes, config, overrides: ""
    canonical: Callable[[str], str] = str
    admits: Callable[[set[str]], bool] | None = None
    file_names: str | None = None
    holds_activation: bool = False
    values: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    wraps: Callable[[set[str]], bool] = lambda names: True
    architecture: type[Any] = VisionTransformerArchitecture
    as_read: Callable[[Any], dict[str, Any]] = lambda arch: {}
    config_files: Callable[..., dict[str, dict]] | None = None
    folder_name: str | None = None
    h5_groups: Callable[..., dict[str, dict[str, list]]] | None = None
