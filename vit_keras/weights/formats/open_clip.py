"""OpenCLIP's files and OpenAI's state dicts of CLIP, without the text tower.

A folder has an `open_clip_config.json`. OpenAI's state dicts have no configuration: their models
have heads of width 64 and the quick GELU. Image towers that are timm models, such as those of
OpenCLIP's SigLIPs, are a separate, read-only format: timm's tensors below "visual.trunk.", perhaps
followed by a projection. Such models are written in the formats of timm or transformers.
"""

import dataclasses
from typing import Any

from vit_keras.layers import Rope
from vit_keras.layers.common import check_choice
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics
from vit_keras.support.preprocessing import Resizing
from vit_keras.variants import families
from vit_keras.weights.formats.base import Format, covered_positions
from vit_keras.weights.formats.tensor_names import TensorNames, zeros
from vit_keras.weights.formats.timm import Timm

CLIP = TensorNames.of(
    "patches=conv1 cls=class_embedding positions=positional_embedding pre_norm=ln_pre "
    "block=transformer.resblocks.{}. norm_0=ln_1 qkv=attn.in_proj_ query_norm=attn.ln_q "
    "key_norm=attn.ln_k attention_norm=attn.ln_inner out=attn.out_proj scale_0=ls_1.gamma "
    "norm_2=ln_2 dense_0=mlp.c_fc mlp_norm=mlp.ln dense_1=mlp.c_proj scale_1=ls_2.gamma "
    "norm=ln_post projection=proj rotary=interleaved_columns_first pool_probe=attn_pool.probe "
    "pool_qkv=attn_pool.attn.in_proj_ pool_out=attn_pool.attn.out_proj "
    "pool_norm=attn_pool.layernorm pool_dense_0=attn_pool.mlp.c_fc "
    "pool_dense_1=attn_pool.mlp.c_proj",
    projection_is_ours=True,
    token_axes=1,
    position_axes=2,
)
TOWER = "visual."  # the prefix of the image tower's tensors in a file with both towers
CONFIG = "open_clip_config.json"
HEAD_WIDTH = 64
# The arguments that OpenCLIP's and Meta's code fixes.
FIXED = {"channels": 3, "qkv_bias": "all", "position_cover": "all"}
# The classifier's input, by `pool_type` and `final_ln_after_pool`.
CLASSIFIERS = {("tok", False): "token", ("avg", False): "gap", ("avg", True): "gap_norm"}


def model_field(config: dict, name: str, default: Any = None) -> Any:
    """Returns a field of `model_cfg`, such as "vision_cfg" or "text_cfg"."""
    return config.get(CONFIG, {}).get("model_cfg", {}).get(name, default)


def computation_of(config: dict, tower: dict) -> dict:
    """Returns the GELU and the epsilon of a tower with the configuration `tower`."""
    quick = model_field(config, "quick_gelu", not config.get(CONFIG))
    tanh = (tower.get("act_kwargs") or {}).get("approximate") == "tanh"
    return {
        "gelu": "quick" if quick else "tanh" if tanh else "exact",
        "layer_norm_epsilon": (tower.get("norm_kwargs") or {}).get("eps", 1e-5),
    }


def preprocessing_of(config: dict) -> Preprocessing:
    """Returns the preprocessing of an image tower."""
    source = config.get(CONFIG, {}).get("preprocess_cfg", {})
    mode = source.get("resize_mode", "shortest")
    check_choice(mode, ("shortest", "squash"), "resize_mode")  # "longest" pads
    return Preprocessing(
        mean=tuple(source.get("mean", families.CLIP["mean"])),
        std=tuple(source.get("std", families.CLIP["std"])),
        interpolation="bilinear" if source.get("interpolation") == "bilinear" else "bicubic",
        crop_fraction=1.0 if mode == "shortest" else None,
    )


def _one_if_equal(sizes):
    return sizes[0] if sizes[0] == sizes[1] else list(sizes)


class OpenClip(Format):
    suffixes = (".safetensors", ".bin", ".pt")
    folder_name = "open_clip_model.safetensors"
    tensors = CLIP
    head = ("proj",)
    marks = (CLIP.cls, CLIP.positions, "conv1.weight", "transformer.resblocks.0.ln_1.weight")

    def links(self, arch, names, config):
        linked = [zeros(k.path) if k.path == "embedding/bias" else k for k in CLIP.links(arch)]
        return [k.renamed(lambda name: TOWER + name) if names is None else k for k in linked]

    def infer(self, shapes, config):
        vision = model_field(config, "vision_cfg", {})
        check_choice(pool := vision.get("pool_type", "tok"), ("tok", "avg"), "pool_type")
        after_pool = pool == "avg" and bool(vision.get("final_ln_after_pool"))
        classifier = CLASSIFIERS[pool, after_pool]
        arguments = CLIP.sizes(shapes, classifier)
        arguments["class_token"] = classifier != "token"
        arguments["final_norm"] = f"{CLIP.norm}.weight" in shapes  # CoCa has it after its pool
        width, head_width = arguments["hidden_size"], vision.get("head_width", HEAD_WIDTH)
        if width % head_width == 0:
            arguments["num_heads"] = width // head_width
        positions = shapes[CLIP.positions][0]
        return arguments | covered_positions(arguments, positions, vision.get("image_size"))

    def numerics(self, shapes, config):
        return Numerics(
            **computation_of(config, model_field(config, "vision_cfg", {})),
            preprocessing=preprocessing_of(config),
            resizing=Resizing("bicubic_antialias", crops=True),
        )

    def assumption(self, shapes, config, overrides):
        if CONFIG in config or {"gelu", "layer_norm_epsilon"} & {*overrides}:
            return ""
        return "OpenAI's, with quick GELU; pass gelu='exact' for an OpenCLIP model with exact GELU"

    def as_read(self, arch):
        return {**FIXED, "head_use_bias": False, "final_norm": True}

    def config_files(self, arch, numerics):
        pools = {classifier: pool for pool, classifier in CLASSIFIERS.items()}
        pool_type, after_pool = pools.get(arch.classifier, (arch.classifier, False))
        options = arch.options
        vision = {
            "image_size": _one_if_equal(arch.image_size),
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
        model = {"embed_dim": arch.num_classes, "quick_gelu": arch.gelu == "quick"}
        model |= {"vision_cfg": vision, "text_cfg": {}}
        preprocess = {
            "mean": list(pixels.mean) * (3 // len(pixels.mean)),
            "std": list(pixels.std) * (3 // len(pixels.std)),
            "interpolation": pixels.interpolation,
            "resize_mode": "squash" if pixels.crop_fraction is None else "shortest",
        }
        return {CONFIG: {"model_cfg": model, "preprocess_cfg": preprocess}}


TRUNK, PROJECTION = "visual.trunk.", "visual.head.proj."
BESIDE = "beside."  # the prefix of tensors of other towers


def timm_config(config: dict) -> dict:
    """Returns timm's configuration of the tower."""
    content = model_field(config, "vision_cfg", {})
    sizes = {"img_size": content.get("image_size"), "global_pool": content.get("timm_pool")}
    return {
        "architecture": content.get("timm_model_name", ""),
        "model_args": {name: value for name, value in sizes.items() if value},
    }


class OpenClipTimm(Timm):
    suffixes = ()  # it is only read
    ignored = (*Timm.ignored, BESIDE)

    def canonical(self, name):
        if name.startswith(TRUNK):
            return super().canonical(name.removeprefix(TRUNK))
        if name.startswith(PROJECTION):
            return name.replace(PROJECTION, "head.")
        return name if name.startswith("visual.") else f"{BESIDE}{name}"

    def links(self, arch, names, config):
        return super().links(arch, names, timm_config(config))

    def infer(self, shapes, config):
        arguments = super().infer(shapes, timm_config(config))
        if arguments["num_classes"] is not None and "head.bias" not in shapes:
            arguments["head_use_bias"] = False
        return arguments

    def numerics(self, shapes, config):
        theirs = super().numerics(shapes, timm_config(config))
        return dataclasses.replace(theirs, preprocessing=preprocessing_of(config))


# Meta's Perception Encoder: PE Core, with or without its text tower, PE Lang and PE Spatial. Core
# has an attention pool over all tokens and a projection. Lang and Spatial have neither, nor a
# normalization after the blocks. The files do not give the numbers of heads; they follow from the
# published widths, and `config.json` may give `heads` and `attn_pooler_heads`.
PE_HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1536: 16}
POOL_HEADS = 8
PE = CLIP.replaced("query_norm= key_norm= attention_norm= mlp_norm=")


class PerceptionEncoder(Format):
    suffixes = (".pt", ".safetensors")
    tensors = PE
    head = ("proj",)
    computes = Numerics(
        layer_norm_epsilon=1e-5,
        preprocessing=Preprocessing(),
        resizing=Resizing("bilinear_half_pixel", crops=True),
    )

    def detect(self, names):
        blocks = "transformer.resblocks.0.attn.in_proj_weight"
        if not {"conv1.weight", "positional_embedding", blocks} <= names:
            return False
        return "attn_pool.probe" in names or names.isdisjoint(("ln_post.weight", "attn_pool.query"))

    def infer(self, shapes, config):
        has_class_token, pools = CLIP.cls in shapes, "attn_pool.probe" in shapes
        classifier = "map" if pools else "token" if has_class_token else "gap"
        arguments = PE.sizes(shapes, classifier)
        arguments["rope"] = dataclasses.asdict(Rope(base=10000.0, offset=float(has_class_token)))
        heads = config.get("heads", PE_HEADS.get(arguments["hidden_size"]))
        arguments |= {} if heads is None else {"num_heads": heads}
        if pools:
            arguments |= {"pool_all_tokens": True, "class_token": has_class_token}
            arguments["map_heads"] = config.get("attn_pooler_heads", POOL_HEADS)
        else:
            arguments["final_norm"] = f"{CLIP.norm}.weight" in shapes
        return arguments | covered_positions(arguments, shapes[CLIP.positions][0])

    def as_read(self, arch):
        return {**FIXED, "pre_norm": True, "map_heads": arch.options.map_heads}
