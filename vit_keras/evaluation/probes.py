"""Evaluates frozen features by few-shot least squares and k nearest neighbors.

The first is the paper's (Section 4.1), with the standardization, bias feature, L2, and sampling of
shots of the published evaluator (big_vision, evaluators/fewshot_lsr). The second is the protocol of
DINO (arXiv 2104.14294) and of Wu et al. (arXiv 1805.01978): the cosine similarity s of features,
and neighbors that vote with weight exp(s / 0.07).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras import data
from vit_keras.evaluation.predictors import Predictor, predict
from vit_keras.evaluation.reports import mean_and_std
from vit_keras.models.description import with_outputs
from vit_keras.support import extras

BIAS = 100.0  # a constant feature, so large that its weight is barely regularized
EPSILON = 1e-5  # added to the standard deviations
L2 = 2.0**10
SHOTS = (1, 5, 10, 25)
SEEDS = 3
# Of models without a head; their output is the representation.
LAST_LAYERS = ("pre_logits", "token", "token_gap", "gap", "MAPHead_0", "encoder_norm", "avg_pool")


class LeastSquares:
    """Least squares of labels in {-1, 1}^K on standardized features, for any L2 penalty.

    W = (XᵀX + λI)⁻¹ Xᵀ Y, computed with scikit-learn's `Ridge` in float64. X `(n, D + 1)` holds the
    features, minus their mean and divided by their standard deviation, and the bias feature.

    Args:
        features: `(n, D)`.
        labels: `(n,)` integers.
        num_classes: K.
    """

    def __init__(self, features: np.ndarray, labels: np.ndarray, num_classes: int):
        features = np.asarray(features, "float64")
        self.mean = features.mean(axis=0)
        self.std = features.std(axis=0) + EPSILON
        standardized = (features - self.mean) / self.std
        self.x = np.pad(standardized, ((0, 0), (0, 1)), constant_values=BIAS)
        self.y = 2 * np.eye(num_classes)[labels] - 1

    def predict(self, features: np.ndarray, l2: float = L2, chunk: int = 4096) -> np.ndarray:
        """Predicts the classes `(N,)` of features `(N, D)`, `chunk` rows at a time."""
        ridge = extras.require("sklearn.linear_model").Ridge
        solver = ridge(alpha=l2, fit_intercept=False, solver="cholesky")
        weights = solver.fit(self.x, self.y).coef_.T  # (D + 1, K)
        kernel = (weights[:-1] / self.std[:, None]).astype("float32")
        bias = (BIAS * weights[-1]).astype("float32")
        chunks = np.array_split(features, -(-len(features) // chunk))
        centered = ((part - self.mean).astype("float32") for part in chunks)
        return np.concatenate([(x @ kernel + bias).argmax(axis=-1) for x in centered])


def draw(labels, num_classes: int, shots: Sequence[int], seeds: int) -> tuple[np.ndarray, dict]:
    """Draws images of each class, once for each of the seeds 0, 1, and so on.

    The draw of a larger number of shots contains the draw of a smaller number.

    Returns:
        The ascending indices of all images used for any number of shots and any seed; and, for each
        (shots, seed), the positions of its images among them.

    Raises:
        ValueError: If a class has fewer images than shots, or if a label is not a class.
    """
    counts = np.bincount(labels, minlength=num_classes)
    if len(counts) > num_classes:
        raise ValueError(f"Labels must lie in [0, {num_classes}). Received: {labels.max()}")
    if counts.min() < max(shots):
        raise ValueError(
            f"{max(shots)} shots need at least as many images of each class. "
            f"Received: class {counts.argmin()} with {counts.min()} images"
        )
    chosen: dict[tuple[int, int], np.ndarray] = {}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        of_class = [rng.permutation(np.flatnonzero(labels == k)) for k in range(num_classes)]
        chosen |= {(n, seed): np.concatenate([i[:n] for i in of_class]) for n in shots}
    images = np.unique(np.concatenate(list(chosen.values())))
    return images, {key: np.searchsorted(images, indices) for key, indices in chosen.items()}


def few_shot(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    shots: Sequence[int] = SHOTS,
    l2: Sequence[float] = (L2,),
    seeds: int = SEEDS,
) -> list[dict[str, Any]]:
    """Measures the accuracy of least squares fitted to a few training images.

    Args:
        train: Features `(N, D)` and labels `(N,)` of the training images.
        test: The same for the test images.
        num_classes: K.
        shots: Numbers of training images per class.
        l2: Strengths of the regularization.
        seeds: The number of draws.

    Returns:
        One row for each number of shots and each L2: "shots", "l2", the "accuracies" of the seeds,
        their "mean", and their standard deviation, "std".

    Raises:
        ValueError: If a class has fewer images than shots.
    """
    features, labels = train
    images, places = draw(labels, num_classes, shots, seeds)
    return accuracies((features[images], labels[images]), test, num_classes, places, l2)


def accuracies(train, test, num_classes, places, l2=(L2,)) -> list[dict[str, Any]]:
    """Computes `few_shot` from the features and labels of the drawn images alone."""
    (features, labels), by_setting = train, dict[tuple[int, float], list[float]]()
    for (n, _), chosen in places.items():
        solver = LeastSquares(features[chosen], labels[chosen], num_classes)
        for strength in l2:
            right = solver.predict(test[0], strength) == test[1]
            by_setting.setdefault((n, strength), []).append(float(right.mean()))
    rows = []
    for (n, strength), values in by_setting.items():
        mean, std = mean_and_std(values)
        rows.append({"shots": n, "l2": strength, "accuracies": values, "mean": mean, "std": std})
    return rows


def few_shot_table(rows: Sequence[dict[str, Any]]) -> str:
    """Formats the rows of `few_shot` for a terminal."""
    return "\n".join(
        f"{row['shots']}-shot accuracy {100 * row['mean']:.2f} ± {100 * row['std']:.2f}% "
        f"(L2 {row['l2']:g}, {len(row['accuracies'])} seeds)"
        for row in rows
    )


def feature_model(model: keras.Model, representation: str | None = None) -> keras.Model:
    """Truncates a model at its representation, `(B, D)`; the weights are shared.

    Args:
        model: An image model.
        representation: The layer whose output is the representation; by default, the
            representation is the input of the layer `head`.

    Raises:
        ValueError: If there is no such layer. The message lists suitable layers.

    Example:
        ```python
        features = evaluation.feature_model(model).predict(images)  # (N, D)
        ```
    """
    layers = {layer.name: layer for layer in model.layers}
    features = layers[representation].output if representation in layers else None
    if representation is None and "head" in layers:
        features = layers["head"].input
    elif representation is None and model.layers[-1].name in LAST_LAYERS:
        features = model.output
    is_flat = lambda x: isinstance(x, keras.KerasTensor) and len(x.shape) == 2
    if not is_flat(features):
        flat = [name for name, layer in layers.items() if is_flat(layer.output)]
        raise ValueError(
            "Features must be the input of the layer 'head', or the output (B, D) of another "
            f"layer. Received: representation={representation!r} for model {model.name!r}, "
            f"where these fit: {', '.join(map(repr, flat))}"
        )
    return with_features(model, features, "features")


def with_features(model: keras.Model, outputs: Any, kind: str) -> keras.Model:
    """Makes a model with other outputs and the same description, except for the classes' names."""
    made = with_outputs(model, outputs, f"{model.name}_{kind}")
    made.class_names = None  # they belong to the logits
    return made


def evaluate_few_shot(
    predictor: Predictor,
    dataset: "data.Dataset",
    *,
    batch: int,
    splits: tuple[str, str] = ("train", "test"),
    representation: str | None = None,
    shots: Sequence[int] = SHOTS,
    seeds: int = SEEDS,
    **options: Any,
) -> list[dict[str, Any]]:
    """Measures few-shot accuracies of a model on a data set, as `few_shot` does.

    Features are computed once, for the test images and the drawn training images.

    Args:
        predictor: A predictor with a Keras model.
        dataset: A `data.Dataset`.
        batch: The number of images per batch.
        splits: The names of the training split and the test split.
        representation: As in `feature_model`.
        shots: Numbers of training images per class.
        seeds: The number of draws.
        **options: `l2`, as for `few_shot`.

    Raises:
        ValueError: If the labels are not classes, if the predictor is an exported file, or as for
            `few_shot` and `feature_model`.
    """
    _check_kind(dataset)
    split, classes = dataset.split(splits[0]), len(dataset.class_names)
    images, places = draw(split.labels, classes, shots, seeds)
    both = split.part(images), dataset.split(splits[1])
    train, test = _features(predictor, both, batch, representation)
    return accuracies(train, test, classes, places, **options)


class FewShotCallback(keras.callbacks.Callback):
    """Adds few-shot accuracies to the logs, as `fewshot_1` and so on.

    Place the callback before those that record the logs. With validation data, the evaluation is
    part of the validation, so its time does not count as training.

    Args:
        split: The training split to draw the shots from; they are not augmented.
        test: Batches of test images and labels that can be iterated over repeatedly.
        num_classes: The number of classes.
        every: The number of epochs between evaluations.
        encoder: The model that computes the features; by default, the model that trains.
        **options: Further arguments of `data.eval_batches`.

    Raises:
        ValueError: If a class has too few images.

    Example:
        ```python
        options = {"image_size": (32, 32), "preprocessing": model.preprocessing, "batch": 64}
        test = data.eval_batches(dataset.split("test"), **options)
        callback = evaluation.FewShotCallback(dataset.split("train"), test, 10, **options)
        model.fit(batches, epochs=20, callbacks=[callback])  # logs fewshot_1, _5 and _10
        print(evaluation.headline(callback.gain(untrained_model, model)))
        ```
    """

    def __init__(
        self,
        split: "data.Split",
        test: Iterable,
        num_classes: int,
        every: int = 1,
        encoder: keras.Model | None = None,
        **options,
    ):
        super().__init__()
        images, self.places = draw(split.labels, num_classes, (1, 5, 10), SEEDS)
        self.train = data.eval_batches(split.part(images), **options)
        self.test, self.num_classes = test, num_classes
        self.every, self.encoder = every, encoder
        self.features: keras.Model | None = None
        self.accuracies: dict[str, float] | None = {}  # None while they are due

    def on_epoch_begin(self, epoch, logs=None):
        self.accuracies = {} if (epoch + 1) % self.every else None

    def on_test_end(self, logs=None):
        self._evaluate()

    def on_epoch_end(self, epoch, logs=None):
        self._evaluate()
        logs.update(self.accuracies)

    def _evaluate(self):
        if self.accuracies is None:
            self.features = self.features or feature_model(self.encoder or self.model)
            rows = self._rows(self.features)
            self.accuracies = {f"fewshot_{row['shots']}": row["mean"] for row in rows}

    def gain(self, before: keras.Model, after: keras.Model) -> dict[str, list[dict[str, Any]]]:
        """Evaluates two models on the images of the run, to show the gain from training.

        Returns:
            The rows of `few_shot` under "fewshot_before" and "fewshot".
        """
        rows = [self._rows(feature_model(model)) for model in (before, after)]
        return {"fewshot_before": rows[0], "fewshot": rows[1]}

    def _rows(self, features):
        train, test = (predict(features, batches) for batches in (self.train, self.test))
        return accuracies(train, test, self.num_classes, self.places)


def _check_kind(dataset):
    if dataset.kind != "classes":
        raise ValueError(
            "Probes of features need a data set of classes. Received: "
            f"{dataset.name!r}, whose labels are {dataset.kind}"
        )


def _features(predictor, splits, batch, representation):
    """Returns the features and the labels of each split in `splits`."""
    features = feature_model(predictor.keras_model("A probe of features"), representation)
    return [predict(features, predictor.batches(split, batch)) for split in splits]


def nearest_neighbors(
    train: np.ndarray, test: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the training features most similar to each test feature, with scikit-learn.

    Args:
        train: Features `(N, D)`.
        test: Features `(M, D)`.
        count: The number of neighbors, at most N.

    Returns:
        The indices of the neighbors and their cosine similarities, both `(M, count)`, the most
        similar first.

    Example:
        >>> train = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
        >>> nearest_neighbors(train, np.array([[3.0, 1.0]]), count=2)[0]
        array([[0, 2]])
    """
    sklearn = extras.require("sklearn.neighbors")
    search = sklearn.NearestNeighbors(n_neighbors=count, algorithm="brute")
    distances, indices = search.fit(unit_length(train)).kneighbors(unit_length(test))
    return indices, 1 - distances**2 / 2  # of vectors of length 1


def knn(
    train: tuple[np.ndarray, np.ndarray],
    test: tuple[np.ndarray, np.ndarray],
    num_classes: int,
    neighbors: Sequence[int] = (10, 20),
    temperature: float = 0.07,
) -> list[dict[str, Any]]:
    """Measures the accuracy of nearest-neighbor votes.

    Args:
        train: Features `(N, D)` and labels `(N,)` of the training images.
        test: The same for the test images.
        num_classes: K.
        neighbors: Numbers of neighbors that vote; DINO's best are 10 and 20.
        temperature: t; a neighbor with the similarity s votes with weight exp(s / t).

    Returns:
        One row for each number of neighbors: "neighbors"; "weighted", the accuracy of the weighted
        votes; and "majority", where each neighbor has one vote. Ties go to the first class.

    Raises:
        ValueError: If there are fewer training images than neighbors, or `temperature` is not
            positive.
    """
    if temperature <= 0:
        raise ValueError(f"`temperature` must be above 0. Received: {temperature}")
    indices, similarities = nearest_neighbors(train[0], test[0], max(neighbors))
    labels = train[1][indices]
    weighted = np.exp((similarities - similarities[:, :1]) / temperature)  # at most 1
    weights = {"weighted": weighted, "majority": np.ones_like(weighted)}

    def accuracy(weights, k):
        votes = (np.bincount(*pair) for pair in zip(labels[:, :k], weights[:, :k]))
        return float(np.mean(np.equal([of.argmax() for of in votes], test[1])))

    return [
        {"neighbors": k, **{kind: accuracy(of_kind, k) for kind, of_kind in weights.items()}}
        for k in neighbors
    ]


def unit_length(features: np.ndarray) -> np.ndarray:
    """Divides features `(..., D)` by their Euclidean lengths, in float32; zeros stay zeros."""
    features = np.asarray(features, "float32")
    return features / np.maximum(np.linalg.norm(features, axis=-1, keepdims=True), 1e-12)


def knn_table(rows: Sequence[dict[str, Any]]) -> str:
    """Formats the rows of `knn` for a terminal."""
    return "\n".join(
        f"{row['neighbors']}-nearest-neighbor accuracy {100 * row['weighted']:.2f}% "
        f"({100 * row['majority']:.2f}% by majority)"
        for row in rows
    )


def evaluate_knn(
    predictor: Predictor,
    dataset: "data.Dataset",
    *,
    batch: int,
    splits: tuple[str, str] = ("train", "test"),
    representation: str | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Evaluates a model's features on a data set with `knn`.

    Args:
        predictor: A predictor with a Keras model.
        dataset: A `data.Dataset`.
        batch: The number of images per batch.
        splits: The names of the training split and the test split.
        representation: As in `feature_model`.
        **options: `neighbors` and `temperature`, as for `knn`.

    Raises:
        ValueError: If the labels are not classes, if the predictor is an exported file, or as for
            `knn` and `feature_model`.
    """
    _check_kind(dataset)
    both = [dataset.split(name) for name in splits]
    train, test = _features(predictor, both, batch, representation)
    return knn(train, test, len(dataset.class_names), **options)


def retrieval_recall(
    similarities: np.ndarray,
    image_of_text: np.ndarray | None = None,
    counts: Sequence[int] = (1, 5, 10),
) -> dict[str, float]:
    """Computes how often the right text, or image, is among the most similar ones.

    An image with several texts counts if one of them is found (as in CLIP's and big_vision's
    retrieval). Among equal similarities, the wrong ones come first.

    Args:
        similarities: `(N, M)`, of images and texts.
        image_of_text: `(M,)`, the number of each text's image. By default, text i fits image i.
        counts: How many of the most similar ones to look at.

    Returns:
        `{"image_to_text_R@1": …, "text_to_image_R@1": …}`, for each count.

    Example:
        >>> retrieval_recall(np.array([[0.9, 0.1], [0.8, 0.7]]), counts=[1])
        {'image_to_text_R@1': 0.5, 'text_to_image_R@1': 1.0}
    """
    images = np.arange(len(similarities))
    right = images[:, None] == (images if image_of_text is None else image_of_text)  # (N, M)
    result: dict[str, float] = {}
    sides = {"image_to_text": (similarities, right), "text_to_image": (similarities.T, right.T)}
    for name, (scores, hits) in sides.items():
        best = np.where(hits, scores, -np.inf).max(axis=1, keepdims=True)
        ranks = ((scores >= best) & ~hits).sum(axis=1)  # wrong ones that are as similar come first
        result |= {f"{name}_R@{count}": float((ranks < count).mean()) for count in counts}
    return result
