"""The table of published checkpoints: the location, contents and accuracy of each.

The names of weights describe their training:

- `imagenet21k`: pre-trained on ImageNet-21k, with its 21,843 classes;
- `imagenet`: the same, fine-tuned on ImageNet, with its 1000 classes;
- `imagenet1k`: trained only on ImageNet;
- a number at the end: the resolution, if there are several;
- `augreg-`: the files that the authors of arXiv 2106.10270 recommend;
- `augreg-timm-`: files of the same study that timm serves instead;
- `sam-`: arXiv 2106.01548; `distilled-`: arXiv 2106.05237.

File names, sizes and accuracies come from the READMEs of google-research/vision_transformer and
google-research/big_transfer, from big_vision's list of names (AugReg B/8), and from timm's
default_cfgs and results. The names of SAM L/16 and L/32 are in public download scripts and in an
answer from the authors. Nobody publishes a SHA-256. The GSAM files are left out, because users
report accuracies far below the published ones.

The families' files are folders of timm and transformers on huggingface.co. Their names are timm's
tags, which describe the training data. The repositories, resolutions, classes and licenses of
timm's files come from its `default_cfgs`, and the accuracies from results/results-imagenet.csv in
its repository; transformers' files are the publishers' own uploads. DINOv3 is not in the table:
every user must accept its license on the publisher's site, so `weights=` takes a file that the user
has downloaded.
"""

import dataclasses
import difflib
import itertools
import urllib.parse
from collections.abc import Iterator
from typing import Any

from vit_keras import variants
from vit_keras.variants import families

BASE_URL = "https://storage.googleapis.com"
HUGGING_FACE = "https://huggingface.co"
TIMM = "timm's results, with its bicubic resize and crop"


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """A measured accuracy.

    Attributes:
        top1: The top-1 accuracy on ImageNet in percent.
        source: The publisher of the number.
        real: The accuracy on the ReaL labels in percent, or None if it was not measured.
    """

    top1: float
    source: str
    real: float | None = None


@dataclasses.dataclass(frozen=True)
class PublishedFile:
    """A published file of weights. Unpublished values are None.

    Attributes:
        variant: The name of the variant, such as "B/16".
        weights: The name of the weights, such as "augreg-imagenet21k".
        path: The bucket, folder and file on the server or a mirror.
        resolution: The side in pixels of the images in the last training.
        num_classes: The number of classes of its head, or the width of its projection; None without
            a head.
        representation_size: The width of its `pre_logits` layer, or None without such a layer.
        size_mib: The size of the file in MiB, rounded as published.
        accuracies: The accuracies of exactly this file, not of another file of the same model.
        format: The format of the file, "google", "bit", "timm" or "huggingface".
        license: The license of the weights.
        host: The server of the file.
        is_projection: Whether the head is a projection to the embeddings of texts, as in CLIP.
    """

    variant: str
    weights: str
    path: str
    resolution: int
    num_classes: int | None
    representation_size: int | None = None
    size_mib: int | float | None = None
    accuracies: tuple[Accuracy, ...] = ()
    format: str = "google"
    license: str = "Apache-2.0"
    host: str = BASE_URL
    is_projection: bool = False

    @property
    def url(self) -> str:
        """The URL of the published file."""
        return f"{self.host}/{urllib.parse.quote(self.path)}"


# A family, its sizes, and timm's name for these models, with places for the size in timm's words
# and for the patch. Then the top-1 accuracies on ImageNet in timm's results. A model that has one
# has ImageNet's classes; others have their variant's head.
_TIMM_MODELS: list[tuple] = [
    ("DINO", "S/16 S/8 B/16 B/8", "vit_{}_patch{}_224.dino"),
    ("DINOv2", "S/14 B/14 L/14 g/14", "vit_{}_patch14_dinov2.lvd142m"),
    ("DINOv2-reg", "S/14 B/14 L/14 g/14", "vit_{}_patch14_reg4_dinov2.lvd142m"),
    ("MAE", "B/16 L/16 H/14", "vit_{}_patch{}_224.mae"),
    ("BEiT", "B/16 L/16", "beit_{}_patch16_224.in22k_ft_in22k_in1k", 85.238, 87.486),
    ("BEiTv2", "B/16 L/16", "beitv2_{}_patch16_224.in1k_ft_in22k_in1k", 86.494, 88.406),
    ("EVA02", "Ti/14 S/14", "eva02_{}_patch14_336.mim_in22k_ft_in1k", 80.648, 85.770),
    ("EVA02", "B/14", "eva02_{}_patch14_448.mim_in22k_ft_in22k_in1k", 88.678),
    ("EVA02", "L/14", "eva02_{}_patch14_448.mim_m38m_ft_in22k_in1k", 90.056),
    ("DeiT", "Ti/16 S/16 B/16", "deit_{}_patch16_224.fb_in1k", 72.190, 79.856, 81.980),
    ("DeiT-distilled", "Ti/16 S/16", "deit_{}_distilled_patch16_224.fb_in1k", 74.538, 81.204),
    ("DeiT-distilled", "B/16", "deit_{}_distilled_patch16_224.fb_in1k", 83.384),
    ("DeiTIII", "S/16 M/16 B/16", "deit3_{}_patch{}_224.fb_in22k_ft_in1k", 83.082, 84.550, 85.728),
    ("DeiTIII", "L/16 H/14", "deit3_{}_patch{}_224.fb_in22k_ft_in1k", 86.990, 87.180),
    ("ViT-reg4", "M/16", "vit_{}_patch16_reg4_gap_256.sbb_in12k_ft_in1k", 84.956),
    ("ViT-reg4", "betwixt/16", "vit_{}_patch16_reg4_gap_256.sbb_in12k_ft_in1k", 85.426),
    ("FlexiViT", "S/16 B/16 L/16", "flexivit_{}.1200ep_in1k", 82.576, 84.678, 85.646),
    ("SigLIP", "L/16", "vit_{}_patch16_siglip_256.webli"),
    ("SigLIP", "So400m/14", "vit_{}_patch14_siglip_224.webli"),
    ("SigLIP2", "B/32 L/16 So400m/16", "vit_{}_patch{}_siglip_256.v2_webli"),
    ("SigLIP2", "g-opt/16", "vit_giantopt_patch16_siglip_256.v2_webli"),
    ("SigLIP2", "So400m/14", "vit_{}_patch14_siglip_224.v2_webli"),
    ("OpenCLIP", "B/32 B/16 L/14 H/14 g/14", "vit_{}_patch{}_clip_224.laion2b"),
    ("OpenCLIP", "bigG/14", "vit_gigantic_patch14_clip_224.laion2b"),
    ("PE-Core", "B/16", "vit_pe_core_{}_patch16_224.fb"),
    ("PE-Core", "L/14", "vit_pe_core_{}_patch14_336.fb"),
    ("PE-Core", "G/14", "vit_pe_core_gigantic_patch14_448.fb"),
]
# Variant, name of the weights, repository, file. A number after a hyphen is the resolution.
_TRANSFORMERS = [
    ("CLIP-B/32", "openai", "openai/clip-vit-base-patch32", "pytorch_model.bin"),
    ("CLIP-B/16", "openai", "openai/clip-vit-base-patch16", "pytorch_model.bin"),
    ("CLIP-L/14", "openai", "openai/clip-vit-large-patch14", "model.safetensors"),
    ("CLIP-L/14-336", "openai", "openai/clip-vit-large-patch14-336", "pytorch_model.bin"),
    ("SigLIP-B/16", "webli", "google/siglip-base-patch16-224", "model.safetensors"),
    ("SigLIP-So400m/14", "webli-384", "google/siglip-so400m-patch14-384", "model.safetensors"),
    ("SigLIP2-B/16", "v2_webli", "google/siglip2-base-patch16-224", "model.safetensors"),
]
LICENSES = {"OpenCLIP": "Apache-2.0"}  # of timm's files, where it is not the publisher's


def family_rows() -> Iterator[PublishedFile]:
    """Yields the rows of the families' files."""
    words = {ours: word for word, ours in families.WORDS.items()}
    for family, sizes, called, *accuracies in _TIMM_MODELS:
        for name, top1 in itertools.zip_longest(sizes.split(), accuracies):
            size, patch = name.split("/")
            model = called.format(words.get(size.lower(), size.lower()), patch)
            facts: dict[str, Any] = {"format": "timm", "accuracies": _timm(top1)}
            facts |= {"num_classes": 1000} if top1 else {}
            variant, weights = families.FAMILIES[family].variant(name), model.partition(".")[2]
            yield _row(variant, weights, f"timm/{model}", "model.safetensors", **facts)
    for variant, weights, repository, file in _TRANSFORMERS:
        facts = {"format": "huggingface"}
        facts |= {"resolution": int(end)} if (end := weights.partition("-")[2]) else {}
        yield _row(variant, weights, repository, file, **facts)


def _row(variant, weights, repository, file, **facts):
    row = families.VARIANTS[variant]
    family = families.family_of(row)
    usual: dict[str, Any] = {
        "resolution": row.image_size,
        "num_classes": row.arguments["num_classes"],
        "license": LICENSES.get(family.key, family.license),
        "host": HUGGING_FACE,
        "is_projection": not row.arguments.get("head_use_bias", True),
    }
    return PublishedFile(variant, weights, f"{repository}/resolve/main/{file}", **usual | facts)


README = "README of google-research/vision_transformer"
BIT_README = "README of google-research/big_transfer"


def _google(variant, weights, folder, resolution=224, num_classes=1000, suffix="", **facts):
    """Makes a row for a file named after its model: `R50+ViT-B_16.npz`, `ViT-B_16-224.npz`."""
    stem, _, size = variant.replace("/", "_").rpartition("+")
    name = f"{stem}+ViT-{size}" if stem else f"ViT-{size}"
    path = f"vit_models/{folder}/{name}{suffix}.npz"
    return PublishedFile(variant, weights, path, resolution, num_classes, **facts)


def _augreg(variant, weights, recipe, rate=None, resolution=224, **facts):
    """Makes a row for a file named after its training.

    `recipe` is the augmentation, the weight decay, and the rate of both dropout and stochastic
    depth. `rate` is the learning rate of the fine-tuning; without it the file is pre-trained only.
    """
    augmentation, decay, dropout = recipe.split()
    data = "i1k" if "imagenet1k" in weights else "i21k"
    name = f"{variant.replace('+', '_').replace('/', '_')}-{data}-300ep-lr_0.001"
    name += f"-aug_{augmentation}-wd_{decay}-do_{dropout}-sd_{dropout}"
    if rate is not None:
        name += f"--imagenet2012-steps_20k-lr_{rate}-res_{resolution}"
    classes = 21843 if rate is None else 1000
    path = f"vit_models/augreg/{name}.npz"
    return PublishedFile(variant, weights, path, resolution, classes, **facts)


def _bit(variant, weights, name, resolution, num_classes, **facts):
    path = f"bit_models/{name}.npz"
    return PublishedFile(variant, weights, path, resolution, num_classes, format="bit", **facts)


def _timm(top1=None, real=None):
    return () if top1 is None else (Accuracy(top1, TIMM, real),)


_IMAGENET21K = ("B/16", "B/32", "L/16", "L/32", "H/14", "R50+B/16")  # with pre_logits

# Variant, resolution, suffix of the file, accuracies. The published code's default is 384.
_IMAGENET = [
    ("B/16", 224, "-224", (Accuracy(81.2, README), Accuracy(81.782, TIMM, 86.754))),
    ("L/16", 224, "-224", (Accuracy(82.7, README),)),
    ("B/16", 384, "", _timm(84.212, 88.398)),
    ("B/32", 384, "", ()),
    ("L/16", 384, "", ()),
    ("L/32", 384, "", _timm(81.508, 85.913)),
    ("R50+B/16", 384, "", _timm(84.988, 88.802)),
]

# Variant, recipe, MiB of the pre-trained file, fine-tuning rate and top-1 at 384; timm's result
# if it serves the same file.
_RECOMMENDED = [
    ("L/16", "strong1 0.1 0.0", 1243, "0.01", 85.59, ()),
    ("B/16", "medium1 0.1 0.0", 391, "0.03", 85.49, ()),
    ("S/16", "light1 0.03 0.0", 115, "0.03", 83.73, _timm(83.814, 88.650)),
    ("R50+L/32", "medium1 0.1 0.1", 1337, "0.01", 85.99, ()),
    ("R26+S/32", "light1 0.1 0.0", 170, "0.01", 83.85, ()),
    ("Ti/16", "none 0.03 0.0", 37, "0.03", 78.22, _timm(78.438, 84.822)),
    ("B/32", "light1 0.1 0.0", 398, "0.01", 83.59, ()),
    ("S/32", "none 0.1 0.0", 118, "0.01", 79.58, ()),
    ("R+Ti/16", "none 0.03 0.0", 40, "0.03", 75.40, _timm(75.962, 82.687)),
]

# The end of the name, variant, recipe, rate of the fine-tuning, resolution, accuracies: other files
# of the study, most of which timm serves.
_AUGREG = [
    ("imagenet21k", "B/8", "medium2 0.1 0.0", None, 224, ()),
    ("imagenet", "Ti/16", "none 0.03 0.0", "0.03", 224, _timm(75.452, 82.061)),
    ("imagenet", "S/32", "light1 0.03 0.0", "0.03", 224, _timm(76.010, 82.503)),
    ("imagenet", "S/16", "light1 0.03 0.0", "0.03", 224, _timm(81.402, 86.854)),
    ("imagenet", "B/32", "medium1 0.03 0.0", "0.03", 224, _timm(80.732, 85.979)),
    ("imagenet", "B/16", "medium1 0.1 0.0", "0.01", 224, _timm(84.534, 88.887)),
    ("imagenet", "B/8", "medium1 0.1 0.0", "0.01", 224, _timm(85.838, 89.457)),
    ("imagenet", "L/16", "medium1 0.1 0.1", "0.01", 224, _timm(85.856, 89.318)),
    ("imagenet", "R+Ti/16", "none 0.03 0.0", "0.03", 224, ()),
    ("imagenet", "R26+S/32", "light0 0.03 0.1", "0.03", 224, ()),
    ("imagenet", "R50+L/32", "medium1 0.1 0.1", "0.01", 224, ()),
    ("timm-imagenet-384", "S/32", "light1 0.03 0.0", "0.03", 384, _timm(80.476, 86.310)),
    ("timm-imagenet-384", "B/32", "light1 0.1 0.0", "0.03", 384, _timm(83.358, 87.903)),
    ("timm-imagenet-384", "B/16", "medium1 0.1 0.0", "0.01", 384, _timm(86.010, 89.969)),
    ("timm-imagenet-384", "L/16", "medium1 0.1 0.1", "0.01", 384, _timm(87.096, 90.219)),
    ("timm-imagenet-384", "R26+S/32", "medium2 0.03 0.0", "0.03", 384, _timm(84.066, 88.817)),
    ("timm-imagenet-384", "R50+L/32", "medium2 0.1 0.0", "0.01", 384, _timm(86.188, 89.790)),
    ("timm-imagenet21k", "S/32", "light1 0.03 0.0", None, 224, ()),
    ("timm-imagenet21k", "B/32", "medium1 0.03 0.0", None, 224, ()),
    ("timm-imagenet21k", "B/8", "medium1 0.1 0.0", None, 224, ()),
    ("timm-imagenet21k", "L/16", "medium1 0.1 0.1", None, 224, ()),
    ("timm-imagenet21k", "R26+S/32", "medium2 0.03 0.0", None, 224, ()),
    ("timm-imagenet21k", "R50+L/32", "medium2 0.1 0.0", None, 224, ()),
    ("imagenet1k", "S/16", "medium2 0.1 0.0", "0.01", 224, ()),
    ("imagenet1k", "B/32", "medium2 0.1 0.1", "0.01", 224, ()),
    ("imagenet1k", "B/16", "strong2 0.1 0.1", "0.01", 224, _timm(79.154, 84.388)),
    ("imagenet1k-384", "S/16", "medium2 0.1 0.0", "0.01", 384, ()),
    ("imagenet1k-384", "B/32", "medium2 0.1 0.1", "0.01", 384, ()),
    ("imagenet1k-384", "B/16", "strong2 0.1 0.1", "0.01", 384, ()),
]

_BIT_VARIANTS = ("R50x1", "R101x1", "R50x3", "R101x3", "R152x4")  # both BiT-S and BiT-M


def _rows():
    for variant in _IMAGENET21K:
        width = variants.architecture(variant)["hidden_size"]
        yield _google(variant, "imagenet21k", "imagenet21k", 224, 21843, representation_size=width)
    for variant, size, suffix, accuracies in _IMAGENET:
        name, folder = "imagenet" if size == 224 else f"imagenet-{size}", "imagenet21k+imagenet2012"
        yield _google(variant, name, folder, size, suffix=suffix, accuracies=accuracies)
    for variant, recipe, size_mib, rate, top1, timm in _RECOMMENDED:
        yield _augreg(variant, "augreg-imagenet21k", recipe, size_mib=size_mib)
        accuracies = (Accuracy(top1, README), *timm)
        yield _augreg(variant, "augreg-imagenet-384", recipe, rate, 384, accuracies=accuracies)
    for end, variant, recipe, tuning, size, accuracies in _AUGREG:
        yield _augreg(variant, f"augreg-{end}", recipe, tuning, size, accuracies=accuracies)
    for variant in ("B/16", "B/32", "L/16", "L/32"):
        accuracies = _timm(80.246, 85.881) if variant == "B/16" else ()
        yield _google(variant, "sam-imagenet", "sam", accuracies=accuracies)
    # BiT-S, BiT-M, and BiT-M fine-tuned at the 480 pixels of BiT-HyperRule.
    for variant in _BIT_VARIANTS:
        yield _bit(variant, "imagenet1k", f"BiT-S-{variant}", 224, 1000)
    for variant in (*_BIT_VARIANTS, "R152x2"):
        yield _bit(variant, "imagenet21k", f"BiT-M-{variant}", 224, 21843)
        yield _bit(variant, "imagenet", f"BiT-M-{variant}-ILSVRC2012", 480, 1000)
    for size, name, top1 in ((224, "imagenet", 82.8), (160, "imagenet-160", 80.5)):
        accuracies, path = (Accuracy(top1, BIT_README),), f"distill/R50x1_{size}"
        yield _bit("R50x1", f"distilled-{name}", path, size, 1000, accuracies=accuracies)


PUBLISHED_FILES = {(row.variant, row.weights): row for row in (*_rows(), *family_rows())}


LISTED = ("variant", "name", "image_size", "classes", "top1_percent", "source", "license", "url")


def names(variant: str) -> list[str]:
    """Returns the names of the published weights of a variant.

    Args:
        variant: The name of the variant, such as "B/16".

    Returns:
        A list, which is empty if no weights are published.

    Example:
        ```python
        vit_keras.weights.names("B/8")  # ["augreg-imagenet21k", "augreg-imagenet", …]
        ```
    """
    return [weights for name, weights in PUBLISHED_FILES if name == variant]


def list_weights(variant: str | None = None) -> list[dict[str, Any]]:
    """Lists the published weights, with the accuracies published for these exact files.

    Args:
        variant: The name of a variant, such as "B/16"; None lists the weights of all variants.

    Returns:
        A list of `{"variant", "name", "image_size", "classes", "top1_percent", "source", "license",
        "url"}`. `name` is the value for a constructor's `weights=`, and for `--model.weights` along
        with `--model.variant`. `classes` is the number of outputs of the head; None without one.
        `top1_percent` is the top-1 accuracy on ImageNet; None, with "" as `source`, if nobody
        published it.

    Example:
        ```python
        best = max(vit_keras.list_weights("B/16"), key=lambda row: row["top1_percent"] or 0)
        best["name"], best["top1_percent"]  # ("augreg-timm-imagenet-384", 86.01)
        ```
    """
    rows = []
    for row in PUBLISHED_FILES.values():
        best = row.accuracies[0] if row.accuracies else None
        top1, source = (best.top1, best.source) if best else (None, "")
        facts = row.weights, row.resolution, row.num_classes, top1, source, row.license, row.url
        rows.append(dict(zip(LISTED, (row.variant, *facts))))
    return [row for row in rows if variant in (None, row["variant"])]


def lookup(variant: str, weights: str) -> PublishedFile:
    """Looks up a published file in the table.

    Args:
        variant: The name of the variant, such as "B/16".
        weights: The name of the weights, one of `names(variant)`.

    Returns:
        A `PublishedFile` with its URL, resolution, number of classes and accuracies.

    Raises:
        ValueError: If there is no such file. The message lists the existing names.

    Example:
        ```python
        vit_keras.weights.lookup("B/16", "imagenet").accuracies
        ```
    """
    if (variant, weights) in PUBLISHED_FILES:
        return PUBLISHED_FILES[variant, weights]
    known = names(variant)
    near = difflib.get_close_matches(str(weights), known, n=3, cutoff=0.4)
    hint = f". Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ValueError(
        "`weights` must be None, the path of an existing file, or a published checkpoint of "
        f"variant {variant!r}: {', '.join(map(repr, known)) or 'none is published'}. "
        f"Received: weights={weights!r}{hint}"
    )
