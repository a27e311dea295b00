"""The `.npz` files of Google's projects: `vit_jax`, big_vision and BiT.

`vit_jax` has the original ViT and AugReg (arXiv 2010.11929 and 2106.10270), and this package uses
the same names and layouts. Files of the Linen API number the layers of a block from 0 for each
class, and training states have the prefix `opt/target/`; both can be read. Files are written with
the original names.
"""

import math
import re

import numpy as np

from vit_keras.layers.positions import sincos_2d
from vit_keras.models.architectures import Numerics, ResNetArchitecture
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, Preprocessing, Resizing
from vit_keras.weights.formats.base import Format, count_blocks, covered_positions, resnet_sizes
from vit_keras.weights.formats.tensor_names import Link, single

TRANSFORMER = ("encoderblock_", "encoder_norm/", "posembed_input/")
NORM_VARIABLE = re.compile(r"/(gamma|beta)$")
ORIGINAL_NAMES = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}
LINEN_NAMES = {original: linen for linen, original in ORIGINAL_NAMES.items()}
_LAYER = re.compile(r"(encoderblock(?:_\d+)?)/(\w+)/")
STEM, UNITS = "conv_root/kernel", r"block(\d+)/unit(\d+)/conv1/"
POSITIONS, KERNEL = "Transformer/posembed_input/pos_embedding", "embedding/kernel"


def _vector(theirs: str, ours: str) -> Link:
    """Links one vector, which may be `(1, 1, 1, C)` in the file."""
    return single(theirs, ours, np.ravel, unpadded=True)


def published_name(path: str) -> str:
    """Turns `encoderblock_0/…/gamma` into `Transformer/encoderblock_0/…/scale`."""
    name = "cls" if path == "cls/cls" else flax_norm(path)
    return f"Transformer/{name}" if name.startswith(TRANSFORMER) else name


def flax_norm(path: str) -> str:
    """Renames gamma and beta as Flax does."""
    return NORM_VARIABLE.sub(lambda m: {"gamma": "/scale", "beta": "/bias"}[m[1]], path)


def _renumbered(name: str, layers: dict[str, str]) -> str:
    """Renames the layer of a block."""
    return _LAYER.sub(lambda m: f"{m[1]}/{layers.get(m[2], m[2])}/", name)


def sizes(shapes: dict, blocks: str = "Transformer/encoderblock") -> dict:
    """Returns the arguments from names and shapes; scanned blocks have the prefix `blocks`."""
    height, width, channels, hidden_size = shapes["embedding/kernel"]
    token, pooled = "cls" in shapes, "MAPHead_0/probe" in shapes
    scanned = shapes.get(f"{blocks}/LayerNorm_0/scale", (0,))[0]
    block = blocks if scanned else f"{blocks}_0"
    return {
        "patch_size": (height, width),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": scanned or count_blocks(shapes, f"{blocks}_"),
        "num_heads": shapes[f"{block}/MultiHeadDotProductAttention_1/query/kernel"][-2],
        "mlp_dim": shapes[f"{block}/MlpBlock_3/Dense_0/kernel"][-1],
        "num_classes": shapes.get("head/kernel", (None,))[-1],
        "classifier": "map" if pooled else "token" if token else "gap",
        "representation_size": shapes.get("pre_logits/kernel", (None,))[-1],
        **(resnet_sizes(shapes, STEM, UNITS, (2, 3)) if STEM in shapes else {}),
    }


class Google(Format):
    suffixes = (".npz",)
    head = ("head/", "pre_logits/")
    ignored: tuple[str, ...] = ("opt/state/",)
    marks = (POSITIONS, KERNEL)
    computes = Numerics(gelu="tanh", preprocessing=PUBLISHED_PREPROCESSING)

    def canonical(self, name):
        """Removes prefixes and restores the original numbering."""
        return _renumbered(re.sub(r"^(opt/target/|params/)", "", name), ORIGINAL_NAMES)

    def links(self, arch, names, config):
        return [
            (_vector if "gn" in path else single)(published_name(path), path)  # GroupNorm
            for path in arch.paths
        ]

    def infer(self, shapes, config):
        arguments = sizes(shapes)
        return arguments | covered_positions(arguments, shapes[POSITIONS][1], covers=("all",))

    def as_read(self, arch):
        return {"classifier": "token" if "cls" in arch.prefix.names else "gap"}


# big_vision's `.npz`: positions at the top without a slot for the class token; scanned blocks.
# These are also read:
# - older files, which keep the slot or have the positions inside `Transformer`;
# - files without positions, whose models have fixed sin-cos positions; models with
#   `position_embedding="sincos2d"` are written in this form;
# - `params/img/` of two-tower models, without the text tower;
# - training states, without the optimizer;
# - NaFlex models, which have one kernel row per value of a patch, `(p·p·3, D)`, and positions
#   `(h, w, D)`; the model then has that grid, and `with_image_size` changes it.
# A slot of zeros is not written. Any other slot is written, and big_vision folds it into `cls` when
# it reads the file.
TOP_POSITIONS = "pos_embedding"
SCANNED = "Transformer/encoderblock"


def _kernel_shape(shape):
    """Returns `(p, p, 3, D)` for a kernel `(p·p·3, D)`; other shapes are unchanged."""
    side = math.isqrt(shape[0] // 3)
    return (side, side, 3, shape[1]) if len(shape) == 2 else shape


def _grid_of_positions(shapes):
    """Returns the rows and columns of positions `(h, w, D)`; None for other positions or none."""
    rows, columns = shapes.get(TOP_POSITIONS, (1, 0))[:2]
    return (rows, columns) if rows > 1 else None


def _positions(arch, names, theirs):
    """Links learned positions, or fixed ones if the file has none."""
    path = "posembed_input/pos_embedding"
    if names is not None and TOP_POSITIONS not in names:
        (rows, columns), slots = arch.grid, int(arch.classifier == "token")
        fixed = sincos_2d(rows, columns, arch.hidden_size, slots)
        return Link((), (path,), lambda: (fixed,), lambda x: ())

    def write(x):
        has_slot = arch.classifier == "token" and arch.options.position_cover != "patches"
        return x[:, 1:] if has_slot and not x[:, 0].any() else x

    return single(theirs, path, lambda x: x.reshape(1, -1, x.shape[-1]), write)


PUBLISHED = Resizing(crops=True)
NAFLEX = Resizing("bilinear_antialias", "bilinear_half_pixel", crops=True)


class BigVision(Google):
    slots_optional = True
    ignored = ("opt/", "extra/", "txt/")
    marks = (KERNEL, "Transformer/encoder_norm/scale")

    def canonical(self, name):
        """Removes prefixes, restores the original numbering and puts the positions at the top."""
        name = super().canonical(re.sub(r"^(opt/target/)?(params/)?(img/)?", "", name))
        if name in ("t", "b"):  # the temperature and bias of two-tower models
            return f"txt/{name}"
        return TOP_POSITIONS if name in (POSITIONS, "Transformer/pos_embedding") else name

    def links(self, arch, names, config):
        scanned = names is not None and f"{SCANNED}/LayerNorm_0/scale" in names
        result = []
        for path in arch.paths:
            is_position = path == "posembed_input/pos_embedding"
            name = TOP_POSITIONS if is_position else published_name(path)
            if names is None:
                name = f"params/{_renumbered(name, LINEN_NAMES)}"
            if is_position:
                result.append(_positions(arch, names, name))
            elif path == KERNEL:
                result.append(single(name, path, lambda x: x.reshape(_kernel_shape(x.shape))))
            elif not (scanned and path.startswith("encoderblock_")):
                result.append(single(name, path))
            elif path.startswith("encoderblock_0/"):  # one tensor of all blocks, (L, …)
                paths = (path.replace("_0/", f"_{i}/", 1) for i in range(arch.num_layers))
                name = name.replace("encoderblock_0", "encoderblock")
                result.append(Link((name,), tuple(paths), tuple, lambda *x: (np.stack(x),)))
        return result

    def infer(self, shapes, config):
        arguments = sizes({**shapes, KERNEL: _kernel_shape(shapes[KERNEL])})
        if (grid := _grid_of_positions(shapes)) is not None:
            pairs = zip(grid, arguments["patch_size"])
            return {**arguments, "image_size": tuple(side * patch for side, patch in pairs)}
        _, count = shapes.get(TOP_POSITIONS, (1, 0))[:2]
        positions = covered_positions(arguments, count, covers=("patches", "all"))
        positions.pop("position_cover", None)  # any slot that is missing is read as zeros
        return arguments | positions

    def numerics(self, shapes, config):
        """SigLIPs with text towers and NaFlex models do not crop pictures."""
        naflex = _grid_of_positions(shapes) is not None
        is_whole = naflex or any(name.startswith("txt/") for name in shapes)
        crop = None if is_whole else 0.875
        pixels = Preprocessing(antialias=True, crop_fraction=crop, rounding="none")
        return Numerics(gelu="tanh", preprocessing=pixels, resizing=NAFLEX if naflex else PUBLISHED)

    def as_read(self, arch):
        """Positions may lack the slot of the class token, or be missing because they are fixed."""
        kind, cover = arch.position_embedding, arch.options.position_cover
        fixed = {"position_embedding": kind} if kind == "sincos2d" else {}
        return {"position_cover": cover, **fixed}


# BiT's `.npz` (arXiv 1912.11370). Canonical names are big_vision's; files are written with
# big_transfer's. `BIG_TRANSFER_LAYERS` maps the former to the latter.
BIT_ROOT = "root_block/conv_root/kernel"
BIG_TRANSFER_LAYERS = {
    "root_block/conv_root": "root_block/standardized_conv2d",
    "conv_proj": "a/proj/standardized_conv2d",
    **{f"conv{i}": f"{letter}/standardized_conv2d" for i, letter in enumerate("abc", 1)},
    **{f"gn{i}": f"{letter}/group_norm" for i, letter in enumerate("abc", 1)},
    "norm-pre-head": "group_norm",
    "head": "head/conv2d",
}
BIG_VISION_LAYERS = {theirs: ours for ours, theirs in BIG_TRANSFER_LAYERS.items()}


def _with_layer(name: str, layers: dict[str, str]) -> str:
    """Renames the layer, which precedes the last part of a name."""
    return re.sub(rf"(?<![\w-])({'|'.join(layers)})(?=/\w+$)", lambda m: layers[m[1]], name)


def _head(theirs, ours):
    """Links the head: a 1x1 convolution `(1, 1, F, K)` in big_transfer, a matrix in big_vision."""
    matrix = lambda x: x.reshape(x.shape[-2:])
    return single(theirs, ours, matrix, lambda x: x[None, None], unpadded=True)


def infer_bit(shapes: dict) -> dict:
    """Returns the arguments of a ResNet from big_vision's names."""
    num_classes = shapes.get("head/kernel", (None,))[-1]
    return {**resnet_sizes(shapes, BIT_ROOT, UNITS, (2, 3)), "num_classes": num_classes}


class BigTransfer(Format):
    suffixes = (".npz",)
    head = ("head/",)
    marks = (BIT_ROOT,)
    computes = Numerics(preprocessing=PUBLISHED_PREPROCESSING)
    architecture = ResNetArchitecture

    def canonical(self, name):
        """Removes prefixes and the numbers of layers, and gives layers big_vision's names."""
        name = re.sub(r"^(params/|opt/target/)?(resnet/)?", "", name)
        name = re.sub(r"(standardized_conv2d|group_norm)_\d+", r"\1", name)
        return flax_norm(_with_layer(name, BIG_VISION_LAYERS))

    def links(self, arch, names, config):
        result = []
        for path in arch.paths:
            written = f"resnet/{_with_layer(path, BIG_TRANSFER_LAYERS)}"
            kind = _head if path == "head/kernel" else _vector if "/gn" in path else single
            result.append(kind(written if names is None else flax_norm(path), path))
        return result

    def infer(self, shapes, config):
        return infer_bit(shapes)
