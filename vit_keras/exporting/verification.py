"""The promises of exported files: on real images, how far their outputs may differ from Keras'."""

import math
import sys
from typing import Any

import numpy as np

from vit_keras.data.depth import as_array, at_levels, to_levels
from vit_keras.models import preprocessing_of, task_of
from vit_keras.support import extras
from vit_keras.support.box_metrics import box_precision, overlaps
from vit_keras.support.tasks import CLASSES, VOID, Task


def as_logits(outputs: np.ndarray, output: str) -> np.ndarray:
    """Returns the logits of an `output` of a graph.

    The logarithms of a softmax equal the logits up to a constant per image. Probabilities below
    1e-6 count as 1e-6.
    """
    if output == "softmax":
        return np.log(np.maximum(outputs, 1e-6))
    if output == "sigmoid":
        certain = np.clip(outputs, 1e-6, 1 - 1e-6)
        return np.log(certain) - np.log1p(-certain)
    return outputs


def _answers(outputs, output, task):
    """The most likely class of each image or pixel, or whether each label counts as present."""
    if task.kind != "labels":
        return outputs if output == "mask" else outputs.argmax(axis=-1)
    with np.errstate(over="ignore"):
        return task.present(outputs if output == "sigmoid" else 1 / (1 + np.exp(-outputs)))


def agreement(outputs: np.ndarray, expected: np.ndarray, output: str, task: Task) -> float:
    """Measures how well a file's outputs agree with those of Keras; 1 is perfect.

    It is the fraction of images with the same most likely class, or of labels on the same side of
    their thresholds; for numbers, the mean coefficient of determination; for features, the mean
    cosine.
    """
    if output == "features":
        norms = np.linalg.norm(outputs, axis=-1) * np.linalg.norm(expected, axis=-1)
        return float(((outputs * expected).sum(axis=-1) / norms).mean())
    if task.kind == "numbers":
        errors = ((outputs - expected) ** 2).sum(axis=0)
        spread = ((expected - expected.mean(axis=0)) ** 2).sum(axis=0)
        return float((1 - errors / np.maximum(spread, 1e-12)).mean())
    return float((_answers(outputs, output, task) == _answers(expected, output, task)).mean())


def compare(outputs, expected, output: str, labels=None, task: Task = CLASSES) -> dict:
    """Compares a file's outputs with those of Keras.

    Args:
        outputs: The file's outputs, `(N, K)`; for masks, `(N, H, W, K)` or `(N, H, W)`.
        expected: Keras' outputs, of the same shape.
        output: As in `targets.Plan`. "boxes" are scores and corners, `(N, T, K + 4)`.
        labels: The classes of the images, `(N,)`, their labels, `(N, K)`, or boxes, `(N, M, 5)`.
        task: What the outputs are. Its thresholds decide which labels count as present.

    Returns:
        `images` (their number), `largest_difference` (of a logit, or of a number in standard
        deviations; not for the output "mask"), `agreement`, `agreement_is` (what it measures) and,
        for features of tokens, `first_token` (its mean cosine); given labels, except for numbers,
        `accuracy`, which is COCO's AP for boxes. For boxes, also `least_iou` and `mean_iou`, the
        overlaps with the boxes of Keras that count as present.
    """
    row: dict[str, Any] = {"images": len(outputs)}
    if output == "boxes":
        return row | _compare_boxes(outputs, expected, labels, task)
    if output != "mask":
        difference = np.abs(as_logits(outputs, output) - as_logits(expected, output))
        if output == "values":
            size = np.sqrt((expected**2).mean(axis=0))
            spread = np.maximum(expected.std(axis=0), size / 10)  # errors grow with the size
            difference = difference / np.where(spread > 0, spread, 1.0)
        row["largest_difference"] = float(difference.max())
    row["agreement"] = agreement(outputs, expected, output, task)
    row["agreement_is"] = MEASURES["features" if output == "features" else task.kind][0]
    if output == "features" and outputs.ndim == 3:
        row["first_token"] = agreement(outputs[:, 0], expected[:, 0], output, task)
    if labels is not None and output != "features" and task.kind != "numbers":
        answers = _answers(outputs, output, task)
        true = np.reshape(labels, answers.shape)
        known = true != VOID if task.kind == "masks" else ~np.isnan(true)
        row["accuracy"] = float((answers == true)[known].mean())
    return row


def _compare_boxes(outputs, expected, labels, task):
    """Compares, one by one, the boxes that Keras finds, or all boxes if it finds none."""
    scores, corners = expected[..., :-4], expected[..., -4:]
    best = scores.argmax(axis=-1)
    least = [task.threshold(k) for k in range(scores.shape[-1])]
    present = scores.max(axis=-1) >= np.take(least, best)
    present |= not present.any()
    shared = overlaps(outputs[..., -4:], corners)[present]
    row = {
        "largest_difference": float(np.abs(outputs - expected).max()),
        "agreement": float((outputs[..., :-4].argmax(axis=-1) == best)[present].mean()),
        "agreement_is": MEASURES["boxes"][0],
        "least_iou": float(shared.min()),
        "mean_iou": float(shared.mean()),
    }
    return row if labels is None else row | {"accuracy": box_precision(labels, outputs)}


# What `agreement` and `largest_difference` measure, by the output or the kind of label.
MEASURES = {
    "classes": ("same class", "of a logit"),
    "labels": ("same labels", "of a logit"),
    "masks": ("same class of a pixel", "of a logit"),
    "numbers": ("R²", "of a number, in standard deviations"),
    "boxes": ("same class of a box", "of a score or of a side"),
    "features": ("mean cosine", "of a feature"),
}


def agreement_text(row: dict) -> str:
    """Formats the agreement of a result of `compare`, as a percentage if it is a fraction.

    Example:
        >>> agreement_text({"agreement": 0.9975, "agreement_is": "same class"})
        '99.75%'
    """
    is_fraction = row["agreement_is"].startswith("same")
    return f"{row['agreement']:.2%}" if is_fraction else f"{row['agreement']:.4f}"


def accuracy_name(row: dict) -> str:
    """Returns the name of `accuracy` in a result of `compare`: AP for boxes."""
    return "AP" if "mean_iou" in row else "accuracy"


def broken_promise(precision: str, row: dict, accuracy: float | None) -> str | None:
    """Returns in numbers how a file falls short; None if it does not.

    Args:
        precision: The file's precision.
        row: The result of `compare`.
        accuracy: Keras' accuracy, or None without labels.
    """
    has_labels = accuracy is not None and "accuracy" in row
    loss = accuracy - row["accuracy"] if has_labels else 0.0
    agreement, of_boxes, inf = row["agreement_is"], "mean_iou" in row, math.inf
    largest = {"fp32": 1e-4, "fp16": 1e-2, "fp16-compute": 1e-2}.get(precision)
    difference = f"largest difference {dict(MEASURES.values())[agreement]}"
    most = sys.float_info.max if largest is None else largest  # finite
    bounds = [(difference, -inf, row.get("largest_difference", 0.0), most)]
    if largest is not None:
        least = 0.999 if "largest_difference" not in row else 1 if of_boxes else -inf
        bounds.append(("least IoU with Keras' boxes", 0.999, row.get("least_iou", 1.0), inf))
        bounds.append((agreement, least, row["agreement"], inf))
    elif of_boxes and has_labels:
        bounds.append(("loss of AP", -inf, loss, 0.01))
    else:
        bounds += [
            (agreement, 0.99, row["agreement"], inf),
            ("agreement of the first token", 0.99, row.get("first_token", 1.0), inf),
            ("mean IoU with Keras' boxes", 0.9, row.get("mean_iou", 1.0), inf),
            ("loss of accuracy", -inf, loss, 0.005),
        ]
    for name, least, value, most in bounds:
        if not least <= value <= most:  # or NaN
            bound = f"at least {least:g}" if value < least else f"at most {most:g}"
            return f"{name} {value:.5g} on {row['images']} images; it must be {bound}"
    return None


def photographs(shape: tuple[int, int, int], count: int = 128) -> np.ndarray:
    """Returns fixed crops of scikit-learn's two photographs, `(count, H, W, C)` uint8.

    Args:
        shape: (H, W, C) of the crops.
        count: The number of crops.

    Raises:
        ImportError: If scikit-learn or Pillow is not installed.
    """
    datasets = extras.require("sklearn.datasets")
    Image = extras.require("PIL.Image")

    rng = np.random.default_rng(0)
    height, width, channels = shape
    pictures = [Image.fromarray(picture) for picture in datasets.load_sample_images().images]
    crops = []
    for i in range(count):
        picture = pictures[i % len(pictures)].convert("L" if channels == 1 else "RGB")
        side = rng.integers(64, min(picture.size) + 1)
        left, top = (rng.integers(0, length - side + 1) for length in picture.size)
        box = (left, top, left + side, top + side)
        crops.append(np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR, box)))
    return np.stack(crops).reshape(count, height, width, -1)[..., np.arange(channels) % 3]


def photographs_for(model) -> np.ndarray:
    """Returns the crops of `photographs` with a model's size, channels, and levels."""
    return as_array(at_levels(photographs(model.input_shape[1:]), preprocessing_of(model).levels))


def from_dataset(name: str, model, count: int, config, train: bool = False):
    """Returns images of a data set, `(count, H, W, C)` in the model's depth, and their labels.

    Args:
        name: The data set's name.
        model: The model, whose size and preprocessing the images get.
        count: The number of images for `spread` to draw.
        config: A `DataConfig` that defines the splits.
        train: Whether to draw from the training split instead of the test split.
    """
    from vit_keras import data

    *size, channels = model.input_shape[1:]
    preprocessing = preprocessing_of(model)
    dataset = data.load(name, channels, config, task_of(model).kind)
    split = dataset.split(config.train_split if train else config.test_split)
    options: dict[str, Any] = {"image_size": tuple(size), "batch": 64}
    options |= {"preprocessing": preprocessing.unscaled()}
    batches = data.eval_batches(split.part(spread(split, count)), **options)
    images, labels = map(np.concatenate, zip(*batches))
    return to_levels(images, preprocessing.levels), labels


def spread(split, count: int) -> np.ndarray:
    """Returns sorted indices of `count` images, drawn from the whole split.

    The first images would not be representative, because files are mostly sorted by class.
    """
    return np.sort(np.random.default_rng(0).permutation(len(split))[:count])
