"""Figure 6: where attention goes from the output token to the image, by rollout (D.8)."""

import functools

import numpy as np

from vit_keras import data, evaluation, inspection, models
from vit_keras.inspection.plots import draw_rollout
from vit_keras.reproduce.results import Column, Result

COUNT, SHOWN = 128, 10  # images that means are taken over, and those drawn
SMALLER = {
    "digits": "a ViT of 6 layers and width 48 with 64 patches of 4x4 of 32x32 pixels, trained on "
    "the digits for 600 updates; the pictures are held out.",
    "full": "the published ViT-L/16 of ImageNet-21k, since that of JFT-300M is not public.",
}
COLUMNS = (
    *(Column("picture", "d"), Column("ours: predicted"), Column("ours: probability", ".3f")),
    *(Column("ours: patches with half of the attention", "d"), Column("patches", "d")),
)


def run(lab) -> Result:
    """One row a picture: what the model says of it and on how few patches half the rollout lies."""
    subject, probabilities = opened(lab)
    rollout = subject.attention.rollout[:SHOWN]
    names = subject.model.class_names or [str(i) for i in range(probabilities.shape[1])]
    rows = [
        [i + 1, names[row.argmax()], float(row.max()), _half(weights), weights.size]
        for i, (row, weights) in enumerate(zip(probabilities, rollout))
    ]
    half = np.mean([_half(weights) for weights in subject.attention.rollout])
    finding = (
        f"half of the attention lies on {half:.1f} of {rollout[0].size} patches, mean over "
        f"{len(subject.images)} images; spread evenly it would lie on {rollout[0].size // 2}."
    )
    draw = functools.partial(draw_rollout, subject.pictures, rollout, subject.titles)
    return Result("figure6", COLUMNS, rows, draw, finding, SMALLER[lab.scale])


def opened(lab) -> tuple[inspection.Subject, np.ndarray]:
    """The model that is looked into with its images, and what it says of the first of them."""
    model, name, where = lab.setting.inspected(lab)
    numerics = models.preprocessing_of(model)
    pictures = data.sample_images(name, model.input_shape[1:], numerics, COUNT, where)
    images = np.asarray(data.normalise(pictures.astype("float32"), numerics))
    probabilities = evaluation.probabilities(model, images[:SHOWN])
    names = model.class_names or [str(i) for i in range(probabilities.shape[1])]
    titles = [f"{names[row.argmax()]}  {100 * row.max():.0f} %" for row in probabilities]
    return inspection.Subject(model, images, pictures[:SHOWN], titles), probabilities


def _half(weights):
    """The least number of patches that hold half of the weight."""
    shares = np.cumsum(np.sort(weights.ravel())[::-1]) / weights.sum()
    return int(np.searchsorted(shares, 0.5)) + 1
