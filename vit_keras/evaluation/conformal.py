"""Sets of classes and intervals of numbers that contain the truth at a chosen rate.

Split conformal prediction (Vovk et al. 2005; Lei et al. 2018, arXiv 1604.04173): each answer gets a
score, and the worse the answer fits the picture, the higher its score. An answer is possible if its
score is at most a quantile of the true answers' scores on the development split. If new pictures
come from the same source, their true answers are among the possible ones at least at the chosen
rate.
"""

import math
from typing import Any

import numpy as np

from vit_keras.support.tasks import Task

COVERAGES = (0.8, 0.9, 0.95, 0.99)
SHARES = (0.01, 0.05, 0.1)  # of known pictures, for which a model may abstain
SMALLEST = 1e-30  # keeps logarithms finite


def _scores(outputs: np.ndarray, kind: str) -> np.ndarray:
    """The scores of all classes or labels, `(N, K)`; `outputs` are probabilities.

    A class's score is the logarithm of how much more probable the best other class is (the margin
    of Johansson et al. 2017). It has no ties where probabilities are close to 1, and the
    temperature does not change its order.
    """
    outputs = outputs.astype("float64")
    if kind == "labels":
        return -outputs
    logs = np.log(np.maximum(outputs, SMALLEST))
    second, first = np.sort(logs, axis=-1)[:, -2:].T
    others = np.where(logs == first[:, None], second[:, None], first[:, None])
    return others - logs


def _true_scores(outputs, labels, kind) -> list[np.ndarray]:
    """The scores of the true answers, in one array for classes, otherwise in one for each output.

    For a label, only the pictures that have it count.
    """
    if kind == "classes":
        return [_scores(outputs, kind)[np.arange(len(labels)), labels]]
    if kind == "labels":
        return [s[y == 1] for s, y in zip(_scores(outputs, kind).T, labels.T)]
    errors = np.abs(outputs.astype("float64") - labels)
    return [error[~np.isnan(error)] for error in errors.T]


def fit_quantiles(
    outputs: np.ndarray, labels: np.ndarray, task: Task
) -> tuple[tuple[float | None, ...], ...] | None:
    """Finds the quantiles of the true answers' scores on a development split.

    Args:
        outputs: `(N, K)` probabilities; for numbers, the predicted numbers.
        labels: `(N,)` integers for classes, otherwise `(N, K)` with NaN for unknown ones.
        task: What the outputs are: classes, labels or numbers.

    Returns:
        For each of `COVERAGES` that the number of pictures allows, the coverage and its quantiles:
        one for classes, otherwise one for each output; None for an output with too few pictures.
        None for masks, or if there are too few pictures for any coverage.

    Example:
        >>> task = Task("numbers")
        >>> numbers, errors = np.zeros((9, 1)), np.arange(9.0)[:, None]
        >>> fit_quantiles(numbers, errors, task)  # the eighth and the ninth of the nine errors
        ((0.8, 7.0), (0.9, 8.0))
    """
    if task.kind == "masks":
        return None
    columns = [np.sort(column) for column in _true_scores(outputs, labels, task.kind)]
    rows = [(rate, *(_quantile(column, rate) for column in columns)) for rate in COVERAGES]
    return tuple(row for row in rows if any(q is not None for q in row[1:])) or None


def _quantile(ordered, coverage):
    rank = math.ceil(round((len(ordered) + 1) * coverage, 9))
    return float(ordered[rank - 1]) if rank <= len(ordered) else None


def _row_of(rows, level: float, need: str, name: str) -> tuple:
    """The numbers that a model has for a coverage or a share."""
    table = {row[0]: row[1:] for row in rows or ()}
    if level not in table:
        had = ", ".join(f"{row:g}" for row in table) or "none"
        raise ValueError(
            f"{need} enough pictures of a development split. Received: {name}={level:g}; the model "
            f"has {had}. Train with --data.dev_percent, or with more pictures"
        )
    return table[level]


def _quantiles(task: Task, coverage: float) -> np.ndarray:
    """The quantiles for a coverage, `(1,)` or `(K,)`, infinite where there are none."""
    row = _row_of(task.quantiles, coverage, "A coverage needs quantiles from", "coverage")
    return np.array([np.inf if q is None else q for q in row])


def possible_answers(outputs: np.ndarray, task: Task, coverage: float) -> np.ndarray:
    """Returns which classes or labels are possible for each picture.

    Args:
        outputs: `(N, K)` probabilities.
        task: Classes or labels, with quantiles.
        coverage: One of the coverages of `task.quantiles`, such as 0.9.

    Returns:
        `(N, K)` bool. A picture's class is among them at least at the rate `coverage`, and so is
        each label, over the pictures that have it. A picture that resembles no class may have none.

    Raises:
        ValueError: If the task has no quantile for `coverage`.

    Example:
        >>> task = Task(quantiles=((0.9, 0.7),))  # log(2) = 0.69
        >>> possible_answers(np.array([[0.6, 0.3, 0.1], [0.2, 0.4, 0.4]]), task, 0.9)
        array([[ True,  True, False],
               [ True,  True,  True]])
    """
    return _scores(outputs, task.kind) <= _quantiles(task, coverage)


def intervals(numbers: np.ndarray, task: Task, coverage: float) -> np.ndarray:
    """Returns the interval of each predicted number.

    Args:
        numbers: `(N, K)`.
        task: Numbers, with quantiles.
        coverage: As for `possible_answers`.

    Returns:
        `(N, K, 2)`, the lower and the upper bound. They contain the true number at least at the
        rate `coverage`, and are infinite for a number with too few pictures.

    Raises:
        ValueError: If the task has no quantile for `coverage`.

    Example:
        >>> intervals(np.array([[5.0]]), Task("numbers", quantiles=((0.9, 1.5),)), 0.9)
        array([[[3.5, 6.5]]])
    """
    half = _quantiles(task, coverage)
    return np.stack([numbers - half, numbers + half], axis=-1)


def fit_floors(probabilities: np.ndarray) -> tuple[tuple[float, float], ...] | None:
    """Finds the probabilities below which the most probable class is unusually improbable.

    The probability of the most probable class is the score by which a model abstains (Hendrycks and
    Gimpel 2017, arXiv 1610.02136).

    Args:
        probabilities: `(N, K)`, of the classes of the development pictures.

    Returns:
        For each of `SHARES` that N allows, the share and a probability: at most this share of new
        pictures from the same source falls below it. None if there are too few pictures.

    Example:
        >>> fit_floors(np.stack([np.linspace(0.5, 1, 19), np.linspace(0.5, 0, 19)], axis=1))
        ((0.05, 0.5), (0.1, 0.5277777777777778))
    """
    ordered = np.sort(probabilities.max(axis=-1))
    ranks = [(share, int((len(ordered) + 1) * share + 1e-9)) for share in SHARES]
    return tuple((share, float(ordered[rank - 1])) for share, rank in ranks if rank) or None


def abstains(probabilities: np.ndarray, task: Task, share: float) -> np.ndarray:
    """Returns which pictures get none of the classes as an answer, `(N,)` bool.

    Args:
        probabilities: `(N, K)`.
        task: Classes, with floors.
        share: One of the shares of `task.floors`, such as 0.05: at most this share of pictures from
            the source of the development pictures gets no answer.

    Raises:
        ValueError: If the task has no floor for `share`.

    Example:
        >>> task = Task(floors=((0.05, 0.6),))
        >>> abstains(np.array([[0.9, 0.1], [0.5, 0.5]]), task, 0.05)
        array([False,  True])
    """
    (floor,) = _row_of(task.floors, share, "Abstaining needs classes and", "abstain")
    return probabilities.max(axis=-1) < floor


def measure_coverage(outputs: np.ndarray, labels: np.ndarray, task: Task) -> list[dict[str, Any]]:
    """Measures how often the true answers are among the possible ones.

    Args:
        outputs: As for `fit_quantiles`, of other pictures.
        labels: Their labels, as for `fit_quantiles`.
        task: The task, with quantiles.

    Returns:
        For each coverage of the task: "coverage"; "covered", the share of true answers that are
        possible; "pictures", the number of true answers; and "size", the mean number of possible
        classes or labels of a picture, or the mean length of a finite interval. "covered" is None
        without true answers, and "size" without finite intervals.

    Example:
        >>> task = Task("numbers", quantiles=((0.9, 1.5),))
        >>> measure_coverage(np.zeros((2, 1)), np.array([[1.0], [2.0]]), task)
        [{'coverage': 0.9, 'covered': 0.5, 'pictures': 2, 'size': 3.0}]
    """
    rows, columns = [], _true_scores(outputs, labels, task.kind)
    for coverage in (row[0] or 0.0 for row in task.quantiles or ()):
        quantiles = _quantiles(task, coverage)
        held = np.concatenate([s <= q for s, q in zip(columns, quantiles, strict=True)])
        if task.kind == "numbers":
            sizes = 2 * quantiles[np.isfinite(quantiles)]
        else:
            sizes = possible_answers(outputs, task, coverage).sum(axis=-1)
        mean = lambda values: float(values.mean()) if len(values) else None
        row = {"coverage": coverage, "covered": mean(held), "pictures": len(held)}
        rows.append({**row, "size": mean(sizes)})
    return rows
