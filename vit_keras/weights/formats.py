"""What a format is: names, layouts and numerics, without files."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vit_keras.models import Preprocessing
from vit_keras.weights import architecture

PUBLISHED = Preprocessing()


@dataclasses.dataclass(frozen=True)
class Numerics:
    """How the code that a format belongs to computes, prepares images and resizes a grid."""

    gelu: str = "exact"
    layer_norm_epsilon: float = 1e-6
    preprocessing: Preprocessing = PUBLISHED
    interpolation: str = "bilinear"
    class_names: tuple[str, ...] | None = None

    def to_json(self) -> dict:
        """For a file's metadata."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, note: dict) -> "Numerics":
        """The reverse of `to_json`."""
        pixels = Preprocessing(**_tuples(note["preprocessing"]))
        return cls(**{**_tuples(note), "preprocessing": pixels})


def _tuples(fields: dict) -> dict:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}


@dataclasses.dataclass(frozen=True)
class Link:
    """Tensors `theirs` of a file that are the variables `ours`.

    `read` takes their arrays and gives ours, in order; `write` the reverse.
    """

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    read: Callable[..., tuple[np.ndarray, ...]]
    write: Callable[..., tuple[np.ndarray, ...]]


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
