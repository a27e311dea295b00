"""Describes formats, without files: names, layouts, and what a format can hold."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from vit_keras.weights.architectures import (
    HybridArchitecture,
    Numerics,
    VisionTransformerArchitecture,
)
from vit_keras.weights.formats.tensor_links import Link
from vit_keras.weights.recognition import family_name


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
        numerics: Takes the configuration; returns the numerics of the project's code.
        refine: Takes these numerics, `{canonical name: shape}` and the configuration; returns
            numerics corrected by the tensors.
        assumption: Takes `{canonical name: shape}`, the configuration and the user's arguments;
            returns what is assumed about an incomplete file, for a message, or an empty text.
        slots_optional: Whether files may have positions for only the patches, without slots for the
            tokens before them.
        canonical: Takes a name; returns it without old spellings and prefixes, as in `links`.
        options: The names of the fields of `ViTOptions` that its files can hold, or a function that
            returns those for an architecture.
        positions: The kinds of position embeddings, likewise.
        positions_at: The places where positions may be added.
        classifiers: The allowed inputs of classifiers; empty if `check` decides.
        hybrids: Whether its files can hold a ResNet stem.
        channels: The number of image channels if the project's code takes no other.
        holds_activation: Whether its folders record the activation of the classifier.
        values: The canonical names of small tensors whose values determine how the model computes;
            the configuration holds them in a dictionary "values".
        head: The prefixes of canonical names that belong to the classifier.
        ignored: The prefixes of canonical names that models do not use.
        wraps: Takes the canonical names; returns whether a classifier that another program added
            has the same input as the format's own.
        architecture: The class whose `from_model` makes the input of `links`.
        check: Takes an architecture; raises ValueError if the format cannot hold it.
        as_written: Takes an architecture; returns the equivalent one that its files describe.
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
    numerics: Callable[[dict], Numerics | None]
    refine: Callable[..., Numerics] = lambda old, shapes, config: old
    slots_optional: bool = False
    assumption: Callable[..., str] = lambda shapes, config, overrides: ""
    canonical: Callable[[str], str] = str
    admits: Callable[[set[str]], bool] | None = None
    file_names: str | None = None
    options: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ()
    positions: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ("learned",)
    positions_at: tuple[str, ...] = ("stem",)
    classifiers: tuple[str, ...] = ()
    hybrids: bool = False
    channels: int | None = None
    holds_activation: bool = False
    values: tuple[str, ...] = ()
    head: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    wraps: Callable[[set[str]], bool] = lambda names: True
    architecture: type[Any] = VisionTransformerArchitecture
    check: Callable[[Any], None] = lambda arch: None
    as_written: Callable[[Any], Any] = lambda arch: arch
    config_files: Callable[..., dict[str, dict]] | None = None
    folder_name: str | None = None
    h5_groups: Callable[..., dict[str, dict[str, list]]] | None = None


def check_held(row: Format, arch) -> None:
    """Raises ValueError if a format cannot hold an option or the images of a model."""
    if not isinstance(arch, VisionTransformerArchitecture):
        return
    held, positions = (
        names(arch) if callable(names) else names for names in (row.options, row.positions)
    )
    options = {k: v for k, v in arch.options.changed().items() if k not in held}
    if row.channels not in (None, arch.channels):
        options["channels"] = arch.channels
    if arch.position_embedding not in positions:
        options["position_embedding"] = arch.position_embedding
    if arch.position_embedding_at not in row.positions_at:
        options["position_embedding_at"] = arch.position_embedding_at
    if row.classifiers and arch.classifier not in row.classifiers:
        options["classifier"] = arch.classifier
    if isinstance(arch, HybridArchitecture) and not row.hybrids:
        options["resnet_layers"] = arch.resnet_layers
    if options:
        received = ", ".join(f"{name}={value!r}" for name, value in options.items())
        family = family_name(arch.arguments)
        received += f", of family {family}" if family else ""
        raise ValueError(
            f"The format {row.name!r} has no place for a model with {received}. Save it as .keras "
            "or .weights.h5, or in the format of its family"
        )


def check_only(holder: str, arch: VisionTransformerArchitecture, only: dict) -> None:
    """Raises ValueError for a model with a head, or without the required values of arguments."""
    only = {"num_classes": None, "representation_size": None, **only}
    whole = {**dataclasses.asdict(arch.options), **vars(arch)}
    received = {name: whole[name] for name in only}
    if received != only:
        rule, got = (", ".join(f"{k}={v!r}" for k, v in x.items()) for x in (only, received))
        raise ValueError(f"{holder} must have {rule}. Received: {got}")
