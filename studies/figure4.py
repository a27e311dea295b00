"""Figure 4: few-shot linear accuracy of ViTs and ResNets over subsets of the pre-training data."""

import functools

from studies import plots
from studies.digits_scale import UPSTREAMS
from studies.figure3 import leaders
from studies.results import Column, Result, published

MODELS = {
    "digits": ("ViT-L/4", "ViT-B/4", "ViT-b/4", "BiT-R8", "BiT-R26"),
    "full": ("ViT-L/16", "ViT-L/32", "ViT-B/32", "ViT-b/32", "R50x1", "R152x2"),
}
SETUP = {
    "digits": "Subsets of 25, 80, 250 and 836 images of 7 of the digits stand for 9 to 303 million "
    "images of JFT-300M, with {steps} updates each and no early stopping. The few-shot task is "
    "5-shot on all ten digits, with mean and standard deviation over three draws of the shots.",
    "full": "Early stopping is left out.",
}


def run(lab) -> Result:
    """One row for each model and one column for each subset, all with equally many updates."""
    subsets = _subsets(lab.scale.name)
    lab.require(subsets.values(), ["ImageNet"])
    ours = {
        model: {
            images: lab.few_shot(lab.pretrain(model, upstream))
            for images, upstream in subsets.items()
        }
        for model in MODELS[lab.scale.name]
    }
    columns = [Column("model"), *(Column(f"ours: {images:,} images", ".2f") for images in subsets)]
    rows = [[model, *accuracies.values()] for model, accuracies in ours.items()]
    labels = ("images to pre-train on", "5-shot linear accuracy (%)")
    draw = functools.partial(plots.lines, {"ours": ours}, labels)
    finding = leaders(ours, subsets, " images")
    return Result("figure4", columns, rows, draw, finding, lab.setup(SETUP))


def _subsets(scale):
    """`{number of images: name of the subset}`."""
    if scale == "digits":
        return {images: name for name, images in UPSTREAMS.items()}
    return {images: f"JFT-300M[{images}]" for images in published("figure4")["subsets"]}
