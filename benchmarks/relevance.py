"""Whether class relevance points at what an answer rests on better than attention rollout does.

    KERAS_BACKEND=jax python -m benchmarks.relevance --data two_colors

trains three small models (class token; class token and registers; mean of the patches) on pictures
that hold something to find, and measures deletion and insertion on 200 new pictures of each: the
mean probability of the class while patches are hidden, or shown, the most relevant first. A good
map has a low deletion and a high insertion. `--data` is

- "two_digits": two different digits on a large canvas, one of which is the class in question;
- "two_colors": two shapes on a photograph, the color of one of which is the class in question;
- "shapes": a shape on a photograph;
- "digits": a digit that fills the picture.

A random order of the patches and the last layer's attention are beside the two maps.
"""

import argparse
import functools
import sys

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from examples.shapes_on_photographs import OUTLINES, SIZE, SPLITS, draw_mask, halves, make_picture
from vit_keras import evaluation, inspection, models
from vit_keras.support.tasks import Task

NAMES = ("circle", "square", "triangle", "star")
COLORS = [(230, 25, 75), (60, 180, 75), (0, 130, 200), (245, 220, 30), (240, 50, 230)]
KINDS = {
    "token": {"classifier": "token"},
    "registers": {"classifier": "token", "num_registers": 4},
    "gap": {"classifier": "gap"},
}
SIZES = {"hidden_size": 64, "num_layers": 4, "num_heads": 4, "mlp_dim": 128}


@functools.cache
def scans(split):
    """Handwritten digits of a split `(N, 16, 16)` in [0, 1], and their labels."""
    images, labels = load_digits(return_X_y=True)
    chosen = (np.arange(len(labels)) % 5 == 0) == (split == "test")
    images = images[chosen].reshape(-1, 8, 8) / 16
    return np.stack([np.kron(image, np.ones((2, 2))) for image in images]), labels[chosen]


def digits(split, rng):
    images, labels = scans(split)
    number = rng.integers(len(labels))
    return images[number][..., None], [labels[number]]


def two_digits(split, rng):
    """Two different digits in different quarters of a canvas of 48 x 48 pixels."""
    images, labels = scans(split)
    first, second = rng.integers(len(labels), size=2)
    while labels[first] == labels[second]:
        second = rng.integers(len(labels))
    canvas = np.zeros((48, 48, 1))
    for number, quarter in zip((first, second), rng.permutation(4)):
        row, column = np.array([quarter // 2, quarter % 2]) * 24 + rng.integers(0, 9, 2)
        canvas[row : row + 16, column : column + 16, 0] = images[number]
    return canvas, [labels[first], labels[second]]


def shapes(split, rng):
    name = rng.integers(len(NAMES))
    picture = make_picture(halves(split), NAMES[name], rng).resize((64, 48))
    return np.asarray(picture) / 127.5 - 1, [name]


def two_colors(split, rng):
    """Two shapes in different colors, in the left and in the right half of a photograph."""
    photograph = halves(split)[rng.integers(2)]
    left, top = (rng.uniform(0, side - 100) for side in photograph.size)
    box = (left, top, left + 100, top + 75)
    picture = photograph.resize(SIZE, Image.Resampling.BICUBIC, box)
    chosen = rng.permutation(len(COLORS))[:2]
    for side, number in enumerate(chosen):
        outline = OUTLINES[NAMES[rng.integers(len(NAMES))]]
        center = (40 + 80 * side, rng.uniform(36, 84))
        mask = draw_mask(outline, center, rng.uniform(24, 34), rng.uniform(-25, 25))
        picture.paste(COLORS[number], mask=mask)
    return np.asarray(picture.resize((64, 48))) / 127.5 - 1, list(chosen)


# The function that draws a picture and its classes, the size of the pictures and of the patches,
# and the number of classes.
DATA = {
    "two_digits": (two_digits, (48, 48, 1), 6, 10),
    "two_colors": (two_colors, (48, 64, 3), 8, 5),
    "shapes": (shapes, (48, 64, 3), 8, 4),
    "digits": (digits, (16, 16, 1), 4, 10),
}


def draw(function, split, rng, count, classes):
    """Pictures `(N, H, W, C)` and labels `(N, K)` of 0 and 1."""
    pictures, rows = zip(*(function(split, rng) for _ in range(count)))
    labels = np.zeros((count, classes), "float32")
    for number, row in enumerate(rows):
        labels[number, row] = 1
    return np.stack(pictures).astype("float32"), labels, np.array([row[0] for row in rows])


def train(kind, data, seed, steps):
    function, shape, patch_size, classes = DATA[data]
    channels = {"channels": shape[-1], "seed": seed, "dropout_rate": 0.1}
    model = models.VisionTransformer(
        shape[:2], patch_size, **SIZES, num_classes=classes, **channels, **KINDS[kind]
    )
    if shape[-1] == 1:  # digits on black, which is what hidden patches have
        model.preprocessing = models.Preprocessing(mean=(0.0,), std=(1.0,))
    model.task = Task("labels" if data.startswith("two") else "classes")
    losses = {
        "labels": keras.losses.BinaryCrossentropy,
        "classes": keras.losses.CategoricalCrossentropy,
    }
    warmup = {"warmup_target": 2e-3, "warmup_steps": steps // 10}
    decay = keras.optimizers.schedules.CosineDecay(0.0, steps, **warmup)
    loss = losses[model.task.kind](from_logits=True)
    model.compile(keras.optimizers.AdamW(decay, 0.05, global_clipnorm=1.0), loss)
    rng = np.random.default_rng([seed, 0])
    images, labels, _ = draw(function, "train", rng, 64 * min(steps, 128), classes)
    model.fit(images, labels, 64, epochs=steps // min(steps, 128), verbose=0)
    return model


def perturbation_curves(model, images, relevance, classes, steps=20):
    """Measures whether a map marks the patches that a model's answer depends on.

    Patches are hidden, or shown in an empty picture, in the order of their relevance (deletion and
    insertion, arXiv 1806.07421). Hidden patches are set to 0, the mean color of prepared images.

    Args:
        model: A classifier.
        images: `(B, H, W, C)`, prepared for the model.
        relevance: `(B, h, w)`, such as the result of `models.explain` or `AttentionViews.rollout`.
        classes: `(B,)`, for each image the class whose probability is measured.
        steps: The maximum number of steps; there are never more steps than patches.

    Returns:
        Two arrays `(B, S + 1)` of probabilities: after hiding 0, …, all patches, and after showing
        0, …, all patches.
    """
    height, width = (n // m for n, m in zip(images.shape[1:3], relevance.shape[1:]))
    ranks = np.argsort(np.argsort(-relevance.reshape(len(relevance), -1), axis=1, kind="stable"))
    ranks = ranks.reshape(relevance.shape).repeat(height, axis=1).repeat(width, axis=2)[..., None]
    count, predictor, curves = relevance[0].size, evaluation.make_predictor(model), ([], [])
    for most in np.linspace(0, count, min(steps, count) + 1).round():
        for curve, kept in zip(curves, (ranks >= most, ranks < most)):
            outputs = predictor.run((images * kept).astype("float32"))
            shares = predictor.as_probabilities(np.asarray(outputs))
            curve.append(shares[np.arange(len(images)), classes])
    return tuple(np.stack(curve, axis=1) for curve in curves)


def measure(model, data, seed, count):
    """Yields the name of a map, and its deletion and insertion."""
    function, _, _, classes = DATA[data]
    images, labels, asked = draw(
        function, SPLITS[1], np.random.default_rng([seed, 1]), count, classes
    )
    logits = model.predict(images, verbose=0)
    views = inspection.attention_views(model, images)
    maps = {
        "relevance": models.explain(model, images, asked),
        "rollout": views.rollout,
        "last layer": views.last_layer.mean(axis=1),
        "random": np.random.default_rng(seed).random(views.rollout.shape),
    }
    right = np.take_along_axis(labels, np.argsort(-logits)[:, : int(labels[0].sum())], axis=1)
    yield "accuracy", (float(right.mean()),)
    for name, relevance in maps.items():
        curves = perturbation_curves(model, images, relevance, asked)
        yield name, [float(curve.mean()) for curve in curves]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=DATA, default="two_colors")
    parser.add_argument("--steps", type=int, default=384, help="updates of each model (384)")
    parser.add_argument("--count", type=int, default=200, help="pictures to explain (200)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for kind in KINDS:
        model = train(kind, options.data, options.seed, options.steps)
        for name, values in measure(model, options.data, options.seed, options.count):
            print(options.data, kind, name, *(f"{value:.3f}" for value in values), flush=True)


if __name__ == "__main__":
    sys.exit(main())
