"""Labels that look wrong: the features of the other pictures contradict them."""

from typing import NamedTuple

import keras
import numpy as np

from vit_keras.evaluation.probes import feature_model, with_features
from vit_keras.layers import EncoderBlock, PatchMap
from vit_keras.models import patch_grid
from vit_keras.support import extras

FOLDS = 5
SIDE = 4  # rows and columns of the patches' means


class LabelIssue(NamedTuple):
    """A picture whose label looks wrong.

    Attributes:
        number: The number of the picture.
        label: The class that it is labeled as.
        suggested: The class that it looks like.
        probabilities: The probabilities of `suggested` and of `label`.

    Example:
        ```python
        probabilities = evaluation.cross_validated_probabilities(features, labels)
        for issue in evaluation.find_label_issues(probabilities, labels):
            print(issue.number, names[issue.label], "looks like", names[issue.suggested])
        ```
    """

    number: int
    label: int
    suggested: int
    probabilities: tuple[float, float]


def early_features(model: keras.Model) -> keras.Model:
    """Truncates a model in the middle, where it does not yet fit wrong training labels.

    Args:
        model: An image model.

    Returns:
        A model that gives the middle block's patches, as `(B, 16 * D)` for a grid that is resized
        to 4 x 4; for a model without blocks, its `feature_model`.

    Example:
        >>> model = vit_keras.applications.ViTTi16(image_size=96, weights=None)
        >>> vit_keras.evaluation.early_features(model).output_shape
        (None, 3072)
    """
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    if not blocks:
        return feature_model(model)
    x = PatchMap(patch_grid(model))(blocks[(len(blocks) - 1) // 2].output)
    if max(x.shape[1:3]) > SIDE:
        x = keras.layers.Resizing(SIDE, SIDE, antialias=True)(x)
    return with_features(model, keras.layers.Flatten()(x), "early_features")


def cross_validated_probabilities(
    features: np.ndarray, labels: np.ndarray, seed: int = 0
) -> np.ndarray:
    """Predicts each picture's class from the features and labels of other pictures.

    A logistic regression on standardized features predicts each of five parts after training on the
    others; the parts have equal shares of each class.

    Args:
        features: `(N, D)`, such as those from `predict`.
        labels: `(N,)` integers from 0 to K − 1, each at least twice.
        seed: The seed with which the parts are drawn.

    Returns:
        `(N, K)` probabilities.

    Raises:
        ValueError: If there are fewer than two classes, or a class has a single picture.

    Example:
        >>> features = np.array([[0.0], [0.1], [5.0], [5.1]])
        >>> cross_validated_probabilities(features, np.array([0, 0, 1, 1])).argmax(axis=1)
        array([0, 0, 1, 1])
    """
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2 or counts.min() < 2:
        raise ValueError(
            "A search for wrong labels needs at least two classes, each with at least two "
            f"pictures. Received: {len(classes)} classes; pictures in the smallest: {counts.min()}"
        )
    selection = extras.require("sklearn.model_selection")
    linear = extras.require("sklearn.linear_model")
    scaler = extras.require("sklearn.preprocessing").StandardScaler()
    pipeline = extras.require("sklearn.pipeline").make_pipeline
    folds = selection.StratifiedKFold(min(FOLDS, counts.min()), shuffle=True, random_state=seed)
    model = pipeline(scaler, linear.LogisticRegression(C=0.1, max_iter=1000))
    columns = selection.cross_val_predict(model, features, labels, cv=folds, method="predict_proba")
    probabilities = np.zeros((len(labels), classes.max() + 1))
    probabilities[:, classes] = columns
    return probabilities


def suspicion(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Returns how much more probable the best other class is than the label, `(N,)` in [−1, 1].

    Example:
        >>> suspicion(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 0]))
        array([-0.5,  0.5])
    """
    rows = np.arange(len(labels))
    others = probabilities.copy()
    others[rows, labels] = -np.inf
    return others.max(axis=1) - probabilities[rows, labels]


def find_label_issues(probabilities: np.ndarray, labels: np.ndarray) -> list[LabelIssue]:
    """Finds labels that are probably wrong, by confident learning (arXiv 1911.00068).

    A picture is counted in a class if its probability of the class is at least the mean over the
    pictures with this label; if several classes qualify, the most probable one gets it. A label
    looks wrong if its picture is counted in another class. cleanlab calls this rule
    "confident_learning"; it needs pandas, so the rule is implemented here.

    Args:
        probabilities: `(N, K)`, from `cross_validated_probabilities`.
        labels: `(N,)` integers.

    Returns:
        The issues, those with the highest `suspicion` first.

    Example:
        >>> probabilities = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.95, 0.05]])
        >>> find_label_issues(probabilities, np.array([0, 0, 1, 1]))[0].number
        3
    """
    classes = range(probabilities.shape[1])
    means = [probabilities[labels == k, k].mean() if (labels == k).any() else 2 for k in classes]
    counts = np.where(probabilities >= means, probabilities, -1)
    suggested = np.where(counts.max(axis=1) >= 0, counts.argmax(axis=1), labels)
    order = np.argsort(-suspicion(probabilities, labels), kind="stable")
    wrong = [i for i in order.tolist() if suggested[i] != labels[i]]
    share = lambda i, k: float(probabilities[i, k])
    return [
        LabelIssue(i, label, k, (share(i, k), share(i, label)))
        for i, label, k in zip(wrong, labels[wrong].tolist(), suggested[wrong].tolist())
    ]
