"""The table of published checkpoints: where each one is, what it holds, how accurate it is.

The names of weights say how they were trained:

- `imagenet21k`: pre-trained on ImageNet-21k, with its 21 843 classes;
- `imagenet`: the same, fine-tuned on ImageNet, with its 1000 classes;
- `imagenet1k`: trained on ImageNet alone;
- a number at the end: the resolution, if there are several;
- `augreg-`: the files that the authors of arXiv 2106.10270 recommend;
- `augreg-timm-`: files of the same study that timm serves instead;
- `sam-`: arXiv 2106.01548; `distilled-`: arXiv 2106.05237.

File names, sizes and accuracies come from the READMEs of google-research/vision_transformer and
google-research/big_transfer, from big_vision's list of names (AugReg B/8), and from timm's
default_cfgs and results. The names of SAM L/16 and L/32 are in public download scripts and in an
answer of its authors. Nobody publishes a SHA-256, so `download` records one at the first download.
The GSAM files are left out, because others who read them report accuracies far below the published
ones. The files of other families are in `family_files`.
"""

from vit_keras.weights.published import family_files
from vit_keras.weights.published.rows import TIMM, Accuracy, PublishedFile

README = "README of google-research/vision_transformer"
BIT_README = "README of google-research/big_transfer"


def _google(variant, weights, folder, resolution=224, num_classes=1000, suffix="", **facts):
    """A row whose file is named after its model: `R50+ViT-B_16.npz`, `ViT-B_16-224.npz`."""
    stem, _, size = variant.replace("/", "_").rpartition("+")
    name = f"{stem}+ViT-{size}" if stem else f"ViT-{size}"
    path = f"vit_models/{folder}/{name}{suffix}.npz"
    return PublishedFile(variant, weights, path, resolution, num_classes, **facts)


def _augreg(variant, weights, recipe, rate=None, resolution=224, data="i21k", **facts):
    """A row whose file is named after its training.

    `recipe` is the augmentation, the weight decay, and the rate of both dropout and stochastic
    depth. `rate` is the learning rate of the fine-tuning; without it the file is pre-trained only.
    """
    augmentation, decay, dropout = recipe.split()
    name = f"{variant.replace('+', '_').replace('/', '_')}-{data}-300ep-lr_0.001"
    name += f"-aug_{augmentation}-wd_{decay}-do_{dropout}-sd_{dropout}"
    if rate is not None:
        name += f"--imagenet2012-steps_20k-lr_{rate}-res_{resolution}"
    classes = 21843 if rate is None and data == "i21k" else 1000
    path = f"vit_models/augreg/{name}.npz"
    return PublishedFile(variant, weights, path, resolution, classes, **facts)


def _bit(variant, weights, name, resolution, num_classes, **facts):
    path = f"bit_models/{name}.npz"
    return PublishedFile(variant, weights, path, resolution, num_classes, format="bit", **facts)


def _timm(top1=None, real=None):
    return () if top1 is None else (Accuracy(top1, TIMM, real),)


# Variant, width of pre_logits.
_IMAGENET21K = [
    ("B/16", 768),
    ("B/32", 768),
    ("L/16", 1024),
    ("L/32", 1024),
    ("H/14", 1280),
    ("R50+B/16", 768),
]

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

# Variant, recipe, fine-tuning rate, accuracies: the files fine-tuned at 224 that timm serves.
_AUGREG_224 = [
    ("Ti/16", "none 0.03 0.0", "0.03", _timm(75.452, 82.061)),
    ("S/32", "light1 0.03 0.0", "0.03", _timm(76.010, 82.503)),
    ("S/16", "light1 0.03 0.0", "0.03", _timm(81.402, 86.854)),
    ("B/32", "medium1 0.03 0.0", "0.03", _timm(80.732, 85.979)),
    ("B/16", "medium1 0.1 0.0", "0.01", _timm(84.534, 88.887)),
    ("B/8", "medium1 0.1 0.0", "0.01", _timm(85.838, 89.457)),
    ("L/16", "medium1 0.1 0.1", "0.01", _timm(85.856, 89.318)),
    ("R+Ti/16", "none 0.03 0.0", "0.03", ()),
    ("R26+S/32", "light0 0.03 0.1", "0.03", ()),
    ("R50+L/32", "medium1 0.1 0.1", "0.01", ()),
]

# The same at 384.
_TIMM_384 = [
    ("S/32", "light1 0.03 0.0", "0.03", _timm(80.476, 86.310)),
    ("B/32", "light1 0.1 0.0", "0.03", _timm(83.358, 87.903)),
    ("B/16", "medium1 0.1 0.0", "0.01", _timm(86.010, 89.969)),
    ("L/16", "medium1 0.1 0.1", "0.01", _timm(87.096, 90.219)),
    ("R26+S/32", "medium2 0.03 0.0", "0.03", _timm(84.066, 88.817)),
    ("R50+L/32", "medium2 0.1 0.0", "0.01", _timm(86.188, 89.790)),
]

# Variant, recipe of the pre-trained file that timm serves.
_TIMM_IMAGENET21K = [
    ("S/32", "light1 0.03 0.0"),
    ("B/32", "medium1 0.03 0.0"),
    ("B/8", "medium1 0.1 0.0"),
    ("L/16", "medium1 0.1 0.1"),
    ("R26+S/32", "medium2 0.03 0.0"),
    ("R50+L/32", "medium2 0.1 0.0"),
]

# Variant, recipe, accuracies at 224: trained on ImageNet alone.
_AUGREG_IMAGENET1K = [
    ("S/16", "medium2 0.1 0.0", ()),
    ("B/32", "medium2 0.1 0.1", ()),
    ("B/16", "strong2 0.1 0.1", _timm(79.154, 84.388)),
]

_BIT_VARIANTS = ("R50x1", "R101x1", "R50x3", "R101x3", "R152x4")  # both BiT-S and BiT-M


def _rows():
    for variant, width in _IMAGENET21K:
        yield _google(variant, "imagenet21k", "imagenet21k", 224, 21843, representation_size=width)
    for variant, size, suffix, accuracies in _IMAGENET:
        name, folder = "imagenet" if size == 224 else f"imagenet-{size}", "imagenet21k+imagenet2012"
        yield _google(variant, name, folder, size, suffix=suffix, accuracies=accuracies)
    for variant, recipe, size_mib, rate, top1, timm in _RECOMMENDED:
        yield _augreg(variant, "augreg-imagenet21k", recipe, size_mib=size_mib)
        accuracies = (Accuracy(top1, README), *timm)
        yield _augreg(variant, "augreg-imagenet-384", recipe, rate, 384, accuracies=accuracies)
    yield _augreg("B/8", "augreg-imagenet21k", "medium2 0.1 0.0")
    for variant, recipe, rate, accuracies in _AUGREG_224:
        yield _augreg(variant, "augreg-imagenet", recipe, rate, accuracies=accuracies)
    for variant, recipe, rate, accuracies in _TIMM_384:
        name = "augreg-timm-imagenet-384"
        yield _augreg(variant, name, recipe, rate, 384, accuracies=accuracies)
    for variant, recipe in _TIMM_IMAGENET21K:
        yield _augreg(variant, "augreg-timm-imagenet21k", recipe)
    for variant, recipe, accuracies in _AUGREG_IMAGENET1K:
        alone, name = {"rate": "0.01", "data": "i1k"}, "augreg-imagenet1k"
        yield _augreg(variant, name, recipe, accuracies=accuracies, **alone)
        yield _augreg(variant, f"{name}-384", recipe, resolution=384, **alone)
    for variant in ("B/16", "B/32", "L/16", "L/32"):
        accuracies = _timm(80.246, 85.881) if variant == "B/16" else ()
        yield _google(variant, "sam-imagenet", "sam", accuracies=accuracies)
    yield from _bit_rows()


def _bit_rows():
    """Rows of BiT-S, of BiT-M, and of BiT-M fine-tuned at the 480 pixels of BiT-HyperRule."""
    for variant in _BIT_VARIANTS:
        yield _bit(variant, "imagenet1k", f"BiT-S-{variant}", 224, 1000)
    for variant in (*_BIT_VARIANTS, "R152x2"):
        yield _bit(variant, "imagenet21k", f"BiT-M-{variant}", 224, 21843)
        yield _bit(variant, "imagenet", f"BiT-M-{variant}-ILSVRC2012", 480, 1000)
    for size, name, top1 in ((224, "imagenet", 82.8), (160, "imagenet-160", 80.5)):
        accuracies, path = (Accuracy(top1, BIT_README),), f"distill/R50x1_{size}"
        yield _bit("R50x1", f"distilled-{name}", path, size, 1000, accuracies=accuracies)


PUBLISHED_FILES = {
    (row.variant, row.weights): row for row in (*_rows(), *family_files.family_rows())
}
