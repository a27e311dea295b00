"""Figure 4: few-shot linear accuracy over subsets of the pre-training data, ViTs and ResNets."""

import functools

from vit_keras.reproduce import plots
from vit_keras.reproduce.results import Column, Result, published
from vit_keras.reproduce.small import UPSTREAMS
from vit_keras.reproduce.studies.figure3 import leaders

MODELS = {
    "digits": ("ViT-L/4", "ViT-B/4", "ViT-b/4", "BiT-R8", "BiT-R26"),
    "full": ("ViT-L/16", "ViT-L/32", "ViT-B/32", "ViT-b/32", "R50x1", "R152x2"),
}
SMALLER = {
    "digits": "subsets of 25, 80, 250 and 836 images of 7 of the digits stand for 9 to 303 million "
    "of JFT-300M, at 400 updates each and without early stopping; 5-shot on all ten digits, "
    "mean and deviation over three draws of the shots.",
    "full": "without early stopping.",
}


def run(lab) -> Result:
    """One row a model, one column a subset, all with the same updates."""
    subsets = _subsets(lab.scale)
    lab.require(subsets.values(), ["ImageNet"])
    ours = {
        model: {
            images: lab.few_shot(lab.pretrain(model, upstream))
            for images, upstream in subsets.items()
        }
        for model in MODELS[lab.scale]
    }
    columns = [Column("model"), *(Column(f"ours: {images:,} images", ".2f") for images in subsets)]
    rows = [[model, *found.values()] for model, found in ours.items()]
    labels = ("images to pre-train on", "5-shot linear accuracy (%)")
    draw = functools.partial(plots.lines, {"ours": ours}, labels)
    finding = leaders(ours, subsets, "of")
    return Result("figure4", columns, rows, draw, finding, SMALLER[lab.scale])


def _subsets(scale):
    """{images: what the setting calls them}."""
    if scale == "digits":
        return {images: name for name, images in UPSTREAMS.items()}
    return {images: f"JFT-300M[{images}]" for images in published("figure4")["subsets"]}
