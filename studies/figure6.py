"""Figure 6: attention from the output token to the image, by attention rollout (D.8)."""

import numpy as np

from studies.results import Column, Result
from vit_keras import data, evaluation, inspection, models
from vit_keras.data.depth import to_levels
from vit_keras.inspection.views import rollout_figure
from vit_keras.support.figures import save_figure

COUNT, SHOWN = 128, 10  # images in the means, and in the picture
SETUP = {
    "digits": "A ViT with 6 layers and width 48 sees 32x32 pixels as 64 patches of 4x4. It is "
    "trained on the digits for {inspected_steps} updates; the images are held out.",
    "full": "The model is the published ViT-L/16 of ImageNet-21k, because the one of JFT-300M is "
    "not public.",
}
COLUMNS = (
    *(Column("picture", "d"), Column("ours: predicted"), Column("ours: probability", ".3f")),
    *(Column("ours: patches with half of the attention", "d"), Column("patches", "d")),
)


def run(lab) -> Result:
    """One row for each image: its prediction, and how few patches hold half of the rollout."""
    subject, probabilities = open_subject(lab)
    rollout = subject.attention.rollout[:SHOWN]
    names = subject.model.class_names or [str(i) for i in range(probabilities.shape[1])]
    rows = [
        [i + 1, names[row.argmax()], float(row.max()), _half(weights), weights.size]
        for i, (row, weights) in enumerate(zip(probabilities, rollout))
    ]
    half = np.mean([_half(weights) for weights in subject.attention.rollout])
    finding = (
        f"Half of the attention lies on {half:.1f} of {rollout[0].size} patches, averaged over "
        f"{len(subject.images)} images. Uniform attention would need {rollout[0].size // 2}."
    )
    draw = lambda path: save_figure(rollout_figure(subject, rollout), path)
    return Result("figure6", COLUMNS, rows, draw, finding, lab.setup(SETUP))


def open_subject(lab) -> tuple[inspection.Subject, np.ndarray]:
    """The model to inspect with its images, and its probabilities for the first images."""
    model, name, where = lab.scale.model_to_inspect(lab)
    numerics = models.preprocessing_of(model)
    size, channels = model.input_shape[1:3], model.input_shape[3]
    split = data.load(name, channels, where).split(where.test_split)
    split = split.read_as(numerics.levels, numerics.bands)
    numbers = range(min(COUNT, len(split)))
    resized = np.stack([data.resize(split.read(i), size, numerics) for i in numbers])
    pictures = to_levels(resized, numerics.levels)
    images = np.asarray(data.normalize(pictures.astype("float32"), numerics))
    probabilities = evaluation.probabilities(model, images[:SHOWN])
    names = model.class_names or [str(i) for i in range(probabilities.shape[1])]
    titles = [f"{names[row.argmax()]}  {100 * row.max():.0f} %" for row in probabilities]
    return inspection.Subject(model, images, pictures[:SHOWN], titles), probabilities


def _half(weights):
    """The smallest number of patches that hold half of the weight."""
    shares = np.cumsum(np.sort(weights.ravel())[::-1]) / weights.sum()
    return int(np.searchsorted(shares, 0.5)) + 1
