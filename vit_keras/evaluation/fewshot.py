"""Few-shot linear evaluation: frozen features, labels by least squares in closed form.

The paper's (Section 4.1), in the published evaluator's form (big_vision, evaluators/fewshot_lsr):
its standardisation, bias feature, L2 and choice of shots.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from vit_keras import data
from vit_keras.evaluation.predictors import Predictor, make_predictor
from vit_keras.evaluation.summary import mean_and_std
from vit_keras.models.image_model import copy_description

BIAS = 100.0  # a constant feature: so large that its weight is hardly regularised
EPSILON = 1e-5  # added to the deviations
L2 = 2.0**10
SHOTS = (1, 5, 10, 25)
SEEDS = 3
# Layers whose output is the representation of a model without a head.
REPRESENTATIONS = ("pre_logits", "token", "gap", "MAPHead_0", "encoder_norm", "avg_pool")


class LeastSquares:
    """Regularised least squares of labels in {-1, 1}^K on standardised features, for any L2.

    W = (XᵀX + λI)⁻¹ Xᵀ Y, or where images are fewer than features W = Xᵀ (XXᵀ + λI)⁻¹ Y, in
    float64: X `(n, D + 1)` are the features less their mean, over their deviation, beside the bias.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int):
        features = np.asarray(features, "float64")
        self.mean = features.mean(axis=0)
        self.std = features.std(axis=0) + EPSILON
        x = np.pad((features - self.mean) / self.std, ((0, 0), (0, 1)), constant_values=BIAS)
        y = np.full((len(labels), num_classes), -1.0)
        y[np.arange(len(labels)), labels] = 1.0
        primal = x.shape[0] >= x.shape[1]
        self.gram = x.T @ x if primal else x @ x.T
        self.targets = x.T @ y if primal else y
        self.back = None if primal else x.T

    def weights(self, l2: float = L2) -> np.ndarray:
        """W `(D + 1, K)`, of the standardised features and the bias feature."""
        solved = np.linalg.solve(self.gram + l2 * np.eye(len(self.gram)), self.targets)
        return solved if self.back is None else self.back @ solved

    def predict(self, features: np.ndarray, l2: float = L2, chunk: int = 4096) -> np.ndarray:
        """The classes `(N,)` that features `(N, D)` are nearest to."""
        weights = self.weights(l2)
        kernel = (weights[:-1] / self.std[:, None]).astype("float32")
        bias = (BIAS * weights[-1]).astype("float32")
        classes = []
        for i in range(0, len(features), chunk):
            part = (features[i : i + chunk] - self.mean).astype("float32")
            classes.append((part @ kernel + bias).argmax(axis=-1))
        return np.concatenate(classes)


class Draw(NamedTuple):
    """Which images are the shots.

    Attributes:
        images: the indices, ascending, of all that any number of shots and any seed use.
        places: {(shots, seed): places in `images`}.
    """

    images: np.ndarray
    places: dict[tuple[int, int], np.ndarray]


def draw(labels: np.ndarray, num_classes: int, shots: Sequence[int], seeds: int) -> Draw:
    """Draws images of each class, once for each of the seeds 0, 1 …; more shots hold the fewer.

    ValueError where a class has fewer images than asked for.
    """
    if not shots or min(shots) < 1 or seeds < 1:
        raise ValueError(
            f"`shots` and `seeds` must be positive. Received: shots={list(shots)}, seeds={seeds}"
        )
    if labels.min() < 0 or labels.max() >= num_classes:
        raise ValueError(
            f"Labels must lie in [0, {num_classes}). "
            f"Received: labels from {labels.min()} to {labels.max()}"
        )
    counts = np.bincount(labels, minlength=num_classes)
    if counts.min() < max(shots):
        raise ValueError(
            f"{max(shots)} shots need as many images of each class. "
            f"Received: class {counts.argmin()} with {counts.min()}"
        )
    chosen = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        of_class = [rng.permutation(np.flatnonzero(labels == k)) for k in range(num_classes)]
        chosen |= {(n, seed): np.concatenate([i[:n] for i in of_class]) for n in shots}
    images = np.unique(np.concatenate(list(chosen.values())))
    return Draw(images, {key: np.searchsorted(images, found) for key, found in chosen.items()})


def few_shot(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    shots: Sequence[int] = SHOTS,
    l2: Sequence[float] = (L2,),
    seeds: int = SEEDS,
) -> list[dict[str, Any]]:
    """Accuracy on `test` of least squares on a few of `train`, both features `(N, D)` and labels.

    One row for each number of shots and each L2: its accuracies for seeds 0, 1 …, which draw the
    shots, their mean and standard deviation.
    """
    features, labels = train
    drawn = draw(labels, num_classes, shots, seeds)
    return accuracies(features[drawn.images], labels[drawn.images], drawn, test, num_classes, l2)


def accuracies(features, labels, drawn, test, num_classes, l2=(L2,)) -> list[dict[str, Any]]:
    """`few_shot`, of features and labels of the images `drawn` alone."""
    found = {}
    for (n, _), places in drawn.places.items():
        solver = LeastSquares(features[places], labels[places], num_classes)
        for strength in l2:
            right = solver.predict(test[0], strength) == test[1]
            found.setdefault((n, strength), []).append(float(right.mean()))
    rows = []
    for (n, strength), values in found.items():
        mean, std = mean_and_std(values)
        rows.append({"shots": n, "l2": strength, "accuracies": values, "mean": mean, "std": std})
    return rows


def few_shot_table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of `few_shot` as text for a terminal."""
    return "\n".join(
        f"{row['shots']}-shot accuracy {100 * row['mean']:.2f} ± {100 * row['std']:.2f}% "
        f"(L2 {row['l2']:g}, {len(row['accuracies'])} seeds)"
        for row in rows
    )


def feature_model(model: keras.Model, representation: str | None = None) -> keras.Model:
    """The model up to its representation `(B, D)`: the input of `head`, or a layer's output.

    Weights are shared. ValueError, with the layers that could be read, where there is no such
    layer.
    """
    layers = {layer.name: layer for layer in model.layers}
    if representation is not None:
        found = layers[representation].output if representation in layers else None
    elif "head" in layers:
        found = layers["head"].input
    else:
        found = model.output if model.layers[-1].name in REPRESENTATIONS else None
    if found is None or len(found.shape) != 2:
        flat = [name for name, layer in layers.items() if len(layer.output.shape) == 2]
        raise ValueError(
            f"Features are the input of layer 'head' or the output (B, D) of a named layer. "
            f"Received: representation={representation!r} for model {model.name!r}, "
            f"which has {', '.join(map(repr, flat))}"
        )
    shared = type(model)(model.input, found, name=f"{model.name}_features")
    return copy_description(shared, model)


def extract(features: keras.Model, batches: Iterable) -> tuple[np.ndarray, np.ndarray]:
    """Features `(N, D)` float32 and labels `(N,)` of batches, by a `feature_model`."""
    return make_predictor(features).outputs(batches)[:2]


def evaluate_few_shot(
    predictor: Predictor,
    dataset: "data.Dataset",
    *,
    batch: int,
    splits: tuple[str, str] = ("train", "test"),
    representation: str | None = None,
    shots: Sequence[int] = SHOTS,
    l2: Sequence[float] = (L2,),
    seeds: int = SEEDS,
) -> list[dict[str, Any]]:
    """`few_shot` of a model on a data set.

    Features are computed once, of the test images and of the training images that are drawn.
    ValueError for an exported file, which has none.
    """
    if predictor.model is None:
        raise ValueError(
            "A few-shot evaluation reads features, which an exported file does not give. "
            "Give it the run or the checkpoint that was exported"
        )
    split, classes = dataset.split(splits[0]), len(dataset.class_names)
    drawn = draw(split.labels, classes, shots, seeds)
    features = feature_model(predictor.model, representation)
    train, test = (
        extract(features, predictor.batches(images, batch))
        for images in (split.part(drawn.images), dataset.split(splits[1]))
    )
    return accuracies(*train, drawn, test, classes, l2)
