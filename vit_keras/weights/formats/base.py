"""Describes formats, and what tensors' names and shapes say about a model; reads no files."""

import collections
import dataclasses
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions
from vit_keras.models.architectures import Numerics, VisionTransformerArchitecture

Shapes = dict[str, tuple[int, ...]]


def halves(size: int) -> np.ndarray:
    """Pairs (i, i + d/2), rows first, as in DINOv3 and in this package."""
    return np.arange(size)


def interleaved(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), rows first, as in EVA-02."""
    return np.concatenate([np.arange(0, size, 2), np.arange(1, size, 2)])


def interleaved_columns_first(size: int) -> np.ndarray:
    """Pairs (2i, 2i + 1), columns first, as in PE."""
    pairs = np.roll(np.arange(size // 2), -(size // 4))
    return np.concatenate([2 * pairs, 2 * pairs + 1])


# Rotary positions rotate pairs of channels of queries and keys in a head, which projects order
# differently. This package pairs channels i and i + d/2, by rows for i < d/4 and by columns for the
# others. A layout gives the position of each channel in a file.
LAYOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "halves": halves,
    "interleaved": interleaved,
    "interleaved_columns_first": interleaved_columns_first,
}


def pairs(text: str) -> dict[str, Any]:
    """Reads `field=name` pairs, separated by spaces."""
    return dict(pair.split("=") for pair in text.split())


ATTENTION, POOL = "MultiHeadDotProductAttention_1", "MAPHead_0/MultiHeadDotProductAttention_0"
FREQUENCIES, RELATIVE = f"{ATTENTION}/rotary/frequencies", f"{ATTENTION}/relative_2d/table"
# Our variables and layers, those of blocks without `encoderblock_{i}/`, and the fields of
# `TensorNames` with their names.
FIELDS = pairs(
    # The stem, and that of a text tower.
    "embedding=patches cls/cls=cls dist/cls=dist registers/registers=registers "
    "pre_norm=pre_norm text_embedding=patches text_embedding/pos_embedding=positions "
    # A block.
    f"LayerNorm_0=norm_0 {ATTENTION}/query=query {ATTENTION}/key=key {ATTENTION}/value=value "
    f"{ATTENTION}/query_norm=query_norm {ATTENTION}/key_norm=key_norm {FREQUENCIES}=frequencies "
    f"{ATTENTION}/norm=attention_norm {ATTENTION}/out=out LayerScale_0/gamma=scale_0 "
    "LayerNorm_2=norm_2 MlpBlock_3/gate=gate MlpBlock_3/Dense_0=dense_0 MlpBlock_3/norm=mlp_norm "
    "MlpBlock_3/Dense_1=dense_1 LayerScale_1/gamma=scale_1 "
    # What follows the blocks.
    f"encoder_norm=norm MAPHead_0/probe=pool_probe {POOL}/query=pool_query {POOL}/key=pool_kv "
    f"{POOL}/value=pool_kv {POOL}/out=pool_out MAPHead_0/LayerNorm_0=pool_norm "
    "MAPHead_0/MlpBlock_0/Dense_0=pool_dense_0 MAPHead_0/MlpBlock_0/Dense_1=pool_dense_1 "
    "pre_logits=pre_logits head_dist=head_dist head=head projection=head"
)
DEFAULTS: dict[str, Any] = {  # of all fields
    **dict.fromkeys(FIELDS.values(), ""),
    **pairs("block= pooled_norm= qkv= pool_qkv= query_bias= value_bias= parallel_bias= relative="),
    **pairs("shared_relative= positions_of_blocks= projection= rotary=halves"),
    **dict.fromkeys(("projection_is_ours", "registers_last", "linear_patches", "rms"), False),
    "boxes": {},
    "spellings": (),
    "token_axes": 3,
    "position_axes": 3,
    "first": 0,
}


COVERS = ("class", "all", "patches")  # of positions, the likeliest first


def covered_positions(arguments: dict, positions: int, image_size=None, covers=COVERS) -> dict:
    """Returns the image size and the tokens that the learned positions cover.

    Args:
        arguments: The other arguments of the model.
        positions: The number of learned positions; 0 for a model without any.
        image_size: Height and width from a configuration; None guesses a square grid.
        covers: The values of `ViTOptions.position_cover` to try.

    Returns:
        `image_size`, unless unknown, and the options `position_cover` and `crop_to_patches`, unless
        they are the defaults.

    Raises:
        ValueError: The configuration contradicts the number of positions.
    """
    prefix = Prefix.of(arguments["classifier"], ViTOptions.among(arguments))
    stages, patch_size = arguments.get("resnet_layers"), arguments["patch_size"]
    stride = 1 if stages is None else variants.stem_stride(stages)  # of a hybrid's stem
    slots = {cover: prefix.positions(cover) for cover in covers}
    extra = None
    if image_size is None:
        extra = next((k for k in slots.values() if square_side(positions - k)), None)
        if extra is None:
            return {}
        image_size = [square_side(positions - extra) * patch * stride for patch in patch_size]
    elif positions:
        extra = positions - math.prod(size // patch for size, patch in zip(image_size, patch_size))
        if extra not in slots.values():
            raise ValueError(
                f"Images of {image_size} pixels, as the configuration states, have "
                f"{positions - extra} patches of {patch_size} after {prefix.count} other tokens. "
                f"Received: {positions} positions"
            )
    cover = next((name for name, count in slots.items() if count == extra), "all")
    changed: dict[str, Any] = {"image_size": tuple(image_size)}
    if prefix.positions(cover) != prefix.count:
        changed["position_cover"] = cover
    if any(side % patch for side, patch in zip(image_size, patch_size)):
        changed["crop_to_patches"] = True
    return changed


def count_blocks(names, prefix: str) -> int:
    """Counts the blocks called `{prefix}{i}.…` or `{prefix}{i}/…` in `names`."""
    pattern = re.compile(re.escape(prefix) + r"(\d+)[./]")
    return len({match[1] for match in map(pattern.match, names) if match})


def resnet_sizes(shapes: Shapes, root: str, units: str, axes: tuple[int, int]) -> dict[str, Any]:
    """Returns a ResNet's arguments from the names and shapes of its convolutions.

    Args:
        shapes: `{name: shape}`.
        root: The name of the first kernel.
        units: A regular expression for the names of a unit's tensors, with two groups, the numbers
            of the stage and of the unit.
        axes: The axes of the first kernel's input and output channels.
    """
    matches = filter(None, map(re.compile(units).match, shapes))
    counts = collections.Counter(int(stage) for stage, _ in {match.groups() for match in matches})
    channels, width = (shapes[root][axis] for axis in axes)
    return {
        "resnet_layers": tuple(count for _, count in sorted(counts.items())),
        "resnet_width": width / variants.ROOT_WIDTH,
        "channels": channels,
    }


def square_side(positions: int) -> int | None:
    """Returns the side of a square grid of `positions` patches, or None without such a grid."""
    side = math.isqrt(max(positions, 0))
    return side if side * side == positions and side else None


@dataclasses.dataclass(frozen=True)
class Format:
    """One row in the table of formats.

    Attributes:
        name: The name for `source=` and `format=`.
        suffixes: The suffixes of the files to write, the usual one first.
        detect: Takes a set of canonical names; returns whether they belong to this format.
        admits: Like `detect`, for ambiguous tensors whose format the user or the file's name gives;
            None to use `detect`.
        file_names: A regular expression for the beginning of file names that give the format.
        infer: Takes `{canonical name: shape}` and the configuration; returns the constructor's
            arguments that they determine.
        links: Takes an architecture, the canonical names of a file to read (None to write), and the
            configuration beside it; returns the links.
        numerics: Takes `{canonical name: shape}`, which may be empty, and the configuration;
            returns the numerics of the project's code.
        assumption: Takes `{canonical name: shape}`, the configuration and the user's arguments;
            returns what is assumed about an incomplete file, for a message, or an empty text.
        slots_optional: Whether files may have positions for the patches only, without slots for the
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
    links: Callable[..., Iterable[Any]]
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
