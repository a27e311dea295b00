"""OpenCLIP's files and OpenAI's state dicts of CLIP, without the text tower.

A folder has an `open_clip_config.json`. OpenAI's state dicts stand alone: their heads are 64 wide,
and they compute with the quick GELU.
"""

from collections.abc import Collection

import numpy as np

from vit_keras.models import Preprocessing
from vit_keras.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, refuse_hybrid
from vit_keras.weights.formats.clip_names import CLIP, TOWER, below, has_tower
from vit_keras.weights.formats.tensor_links import tensor_links
from vit_keras.weights.formats.tensor_shapes import covered_positions, tensor_sizes

CONFIG = "open_clip_config.json"
HEAD_WIDTH = 64
MEAN, STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
# What the classifier reads, by `pool_type` and `final_ln_after_pool`.
CLASSIFIERS = {("tok", False): "token", ("avg", False): "gap", ("avg", True): "gap_norm"}


def canonical(name: str) -> str:
    return name.removeprefix("module.").removeprefix("_orig_mod.")


def detect(names: set[str]) -> bool:
    prefix = TOWER if has_tower(names) else ""
    blocks = "transformer.resblocks.0.ln_1.weight"
    needed = ("conv1.weight", "class_embedding", "positional_embedding", blocks)
    return {prefix + name for name in needed} <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    row = CLIP if names is not None and not has_tower(names) else below(CLIP, TOWER)
    linked = tensor_links(arch, row)
    if arch.options.pre_norm:
        return linked
    return [_no_bias(arch) if "embedding/bias" in link.ours else link for link in linked]


def _no_bias(arch):
    """Stands for the patches' bias, which OpenCLIP has not, in models without `pre_norm`."""

    def write(bias):
        if bias.any():
            raise ValueError(
                "OpenCLIP's patches have no bias. Received: a model whose `embedding/bias` is not 0"
            )
        return ()

    return Link((), ("embedding/bias",), lambda: (np.zeros(arch.hidden_size, "float32"),), write)


def infer(shapes: dict, config: dict) -> dict:
    row, vision = below(CLIP, TOWER) if has_tower(shapes) else CLIP, _vision(config)
    prefix = row.patches.removesuffix("conv1")
    _check_pool(shapes, prefix, vision)
    pools = vision.get("pool_type", "tok"), bool(vision.get("final_ln_after_pool"))
    classifier = CLASSIFIERS[("tok", False) if pools[0] == "tok" else pools]
    arguments = tensor_sizes(row, shapes, classifier)
    arguments["class_token"] = classifier != "token"
    width, head_width = arguments["hidden_size"], vision.get("head_width", HEAD_WIDTH)
    if width % head_width == 0:
        arguments["num_heads"] = width // head_width
    size = vision.get("image_size")
    if size is not None:
        size = (size, size) if isinstance(size, int) else tuple(size)
    return arguments | covered_positions(arguments, shapes[row.positions][0], size)


def _vision(config):
    return config.get(CONFIG, {}).get("model_cfg", {}).get("vision_cfg", {})


def _check_pool(shapes, prefix, vision):
    pool = vision.get("pool_type", "tok")
    if pool not in ("tok", "avg") or any(k.startswith(f"{prefix}attn_pool.") for k in shapes):
        raise ValueError(
            "Towers of OpenCLIP must pool the class token or the mean of the patches. Received: "
            f"pool_type={pool!r}, attentional_pool={vision.get('attentional_pool', False)}, as in "
            "CoCa"
        )


def numerics(config: dict) -> Numerics:
    content = config.get(CONFIG, {})
    model, vision = content.get("model_cfg", {}), _vision(config)
    quick = model.get("quick_gelu", not content)
    tanh = (vision.get("act_kwargs") or {}).get("approximate") == "tanh"
    return Numerics(
        gelu="quick" if quick else "tanh" if tanh else "exact",
        layer_norm_epsilon=(vision.get("norm_kwargs") or {}).get("eps", 1e-5),
        preprocessing=preprocessing_of(content.get("preprocess_cfg", {})),
        resizing=Resizing("bicubic_antialias", crops=True),
    )


def assumption(shapes: dict, config: dict, overrides: Collection[str]) -> str:
    if CONFIG in config or {"gelu", "layer_norm_epsilon"} & {*overrides}:
        return ""
    return "OpenAI's, with the quick GELU; pass gelu='exact' for OpenCLIP's models that have it"


def preprocessing_of(source):
    method = source.get("interpolation", "bicubic")
    return Preprocessing(
        mean=tuple(source.get("mean", MEAN)),
        std=tuple(source.get("std", STD)),
        interpolation="bilinear" if method == "bilinear" else "bicubic",
        antialias=True,
        crop_fraction=1.0 if source.get("resize_mode", "shortest") == "shortest" else None,
        rounding="torchvision",
    )


def check(arch: VisionTransformerArchitecture) -> None:
    refuse_hybrid(arch, "OpenCLIP")
    if "cls" not in arch.prefix.names or arch.classifier not in CLASSIFIERS.values():
        raise ValueError(
            "OpenCLIP's image tower must have a class token and read it or the mean of the "
            f"patches. Received: classifier={arch.classifier!r}"
        )
    if arch.num_classes is None or arch.options.head_use_bias:
        raise ValueError(
            "OpenCLIP's image tower must end in a projection without bias. Received: "
            f"num_classes={arch.num_classes}, head_use_bias={arch.options.head_use_bias}"
        )


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    pools = {classifier: pool for pool, classifier in CLASSIFIERS.items()}
    pool_type, after_pool = pools[arch.classifier]
    options, (height, width) = arch.options, arch.image_size
    vision = {
        "image_size": height if height == width else [height, width],
        "layers": arch.num_layers,
        "width": arch.hidden_size,
        "head_width": arch.hidden_size // arch.num_heads,
        "mlp_ratio": arch.mlp_dim / arch.hidden_size,
        "patch_size": _one_if_equal(arch.patch_size),
        "ls_init_value": options.layer_scale,
        "no_ln_pre": not options.pre_norm,
        "pool_type": pool_type,
        "final_ln_after_pool": after_pool,
        "qk_norm": options.qk_norm,
        "scale_attn_inner": options.attention_norm,
        "scale_fc": options.mlp_norm,
        "norm_kwargs": {"eps": arch.layer_norm_epsilon},
        **({"act_kwargs": {"approximate": "tanh"}} if arch.gelu == "tanh" else {}),
    }
    pixels = numerics.preprocessing
    model = {
        "embed_dim": arch.num_classes,
        "quick_gelu": arch.gelu == "quick",
        "vision_cfg": vision,
        "text_cfg": {},
    }
    preprocess = {
        "mean": list(pixels.mean) * (3 // len(pixels.mean)),
        "std": list(pixels.std) * (3 // len(pixels.std)),
        "interpolation": pixels.interpolation,
        "resize_mode": "squash" if pixels.crop_fraction is None else "shortest",
    }
    return {CONFIG: {"model_cfg": model, "preprocess_cfg": preprocess}}


def _one_if_equal(sizes):
    return sizes[0] if sizes[0] == sizes[1] else list(sizes)


FORMAT = Format(
    name="open_clip",
    suffixes=(".safetensors", ".bin", ".pt"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=numerics,
    assumption=assumption,
    canonical=canonical,
    options=(
        "class_token",
        "pre_norm",
        "head_use_bias",
        "layer_scale",
        "qk_norm",
        "attention_norm",
        "mlp_norm",
    ),
    channels=3,
    tower=TOWER,
    head=(f"{TOWER}proj", "proj"),
    check=check,
    config_files=config_files,
    folder_name="open_clip_model.safetensors",
)
