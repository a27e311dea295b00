"""The docstrings of the constructors, made from the variants' rows and the published files."""

import inspect
import textwrap
from typing import Any

from vit_keras import variants
from vit_keras.layers.common import pair
from vit_keras.variants import families
from vit_keras.weights import lookup, names

WIDTH = 96  # of the text inside a docstring's indentation
PREFERRED = ("augreg-imagenet", "imagenet", "augreg-imagenet-384")  # in examples

_VIT = {
    "title": "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    "paper": "https://arxiv.org/abs/2010.11929",
    "model": "Vision Transformer ViT-{variant}",
    "summary": "The model cuts an image into patches of {row.patch_size}x{row.patch_size} pixels, "
    "which go through {row.num_layers} transformer blocks of width {row.hidden_size} with "
    "{row.num_heads} attention heads.",
    "features": "the normalized tokens `(B, T + N, {width})`, T tokens before N patches",
    "sides": "Height and width must be multiples of {stride} pixels.",
    "pooled": "the tokens of the patches",
}
_KINDS = {
    variants.Variant: _VIT,
    variants.FamilyVariant: {
        **_VIT,
        "title": "{family.title}",
        "paper": "{family.paper}",
        "model": "Vision Transformer {variant}",
        "summary": _VIT["summary"]
        + " The published weights are under this license: {family.license}.",
    },
    variants.HybridVariant: {
        **_VIT,
        "model": "hybrid {variant} of a ResNet and a Vision Transformer",
        "summary": "The model's ResNet turns an image into tokens, one for each "
        "{row.stride}x{row.stride} pixels, " + _VIT["summary"].split("pixels, ")[1],
    },
    variants.ResNetVariant: {
        "title": "Big Transfer (BiT): General Visual Representation Learning",
        "paper": "https://arxiv.org/abs/1912.11370",
        "model": "BiT ResNet-v2 {variant}",
        "summary": "This ResNet with group normalization and weight standardization is the "
        "baseline of the Vision Transformer's paper (arXiv 2010.11929).",
        "features": "the normalized and rectified map `(B, height / 32, width / 32, {width})`",
        "sides": "Images may have any size; `include_top=False` also allows `(None, None, 3)`.",
        "pooled": "the cells of the map",
    },
}
_CROPPED = "Pixels at the right and bottom that do not fill a patch are left out."


def documentation(template: str | None, variant: str, function: str) -> str:
    """Returns the docstring of the constructor `function` of a variant.

    Args:
        template: The docstring with fields in braces; None if Python left it out.
        variant: The name of the variant.
        function: The name of the constructor.
    """
    row, published = variants.get(variant), names(variant)
    facts: dict[str, Any] = {"variant": variant, "row": row, "function": function}
    sides = map(str, pair(row.image_size, "image_size"))
    facts |= {"stride": row.stride, "width": row.feature_size, "pixels": ", ".join(sides)}
    if isinstance(row, variants.FamilyVariant):
        facts["family"] = families.family_of(row)
    facts |= {key: text.format(**facts) for key, text in _KINDS[type(row)].items()}
    if row.constructor_arguments().get("crop_to_patches"):
        facts["sides"] = _CROPPED
    facts["published"] = "None are published for this variant."
    if published:
        bullets = (f"\n        {_bullet(variant, name)}" for name in published)
        facts["published"] = "Published weights are:" + "".join(bullets)
    facts["summary"] = textwrap.fill(facts["summary"], WIDTH)
    facts |= {"example": 'class_names=["cat", "dog"]', "shape": "(1, 2)"}
    if published:
        weights = next((name for name in PREFERRED if name in published), published[0])
        example, count = f'weights="{weights}"', lookup(variant, weights).num_classes
        if "family" in facts:
            example, count = f'include_top=False, {example}, pooling="avg"', row.feature_size
        facts |= {"example": example, "shape": f"(1, {count})"}
    text = inspect.cleandoc(template or "").format(**facts)
    return textwrap.indent(text, "    ").lstrip() + "\n    "


def _bullet(variant, name):
    row = lookup(variant, name)
    top1 = max((accuracy.top1 for accuracy in row.accuracies), default=None)
    accuracy = "" if top1 is None else f", {top1:.1f}% top-1 on ImageNet"
    size, classes = f"{row.resolution}x{row.resolution} pixels", f"{row.num_classes} classes"
    if row.num_classes is None:
        classes = "no classifier"
    elif row.is_projection:
        classes = f"embeddings of {row.num_classes} numbers"
    return f'- `"{name}"`: {size}, {classes}{accuracy}.'
