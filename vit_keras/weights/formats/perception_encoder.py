"""Meta's Perception Encoder: PE Core, with or without its text tower, PE Lang and PE Spatial.

Core has an attention pool over all tokens and a projection. Lang and Spatial have neither, nor a
normalization after the blocks. The files do not give the numbers of heads; they follow from the
published widths, and `config.json` may give `heads` and `attn_pooler_heads`.
"""

import dataclasses

from vit_keras.layers import Rope
from vit_keras.models import Preprocessing
from vit_keras.support.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics
from vit_keras.weights.formats.open_clip import CLIP
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_names import covered_positions, tensor_sizes

HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1536: 16}
POOL_HEADS = 8
NUMERICS = Numerics(
    layer_norm_epsilon=1e-5,
    preprocessing=Preprocessing(antialias=True, rounding="torchvision"),
    resizing=Resizing("bilinear_half_pixel", crops=True),
)


def detect(names: set[str]) -> bool:
    blocks = "transformer.resblocks.0.attn.in_proj_weight"
    if not {"conv1.weight", "positional_embedding", blocks} <= names:
        return False
    return "attn_pool.probe" in names or names.isdisjoint(("ln_post.weight", "attn_pool.query"))


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    return tensor_links(arch, CLIP)


def infer(shapes: dict, config: dict) -> dict:
    has_class_token, pools = CLIP.cls in shapes, "attn_pool.probe" in shapes
    classifier = "map" if pools else "token" if has_class_token else "gap"
    arguments = tensor_sizes(CLIP, shapes, classifier)
    arguments["rope"] = _rope(has_class_token)
    heads = config.get("heads", HEADS.get(arguments["hidden_size"]))
    arguments |= {} if heads is None else {"num_heads": heads}
    if pools:
        mlp_dim = shapes["attn_pool.mlp.c_fc.weight"][0]
        arguments |= {"pool_all_tokens": True, "class_token": has_class_token}
        arguments["map_heads"] = config.get("attn_pooler_heads", POOL_HEADS)
        arguments |= {"map_mlp_dim": mlp_dim} if mlp_dim != arguments["mlp_dim"] else {}
    else:
        arguments["final_norm"] = f"{CLIP.norm}.weight" in shapes
    return arguments | covered_positions(arguments, shapes[CLIP.positions][0])


def _rope(has_class_token):
    return dataclasses.asdict(Rope(base=10000.0, offset=float(has_class_token)))


def check(arch: VisionTransformerArchitecture) -> None:
    options, pools = arch.options, arch.classifier == "map"
    has_class_token = "cls" in arch.prefix.names
    faults = {
        "pre_norm": not options.pre_norm,
        "rope": options.rope is None or dataclasses.asdict(options.rope) != _rope(has_class_token),
        "pool_all_tokens": pools and has_class_token and not options.pool_all_tokens,
        "final_norm": options.final_norm != pools,
        "head_use_bias": arch.num_classes is not None and options.head_use_bias,
    }
    if wrong := [name for name, is_wrong in faults.items() if is_wrong]:
        received = ", ".join(f"{name}={getattr(options, name)!r}" for name in wrong)
        raise ValueError(
            "Meta's Perception Encoder has tokens normalized before the blocks, its own rotary "
            "positions, a pool over all tokens or no normalization after the blocks, and no bias "
            f"in the projection. Received: {received}, classifier={arch.classifier!r}"
        )


FORMAT = Format(
    name="perception_encoder",
    suffixes=(".pt", ".safetensors"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: NUMERICS,
    options=(
        *("class_token", "pre_norm", "rope", "pool_all_tokens", "map_heads", "map_mlp_dim"),
        *("final_norm", "head_use_bias", "layer_scale"),
    ),
    channels=3,
    head=("proj",),
    check=check,
)
