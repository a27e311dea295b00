"""What a format is: names, layouts and numerics, without files."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.numerics import Numerics


@dataclasses.dataclass(frozen=True)
class Link:
    """Tensors `theirs` of a file that are the variables `ours`.

    `read` takes their arrays and gives ours, in order; `write` the reverse. `unpadded` links take
    shapes with leading ones for those without.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[..., tuple[np.ndarray, ...]]
    write: Callable[..., tuple[np.ndarray, ...]]
    unpadded: bool = False

    def fits(self, theirs: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
        """Whether a tensor of the shape `theirs` can be read where `wanted` would be written."""
        if self.unpadded:
            theirs, wanted = (_without_ones(shape) for shape in (theirs, wanted))
        return theirs == wanted


@dataclasses.dataclass(frozen=True)
class Format:
    """One row of the registry.

    Attributes:
        name: what `source=` and `format=` call it.
        suffixes: of the files it is written to, the usual one first.
        detect: whether a set of canonical names is of this format.
        infer: `({canonical name: shape}, config) -> arguments of the model`, as far as known.
        links: `(architecture, canonical names or None to write) -> Links`.
        numerics: `config -> Numerics`.
        canonical: `name -> name`, spells old and prefixed names as `links` does.
        head: prefixes of canonical names that are the classifier's.
        ignored: prefixes of canonical names that no classifier reads.
        describe: the model's sizes, as `links` takes them; ValueError for a model that has none.
        check: raises ValueError for an architecture that the format cannot hold.
        folder: `(architecture, Numerics) -> {file name: JSON}` to write beside the weights.
        tree: for `.weights.h5`, `(names, folder) -> {file: {name: its groups}}`.
    """

    name: str
    suffixes: tuple[str, ...]
    detect: Callable[[set[str]], bool]
    infer: Callable[[dict[str, tuple[int, ...]], dict], dict[str, Any]]
    links: Callable[..., Iterable[Link]]
    numerics: Callable[[dict], Numerics]
    canonical: Callable[[str], str] = str
    head: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    describe: Callable[[Any], Any] = architecture.describe
    check: Callable[[Any], None] = lambda architecture: None
    folder: Callable[..., dict[str, dict]] | None = None
    tree: Callable[..., dict[str, dict[str, list]]] | None = None


def _without_ones(shape):
    first = next((i for i, size in enumerate(shape) if size != 1), len(shape))
    return tuple(shape[first:])


def unpadded(theirs: str, ours: str) -> Link:
    """One vector, which the file may hold as `(1, 1, 1, C)`."""
    read = lambda x: (x.reshape(-1),)
    return Link((theirs,), (ours,), read, lambda x: (x,), unpadded=True)


def same(theirs: str, ours: str) -> Link:
    """One tensor in one layout."""
    return Link((theirs,), (ours,), lambda x: (x,), lambda x: (x,))


def reshaped(theirs: str, ours: str, their_shape, our_shape) -> Link:
    """One tensor in two shapes, its elements in one order."""
    return Link(
        (theirs,), (ours,), lambda x: (x.reshape(our_shape),), lambda x: (x.reshape(their_shape),)
    )


def transposed(theirs: str, ours: str, axes: tuple[int, ...]) -> Link:
    """One tensor whose axes in the file are `axes` of ours."""
    back = tuple(int(i) for i in np.argsort(axes))
    return Link((theirs,), (ours,), lambda x: (x.transpose(back),), lambda x: (x.transpose(axes),))
