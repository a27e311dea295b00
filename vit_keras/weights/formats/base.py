"""Describes formats, without files: their names and layouts."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from vit_keras.models.architectures import Numerics, VisionTransformerArchitecture
from vit_keras.weights.formats.tensor_links import Link


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
