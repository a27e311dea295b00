"""The table of families: other plain Vision Transformers, built by one constructor."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vit_keras.variants.sizes import IMAGE_SIZE, SIZES, FamilyVariant, Variant, sized

# The defaults for what a family's row leaves out.
PLAIN = {
    "image_size": IMAGE_SIZE,
    "num_classes": None,
    "classifier": "token",
    "position_embedding": "learned",
    "gelu": "exact",
    "layer_norm_epsilon": 1e-6,
}
PAPERS = "https://arxiv.org/abs/"
CLIP: dict[str, Any] = {
    "mean": (0.48145466, 0.4578275, 0.40821073),
    "std": (0.26862954, 0.26130258, 0.27577711),
}
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
BICUBIC = {"interpolation": "bicubic", "antialias": True}
BILINEAR = {"interpolation": "bilinear", "antialias": True}
CROP_7_8 = {"crop_fraction": 0.875}
CROP_ALL = {"crop_fraction": 1.0}  # the shorter side is resized to the model's size


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models: how they differ from the paper's Vision Transformer, and their sizes.

    Attributes:
        name: The beginning of the names of its variants, such as "DINOv2".
        title: The title of its paper.
        paper: The URL of the paper.
        sizes: `{name of a size: Variant}`.
        preprocessing: The fields of `vit_keras.models.Preprocessing`.
        arguments: The arguments of `VisionTransformer` that the models share, besides the sizes:
            the fields of `ViTOptions`, `classifier`, `gelu`, `layer_norm_epsilon` and so on. The
            published models have `num_classes` outputs for images of `image_size` pixels.
        differences: `{name of a size: arguments that it adds or replaces}`.
        license: The license of the published weights.
        resizing: The rule for positions on other grids; the other fields of
            `vit_keras.support.preprocessing.Resizing` keep their defaults.
        suffix: The end of the names of its variants.
        kind: What follows its name in the names of its constructors in `vit_keras.applications`.

    Example:
        ```python
        vit_keras.variants.families.FAMILIES["DINOv2"].arguments["layer_scale"]  # 1e-05
        ```
    """

    name: str
    title: str
    paper: str
    sizes: Mapping[str, Variant]
    preprocessing: Mapping[str, Any]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    differences: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    license: str = "Apache-2.0"
    resizing: str = "bicubic"
    suffix: str = ""
    kind: str = ""

    @property
    def key(self) -> str:
        """The name in the table, such as "DINOv2" or "DINOv2-reg"."""
        return self.name + self.suffix

    def variants(self) -> Iterator[tuple[str, FamilyVariant]]:
        """Yields the name and the row of each variant."""
        for size, row in self.sizes.items():
            arguments = {**PLAIN, **self.arguments, **self.differences.get(size, {})}
            variant = FamilyVariant(**vars(row), family=self.key, size=size, arguments=arguments)
            yield self.variant(size), variant

    def variant(self, size: str) -> str:
        """Returns the name of a size's variant, such as "DINOv2-S/14" for "S/14"."""
        return f"{self.name}-{size}{self.suffix}"

    def function_of(self, size: str) -> str:
        """Returns the name of a size's constructor, such as "DINOv2S14" for "S/14"."""
        words = size.replace("/", "").replace("+", "Plus").replace("g-opt", "Gopt")
        words = f"{'_' * words[0].isdigit()}{words.replace('-', '_')}"
        start, end = (re.sub("-(.)", lambda w: w[1].upper(), x) for x in (self.name, self.suffix))
        return f"{start}{self.kind}{words}{end}"


_IMAGENET_CROP = {**IMAGENET, **BICUBIC, **CROP_7_8}
_CLIP_CROP = {**CLIP, **BICUBIC, **CROP_ALL}
_CLASSES, _SWIGLU = {"num_classes": 1000}, {"mlp": "swiglu"}

# Trained on pictures with texts; their text towers are left out.
_CLIP_MODEL = {"pre_norm": True, "layer_norm_epsilon": 1e-5, "head_use_bias": False}
_PE_ROPE = {"base": 10000.0}
_CROP = {"crop_to_patches": True}
_CLIP = Family(
    name="CLIP",
    title="Learning Transferable Visual Models From Natural Language Supervision",
    paper=f"{PAPERS}2103.00020",
    license="MIT",
    kind="ViT",
    sizes=sized("B/32 B/16 L/14 L/14-336"),
    arguments={**_CLIP_MODEL, "gelu": "quick", "num_classes": 512},
    differences={"L/14": {"num_classes": 768}, "L/14-336": {"num_classes": 768, "image_size": 336}},
    preprocessing=_CLIP_CROP,
)
_OPEN_CLIP_WIDTHS = {"L/14": 768, "H/14": 1024, "g/14": 1024, "bigG/14": 1280}
_OPEN_CLIP = dataclasses.replace(
    _CLIP,
    name="OpenCLIP",
    title="Reproducible Scaling Laws for Contrastive Language-Image Learning",
    paper=f"{PAPERS}2212.07143",
    sizes=sized("B/32 B/16 L/14 H/14 g/14 bigG/14"),
    arguments={**_CLIP_MODEL, "gelu": "exact", "num_classes": 512},
    differences={size: {"num_classes": width} for size, width in _OPEN_CLIP_WIDTHS.items()},
    resizing="bicubic_antialias",
)
_SIGLIP = Family(
    name="SigLIP",
    title="Sigmoid Loss for Language Image Pre-Training",
    paper=f"{PAPERS}2303.15343",
    sizes=sized("B/16 L/16 So400m/14"),
    arguments={"classifier": "map", "gelu": "tanh"},
    differences={"So400m/14": _CROP, "L/16": {"image_size": 256}},
    preprocessing={**HALF, **BICUBIC},
)
_SIGLIP_2 = dataclasses.replace(
    _SIGLIP,
    name="SigLIP2",
    title="SigLIP 2: Multilingual Vision-Language Encoders with Improved Semantic Understanding, "
    "Localization, and Dense Features",
    paper=f"{PAPERS}2502.14786",
    sizes=sized("B/32 B/16 L/16 So400m/14 So400m/16 g-opt/16"),
    arguments={**_SIGLIP.arguments, "image_size": 256},
    differences={"B/16": {"image_size": 224}, "So400m/14": {**_CROP, "image_size": 224}},
    preprocessing={**HALF, **BILINEAR},
)
_PERCEPTION_ENCODER = Family(
    name="PE-Core",
    title="Perception Encoder: The best visual embeddings are not at the output of the network",
    paper=f"{PAPERS}2504.13181",
    sizes={**sized("B/16 L/14"), "G/14": Variant(14, 1536, 50, 16, 8960)},
    arguments={
        "classifier": "map",
        "map_heads": 8,
        "pool_all_tokens": True,
        **_CLIP_MODEL,
        "class_token": True,
        "rope": {**_PE_ROPE, "offset": 1.0},
        "num_classes": 1024,
    },
    differences={
        "L/14": {"image_size": 336},
        "G/14": {
            "class_token": False,
            "rope": _PE_ROPE,
            "map_mlp_dim": 6144,
            "num_classes": 1280,
            "image_size": 448,
        },
    },
    preprocessing={**HALF, **BILINEAR},
    resizing="bilinear_half_pixel",
)

# Trained on pictures alone.
_BEIT_MODEL = {"classifier": "gap_norm", "class_token": True, "qkv_bias": "qv"}
_DINO = Family(
    name="DINO",
    title="Emerging Properties in Self-Supervised Vision Transformers",
    paper=f"{PAPERS}2104.14294",
    sizes=sized("S/16 S/8 B/16 B/8"),
    preprocessing=_IMAGENET_CROP,
    resizing="bicubic_offset",
)
_DINO_V2 = dataclasses.replace(
    _DINO,
    name="DINOv2",
    title="DINOv2: Learning Robust Visual Features without Supervision",
    paper=f"{PAPERS}2304.07193",
    sizes={**sized("S/14 B/14 L/14"), "g/14": Variant(14, 1536, 40, 24, 4096)},
    arguments={"layer_scale": 1e-5, "image_size": 518},
    differences={"g/14": _SWIGLU},
)
_DINO_V2_REG = dataclasses.replace(
    _DINO_V2,
    suffix="-reg",
    title="Vision Transformers Need Registers",
    paper=f"{PAPERS}2309.16588",
    arguments={**_DINO_V2.arguments, "num_registers": 4, "position_cover": "class"},
    resizing="bicubic_antialias",
)
_DINO_V3 = Family(
    name="DINOv3",
    title="DINOv3",
    paper=f"{PAPERS}2508.10104",
    license="DINOv3 License",
    sizes=sized("S/16 S+/16 B/16 L/16 H+/16 7B/16"),
    arguments={
        "position_embedding": "none",
        "num_registers": 4,
        "rope": {"base": 100.0, "centered": True},
        "layer_scale": 1e-5,
        "layer_norm_epsilon": 1e-5,
        "qkv_bias": "qv",
    },
    differences={"S+/16": _SWIGLU, "H+/16": _SWIGLU, "7B/16": {**_SWIGLU, "qkv_bias": "none"}},
    preprocessing={**IMAGENET, **BILINEAR},
)
_MAE = Family(
    name="MAE",
    title="Masked Autoencoders Are Scalable Vision Learners",
    paper=f"{PAPERS}2111.06377",
    license="CC-BY-NC-4.0",
    sizes=sized("B/16 L/16 H/14"),
    preprocessing=_IMAGENET_CROP,
)
_I_JEPA = dataclasses.replace(
    _MAE,
    name="IJEPA",
    title="Self-Supervised Learning from Images with a Joint-Embedding Predictive Architecture",
    paper=f"{PAPERS}2301.08243",
    sizes=sized("H/14 H/16 g/16"),
    arguments={"classifier": "gap"},
    differences={"H/16": {"image_size": 448}},
)
_BEIT = Family(
    name="BEiT",
    title="BEiT: BERT Pre-Training of Image Transformers",
    paper=f"{PAPERS}2106.08254",
    sizes=sized("B/16 L/16"),
    arguments={**_BEIT_MODEL, "position_embedding": "relative_2d", "layer_scale": 0.1, **_CLASSES},
    differences={"L/16": {"layer_scale": 1e-5}},
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.9},
    resizing="bilinear_half_pixel",
)
_BEIT_V2 = dataclasses.replace(
    _BEIT,
    name="BEiTv2",
    title="BEiT v2: Masked Image Modeling with Vector-Quantized Visual Tokenizers",
    paper=f"{PAPERS}2208.06366",
    preprocessing={**IMAGENET, **BICUBIC, "crop_fraction": 0.9},
)
_EVA_02_UNITS = {"Ti/14": 512, "S/14": 1024, "B/14": 2048, "L/14": 2730}
_EVA_02 = Family(
    name="EVA02",
    title="EVA-02: A Visual Representation for Neon Genesis",
    paper=f"{PAPERS}2303.11331",
    license="MIT",
    sizes={k: Variant(14, *SIZES[k[:-3]][:3], units) for k, units in _EVA_02_UNITS.items()},
    arguments={
        **_BEIT_MODEL,
        **_SWIGLU,
        "rope": {"base": 10000.0, "reference": (16, 16)},
        "image_size": 336,
    },
    differences={key: {"mlp_norm": True, "image_size": 448} for key in ("B/14", "L/14")},
    preprocessing=_CLIP_CROP,
    resizing="bicubic_antialias",
)

# Trained on labeled pictures.
_DEIT = Family(
    name="DeiT",
    title="Training Data-Efficient Image Transformers & Distillation Through Attention",
    paper=f"{PAPERS}2012.12877",
    sizes=sized("Ti/16 S/16 B/16"),
    arguments=_CLASSES,
    preprocessing=_IMAGENET_CROP,
)
_DEIT_DISTILLED = dataclasses.replace(
    _DEIT, suffix="-distilled", arguments={**_CLASSES, "classifier": "distilled"}
)
_DEIT_III = Family(
    name="DeiTIII",
    title="DeiT III: Revenge of the ViT",
    paper=f"{PAPERS}2204.07118",
    sizes=sized("S/16 M/16 B/16 L/16 H/14"),
    arguments={**_CLASSES, "layer_scale": 1e-4, "position_cover": "patches"},
    preprocessing={**IMAGENET, **BICUBIC, **CROP_ALL},
)
_REGISTERS = Family(
    name="ViT-reg4",
    title="Vision Transformers Need Registers",
    paper=f"{PAPERS}2309.16588",
    sizes=sized("M/16 betwixt/16 B/16 So150m/16"),
    arguments={
        **_CLASSES,
        "classifier": "gap_norm",
        "num_registers": 4,
        "position_cover": "patches",
        "layer_scale": 1e-5,
        "image_size": 256,
    },
    differences={
        "B/16": {"layer_scale": None},
        "So150m/16": {"classifier": "map", "position_cover": "all", "layer_scale": None},
    },
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.95},
    resizing="bicubic_antialias",
)
_FLEXIVIT = Family(
    name="FlexiViT",
    title="FlexiViT: One Model for All Patch Sizes",
    paper=f"{PAPERS}2212.08013",
    sizes=sized("S/16 B/16 L/16"),
    arguments={**_CLASSES, "position_cover": "patches", "image_size": 240},
    preprocessing={**HALF, **BICUBIC, "crop_fraction": 0.95},
    resizing="bilinear_antialias",
)

# Trained to find objects.
_EVERY = {"position_embedding_at": "every"}
_YOLOS = Family(
    name="YOLOS",
    title="You Only Look at One Sequence: Rethinking Transformer in Vision through "
    "Object Detection",
    paper=f"{PAPERS}2106.00666",
    sizes=sized("Ti/16 S/16 B/16"),
    arguments={
        "boxes": "tokens",
        "num_registers": 100,
        "num_classes": 91,
        "layer_norm_epsilon": 1e-12,
        "image_size": (800, 1333),
    },
    differences={
        "Ti/16": _CROP,
        "S/16": {**_EVERY, "image_size": (512, 864)},
        "B/16": {**_EVERY, "image_size": (800, 1344)},
    },
    preprocessing={**IMAGENET, **BILINEAR},
)
_OWL_MODEL = {"pre_norm": True, "layer_norm_epsilon": 1e-5, "gelu": "quick", "num_classes": 512}
_OWL_VIT = Family(
    name="OWLViT",
    title="Simple Open-Vocabulary Object Detection with Vision Transformers",
    paper=f"{PAPERS}2205.06230",
    sizes=sized("B/32 B/16 L/14"),
    arguments={**_OWL_MODEL, "boxes": "texts", "image_size": 768},
    differences={"L/14": {"num_classes": 768, "image_size": 840}},
    preprocessing={**CLIP, **BICUBIC},
)
_OWL_V2 = dataclasses.replace(
    _OWL_VIT,
    name="OWLv2",
    title="Scaling Open-Vocabulary Object Detection",
    paper=f"{PAPERS}2306.09683",
    sizes=sized("B/16 L/14"),
    arguments={**_OWL_MODEL, "boxes": "texts_objectness", "image_size": 960},
    differences={"L/14": {"num_classes": 768, "image_size": 1008}},
    preprocessing={**CLIP, **BILINEAR},
)

FAMILIES = {row.key: row for row in [*globals().values()] if isinstance(row, Family)}
VARIANTS = {name: row for family in FAMILIES.values() for name, row in family.variants()}


def family_of(variant: FamilyVariant) -> Family:
    """Returns the family that a variant belongs to.

    Example:
        ```python
        families.family_of(vit_keras.variants.get("MAE-B/16")).license  # "CC-BY-NC-4.0"
        ```
    """
    return FAMILIES[variant.family]


# Other projects' words with ours for them, and words that they write without a space.
WORDS = {"tiny": "ti", "small": "s", "base": "b", "medium": "m", "large": "l", "huge": "h"}
WORDS |= {"gigantic": "big g", "bigg": "big g", "giant": "g", "gopt": "g opt", "vit": ""}
WORDS |= {"iii": "3", "registers": "reg", "laion": "open clip", "+/": "plus", "pali2": "pali"}
WORDS |= {word: word for word in ("clip", "dino", "beit", "owl", "jepa")}


def words_of(name: str) -> set[str]:
    """Returns the words and numbers in a name, without those about LAION's data.

    Example:
        >>> sorted(families.words_of("vit_base_patch14_dinov2"))
        ['14', '2', 'b', 'dino', 'patch', 'v']
    """
    text = re.sub("[-_.]laion.*", "laion", str(name).lower())
    for word, ours in WORDS.items():
        text = text.replace(word, f" {ours} ")
    return {*re.findall(r"[a-z]+|\d+", text)}


def family_called(name: str) -> str | None:
    """Returns the key of the family that a name refers to, or None."""
    words = words_of(name)
    named = [key for key in FAMILIES if words_of(key) <= words]
    return max(named, key=lambda key: len(words_of(key)), default=None)


__all__ = ["FAMILIES", "VARIANTS", "Family", "family_called", "family_of", "words_of"]
