"""Describes formats, and what tensors' names and shapes say about a model; reads no files."""

import collections
import math
import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from vit_keras import variants
from vit_keras.layers.common import Prefix, ViTOptions, changed_options, check_choice, pair
from vit_keras.models.architectures import Numerics, VisionTransformerArchitecture

Shapes = dict[str, tuple[int, ...]]


# Rotary positions rotate pairs of channels of the queries and keys in a head. Projects order these
# channels differently. This package pairs channels i and i + d/2, by rows for i < d/4 and by
# columns for the others, as DINOv3 does. A layout gives the position of each channel in a file.
# EVA-02 interleaves pairs (2i, 2i + 1), rows first; PE has columns first.
LAYOUTS: dict[str, Callable[[int], np.ndarray]] = {
    "halves": np.arange,
    "interleaved": lambda size: np.arange(size).reshape(-1, 2).T.ravel(),
    "interleaved_columns_first": lambda size: np.roll(
        np.arange(size).reshape(-1, 2), -(size // 4), axis=0
    ).T.ravel(),
}


def pairs(text: str) -> dict[str, Any]:
    """Reads `field=name` pairs, separated by spaces."""
    return dict(pair.split("=") for pair in text.split())


def per_channel(values: tuple[float, ...], channels: int) -> list[float]:
    """Returns a mean or std with a value for each channel, as configurations hold it."""
    return list(values) * (channels if len(values) == 1 else 1)


# What projects call the forms of GELU.
GELUS = pairs(
    "gelu=exact gelu_python=exact gelu_new=tanh gelu_fast=tanh gelu_accurate=tanh "
    "gelu_pytorch_tanh=tanh gelu_tanh=tanh quick_gelu=quick"
)
GATES = ("silu", "swish")


def gelu_of(activation: str, is_gated: bool, field: str) -> Any:
    """Returns our name for a project's activation; "exact" for a gate's.

    Raises:
        ValueError: `VisionTransformer` does not have the activation in the `field`.
    """
    check_choice(activation, GATES if is_gated else GELUS, field)
    return GELUS.get(activation, "exact")


ATTENTION, POOL = "MultiHeadDotProductAttention_1", "MAPHead_0/MultiHeadDotProductAttention_0"
FREQUENCIES, RELATIVE = f"{ATTENTION}/rotary/frequencies", f"{ATTENTION}/relative_2d/table"
# Our variables and layers (those of blocks without `encoderblock_{i}/`), and the fields of
# `TensorNames` that hold their names.
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
# The defaults of these fields, and of all others.
DEFAULTS: dict[str, Any] = dict.fromkeys(FIELDS.values(), "")
DEFAULTS |= pairs("block= pooled_norm= qkv= pool_qkv= query_bias= value_bias= parallel_bias=")
DEFAULTS |= pairs("relative= shared_relative= positions_of_blocks= projection= rotary=halves")
DEFAULTS |= dict.fromkeys(("projection_is_ours", "registers_last", "linear_patches", "rms"), False)
DEFAULTS |= {"others": {}, "spellings": (), "token_axes": 3, "position_axes": 3, "first": 0}

LEARNED = {"position_embedding": "learned", "position_embedding_at": "stem"}  # the default
COVERS = ("class", "all", "patches")  # of positions, the likeliest first


def covered_positions(
    arguments: dict, positions: int, image_size=None, covers=COVERS, strict=True
) -> dict[str, Any]:
    """Returns the image size and the tokens that the learned positions cover.

    Args:
        arguments: The other arguments of the model.
        positions: The number of learned positions; 0 for a model without any.
        image_size: The side, or height and width, from a configuration; None or empty guesses a
            square grid.
        covers: The values of `ViTOptions.position_cover` to try.
        strict: Whether a size that contradicts the number of positions is refused, not ignored.

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
    image_size, extra = pair(image_size, "image_size") if image_size else None, None
    if image_size and positions:
        sides = (size // (patch * stride) for size, patch in zip(image_size, patch_size))
        extra = positions - math.prod(sides)
        if extra not in slots.values() and strict:
            raise ValueError(
                f"Images of {image_size} pixels, as the configuration states, have "
                f"{positions - extra} patches of {patch_size} after {prefix.count} other tokens. "
                f"Received: {positions} positions"
            )
    if not image_size or (positions and extra not in slots.values()):
        extra = next((k for k in slots.values() if square_side(positions - k)), None)
        if extra is None:
            return {}
        image_size = tuple(square_side(positions - extra) * patch * stride for patch in patch_size)
    cover = next(k for k in ("all", *covers) if extra in (None, prefix.positions(k)))
    crops = any(side % patch for side, patch in zip(image_size, patch_size))
    changes = {"position_cover": cover, "crop_to_patches": crops}
    return {"image_size": image_size, **changed_options(changes)}


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


class Format:
    """A project's format; each one is a subclass, and a row in the table of formats.

    The methods take canonical names: those of a file without old spellings and prefixes. `config`
    is the content of the JSON files beside the weights, and may be empty.

    Attributes:
        name: The name for `source=` and `format=`, from the table of formats.
        suffixes: The suffixes of the files to write, the usual one first.
        folder_name: The name of the weights in a folder; "" if the project has no folders.
        marks: The names of tensors that identify the format, if `detect` is not overridden.
        file_names: A regular expression for the beginning of file names that reveal the format.
        tensors: The `TensorNames` of the project, if `links` is not overridden.
        head: The prefixes of names that belong to the classifier.
        ignored: The prefixes of names that models do not use.
        values: The names of small tensors whose values determine how the model computes; `config`
            holds them in a dictionary "values".
        computes: The numerics, if `numerics` is not overridden.
        slots_optional: Whether files may have positions for the patches only, without slots for the
            tokens before them.
        holds_activation: Whether its folders record the activation of the classifier.
        architecture: The class whose `from_model` makes the input of `links`.
    """

    suffixes: tuple[str, ...] = ()
    folder_name = ""
    marks: tuple[str, ...] = ()
    file_names = "(?!)"
    tensors: Any
    head: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    computes: Numerics | None = None
    slots_optional = False
    holds_activation = False
    architecture: type[Any] = VisionTransformerArchitecture

    def __init__(self, name: str):
        self.name = name

    def detect(self, names: set[str]) -> bool:
        """Whether a file with these tensors belongs to the format."""
        return names.issuperset(self.marks)

    def admits(self, names: set[str]) -> bool:
        """Like `detect`, but for a file whose format is stated by the user or by its name."""
        return False

    def wraps(self, names: set[str]) -> bool:
        """Whether a classifier that another program added has the same input as the format's."""
        return True

    def canonical(self, name: str) -> str:
        """Returns the name of a tensor without old spellings and prefixes."""
        return name

    def infer(self, shapes: Shapes, config: dict) -> dict[str, Any]:
        """Returns the constructor's arguments that shapes and configuration determine."""
        raise NotImplementedError

    def links(self, arch: Any, names: set[str] | None, config: dict) -> list[Any]:
        """Links the model's variables to the tensors of a file, or to those to write (None)."""
        return self.tensors.links(arch, names)

    def numerics(self, shapes: Shapes, config: dict) -> Numerics | None:
        """Returns how the project's code computes, or None; `shapes` is empty before writing."""
        return self.computes

    def assumption(self, shapes: Shapes, config: dict, overrides: Collection[str]) -> str:
        """Says what is assumed about a file and is not among `overrides`; "" for nothing."""
        return ""

    def as_read(self, arch: Any) -> dict[str, Any]:
        """Returns arguments that the project's code fixes, or that files hold in another form."""
        return {}

    def config_files(self, arch: Any, numerics: Numerics) -> dict[str, dict]:
        """Returns `{file name: JSON}`, the project's configuration beside the weights."""
        return {}

    def h5_groups(self, names: list[str], folder: bool) -> dict[str, dict[str, list]]:
        """Returns `{file: {name: groups}}` for `containers.keras_h5.write_h5`."""
        raise NotImplementedError
