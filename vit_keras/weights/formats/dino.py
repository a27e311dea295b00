"""Meta's state dicts of DINO, DINOv2 and DINOv3, with nearly the same names as timm's.

Files of DINO and DINOv2 do not give the number of heads; it follows from the published widths. For
DINOv3, it follows from the periods of the rotary positions.
"""

import dataclasses

import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.positions_in_attention import rotary_frequencies
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics
from vit_keras.support.preprocessing import Resizing
from vit_keras.variants import families
from vit_keras.weights.formats.base import Format, covered_positions, pairs
from vit_keras.weights.formats.tensor_names import TensorNames, constant

DINO = TensorNames.of(
    "patches=patch_embed.proj cls=cls_token registers=register_tokens positions=pos_embed "
    "block=blocks.{}. norm_0=norm1 qkv=attn.qkv. out=attn.proj scale_0=ls1.gamma norm_2=norm2 "
    "gate=mlp.w12 dense_0=mlp.fc1 dense_1=mlp.fc2 scale_1=ls2.gamma norm=norm head=head",
    spellings=[pairs("dense_0=mlp.w12 dense_1=mlp.w3")],
)
MASK_TOKEN = "mask_token"
ONLY_HERE = (MASK_TOKEN, "register_tokens", "blocks.0.mlp.w12.weight")
HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1536: 24}
IMAGENET = Preprocessing(**families.IMAGENET, rounding="none")
CROPPED = Preprocessing(**families.IMAGENET, interpolation="bicubic", crop_fraction=0.875)


class Dino(Format):
    suffixes = (".pth", ".safetensors")
    file_names = r"dino_|head\.(mlp|last_layer)\."
    tensors = DINO
    head = ("head.",)
    ignored = (MASK_TOKEN,)

    def admits(self, names):
        needed = {"patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "pos_embed"}
        return needed <= names and "decoder_embed.weight" not in names

    def detect(self, names):
        """Leaves plain files of DINO to timm, unless their name or a head identifies them."""
        return self.admits(names) and any(name in names for name in ONLY_HERE)

    def links(self, arch, names, config):
        blank = names is None and arch.options.layer_scale is not None  # DINO has no mask token
        mask = [constant(MASK_TOKEN, np.zeros((1, arch.hidden_size)))] if blank else []
        return super().links(arch, names, config) + mask

    def infer(self, shapes, config):
        arguments = DINO.sizes(shapes, "token")
        if (width := arguments["hidden_size"]) in HEADS:
            arguments["num_heads"] = HEADS[width]
        return arguments | covered_positions(arguments, shapes[DINO.positions][1])

    def numerics(self, shapes, config):
        rule = "bicubic_antialias" if "register_tokens" in shapes else "bicubic_offset"
        return Numerics(preprocessing=CROPPED, resizing=Resizing(rule))

    def as_read(self, arch):
        cover = "class" if arch.options.num_registers else "all"
        return {"num_classes": None, "qkv_bias": "all", "position_cover": cover}


NAMES = DINO.replaced(
    "registers=storage_tokens positions= gate=mlp.w1",
    spellings=[pairs("gate=mlp.w1 dense_0=mlp.w2 dense_1=mlp.w3")],
)
PERIODS, BIAS_MASK = "rope_embed.periods", "attn.qkv.bias_mask"
LOCAL_NORM = "local_cls_norm."
WIDTH_OF_7B = 4096
SATELLITE = dataclasses.replace(IMAGENET, mean=(0.430, 0.411, 0.296), std=(0.213, 0.156, 0.143))
PRETRAINING_SIZE = 224


class DinoV3(Format):
    suffixes = (".pth", ".safetensors")
    values = (PERIODS,)
    head = ("head.",)
    ignored = (MASK_TOKEN, PERIODS, LOCAL_NORM)
    marks = (PERIODS, "blocks.0.attn.qkv.weight")

    def links(self, arch, names, config):
        width, options = arch.hidden_size, arch.options
        mask, rule = np.repeat([1, 0, 1], width), "must be 1 for queries and values and 0 for keys"
        masked = range(arch.num_layers if options.qkv_bias == "qv" else 0)
        masks = (NAMES.of_block(i, BIAS_MASK) for i in masked)  # which are checked first
        links = [constant(k, mask, f"{k!r} {rule}") for k in masks if names is None or k in names]
        links += NAMES.links(arch, names)
        if names is not None:
            return links
        rope = options.rope or Rope(centered=True)
        periods = 1 / rotary_frequencies(width // arch.num_heads, rope)
        links += [constant(MASK_TOKEN, np.zeros((1, width))), constant(PERIODS, periods)]
        if options.qkv_bias == "none":  # the 7B, whose norm for local crops only training uses
            norm = {"weight": np.ones(width), "bias": np.zeros(width)}
            links += [constant(f"{LOCAL_NORM}{leaf}", value) for leaf, value in norm.items()]
        return links

    def infer(self, shapes, config):
        arguments = NAMES.sizes(shapes, "token")
        if NAMES.of_block(0, BIAS_MASK) in shapes:
            arguments["qkv_bias"] = "qv"
        head_size, patch_size = 4 * shapes[PERIODS][0], arguments["patch_size"]
        arguments["num_heads"] = arguments["hidden_size"] // head_size
        arguments["image_size"] = tuple(PRETRAINING_SIZE // side * side for side in patch_size)
        periods = config.get("values", {}).get(PERIODS)
        for rounded in (True, False):  # those of published files are rounded
            rope = Rope(centered=True, rounded=rounded)
            ours = 1 / rotary_frequencies(head_size, rope)
            if periods is None or np.allclose(ours, periods, 1e-5):
                return {**arguments, "rope": rope}
        raise ValueError(f"DINOv3's {PERIODS!r} must be powers of 100. Received: {periods}")

    def numerics(self, shapes, config):
        """Recognizes satellite models by their norm for local crops, which the web 7B also has."""
        is_other = f"{LOCAL_NORM}weight" not in shapes
        is_other = is_other or shapes["patch_embed.proj.weight"][0] == WIDTH_OF_7B
        return Numerics(layer_norm_epsilon=1e-5, preprocessing=IMAGENET if is_other else SATELLITE)

    def as_read(self, arch):
        return {"num_classes": None}
