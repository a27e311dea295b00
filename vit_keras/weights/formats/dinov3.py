"""Meta's state dicts of DINOv3, whose periods of rotary positions say the number of heads."""

import dataclasses

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.position_tables import rotary_frequencies
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_hybrid
from vit_keras.weights.formats.clip_names import below
from vit_keras.weights.formats.dino import (
    DINO,
    IMAGENET,
    MASK_TOKEN,
    TEACHER,
    canonical,
    check_only,
    constant,
    prefix_of,
)
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_shapes import tensor_sizes

NAMES = dataclasses.replace(DINO, registers="storage_tokens", positions="")
GATED = dataclasses.replace(NAMES, gate="mlp.w1", dense_0="mlp.w2", dense_1="mlp.w3")
PERIODS, BIAS_MASK = "rope_embed.periods", "attn.qkv.bias_mask"
LOCAL_NORM = "local_cls_norm."
WIDTH_OF_7B = 4096
SATELLITE = dataclasses.replace(IMAGENET, mean=(0.430, 0.411, 0.296), std=(0.213, 0.156, 0.143))
PRETRAINING_SIZE = 224


def detect(names: set[str]) -> bool:
    prefix = prefix_of(names)
    return {prefix + name for name in (PERIODS, "blocks.0.attn.qkv.weight")} <= names


def _row(names):
    prefix = prefix_of(names)
    return below(GATED if f"{prefix}blocks.0.mlp.w1.weight" in names else NAMES, prefix)


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    if names is not None:
        return [_masked(link, names) for link in tensor_links(arch, _row(names))]
    row = GATED if arch.options.mlp == "swiglu" else NAMES
    return [*tensor_links(arch, row), *_constants(arch)]


def _masked(link, names):
    """Leaves out the bias of the keys, which Meta multiplies by a mask."""
    mask = f"{link.theirs[0]}_mask"
    if mask not in names:
        return link

    def read(bias, held):
        if not np.array_equal(held, _mask(len(held) // 3)):
            raise ValueError(
                f"{mask!r} must be 1 for queries and values and 0 for keys. Received: {held}"
            )
        return link.read(bias)

    write = lambda *biases: (*link.write(*biases), _mask(biases[0].size))
    return Link((*link.theirs, mask), link.ours, read, write)


def _mask(size):
    return np.repeat(np.asarray([1, 0, 1], "float32"), size)


def _constants(arch):
    width, options = arch.hidden_size, arch.options
    periods = 1 / rotary_frequencies(width // arch.num_heads, options.rope)
    links = [constant(MASK_TOKEN, np.zeros((1, width))), constant(PERIODS, periods)]
    if options.qkv_bias == "qv":
        names = (NAMES.of_block(i, BIAS_MASK) for i in range(arch.num_layers))
        links += [constant(name, _mask(width)) for name in names]
    if options.qkv_bias == "none":  # the 7B, with a norm for local crops that is for training alone
        links.append(constant(f"{LOCAL_NORM}weight", np.ones(width)))
        links.append(constant(f"{LOCAL_NORM}bias", np.zeros(width)))
    return links


def infer(shapes: dict, config: dict) -> dict:
    row, periods = _row(shapes), prefix_of(shapes) + PERIODS
    arguments = tensor_sizes(row, shapes, "token")
    if row.of_block(0, BIAS_MASK) in shapes:
        arguments["qkv_bias"] = "qv"
    head_size = 4 * shapes[periods][0]
    arguments["num_heads"] = arguments["hidden_size"] // head_size
    arguments["rope"] = _rope(config.get("values", {}).get(periods), head_size)
    patch_size = arguments["patch_size"]
    arguments["image_size"] = tuple(PRETRAINING_SIZE // side * side for side in patch_size)
    return arguments


def _rope(periods, head_size):
    """The rotary positions with the periods of a file, which are rounded in the published ones."""
    for rounded in (True, False):
        rope = Rope(centered=True, rounded=rounded)
        if periods is None or np.allclose(1 / rotary_frequencies(head_size, rope), periods, 1e-5):
            return dataclasses.asdict(rope)
    raise ValueError(
        f"The periods of DINOv3's rotary positions, {PERIODS!r}, must be powers of 100. "
        f"Received: {periods}"
    )


def refine(numerics: Numerics, shapes: dict, config: dict) -> Numerics:
    """Models of satellite images have a norm for local crops, as the 7B of other images has."""
    prefix = prefix_of(shapes)
    if f"{prefix}{LOCAL_NORM}weight" not in shapes:
        return numerics
    if shapes[f"{prefix}patch_embed.proj.weight"][0] == WIDTH_OF_7B:
        return numerics
    return dataclasses.replace(numerics, preprocessing=SATELLITE)


def check(arch: VisionTransformerArchitecture) -> None:
    refuse_hybrid(arch, "Meta's DINOv3")
    rounded = arch.options.rope is not None and arch.options.rope.rounded
    rope = dataclasses.asdict(Rope(centered=True, rounded=rounded))
    only = {"classifier": "token", "position_embedding": "none", "rope": rope}
    check_only("Meta's DINOv3", arch, only)


FORMAT = Format(
    name="dinov3",
    suffixes=(".pth", ".safetensors"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(layer_norm_epsilon=1e-5, preprocessing=IMAGENET),
    refine=refine,
    canonical=canonical,
    options=("layer_scale", "num_registers", "mlp", "qkv_bias", "rope"),
    positions=("none",),
    tower=TEACHER,
    values=(PERIODS, TEACHER + PERIODS),
    ignored=tuple(
        prefix + name for prefix in ("", TEACHER) for name in (MASK_TOKEN, PERIODS, LOCAL_NORM)
    ),
    check=check,
)
