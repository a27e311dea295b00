"""What is promised of exported files: how far their answers may be from Keras' answers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from vit_keras import runtimes
from vit_keras.tasks import VOID

LARGEST_DIFFERENCE = {"fp32": 1e-4, "fp16": 1e-2}  # of a logit
LEAST_AGREEMENT = 0.99  # share of images with the same first class, for fewer bits
SAME_PIXELS = 0.999  # share of the pixels of a mask with the same class, for fp32 and fp16
LARGEST_DROP = 0.005  # of the accuracy, for fewer bits
OUTPUT_SHOWN = 3000  # characters of a failed process


def as_logits(outputs: np.ndarray, output: str) -> np.ndarray:
    """The logits of an `output` of a graph.

    The logarithms of a softmax are logits up to a constant for each image. Probabilities below
    1e-6 count as 1e-6.
    """
    if output == "softmax":
        return np.log(np.maximum(outputs, 1e-6))
    if output == "sigmoid":
        certain = np.clip(outputs, 1e-6, 1 - 1e-6)
        return np.log(certain) - np.log1p(-certain)
    return outputs


def _classes(outputs, output):
    """The most likely class of each image or pixel."""
    return outputs if output == "mask" else outputs.argmax(axis=-1)


def agreement(outputs: np.ndarray, expected: np.ndarray, output: str, kind: str) -> float:
    """How far a file answers as Keras does; 1 is always.

    It is the share of images with the same first class, or of labels with the same answer at a
    probability of 0.5; the mean coefficient of determination of numbers; and for features, the
    mean cosine.
    """
    if output == "features":
        norms = np.linalg.norm(outputs, axis=-1) * np.linalg.norm(expected, axis=-1)
        return float(((outputs * expected).sum(axis=-1) / norms).mean())
    if kind == "labels":
        return float(((outputs >= _even(output)) == (expected >= _even(output))).mean())
    if kind == "numbers":
        errors = ((outputs - expected) ** 2).sum(axis=0)
        spread = ((expected - expected.mean(axis=0)) ** 2).sum(axis=0)
        return float((1 - errors / np.maximum(spread, 1e-12)).mean())
    return float((_classes(outputs, output) == _classes(expected, output)).mean())


def _even(output):
    """The output that stands for a probability of 0.5."""
    return 0.5 if output == "sigmoid" else 0.0


def _accuracy(outputs, output, labels, kind):
    """The share of images whose class is right, of pixels, or of known labels."""
    if kind == "masks":
        true, predicted = labels.reshape(outputs.shape[:3]), _classes(outputs, output)
        return float((predicted == true)[true != VOID].mean())
    if kind == "labels":
        known = ~np.isnan(labels)
        return float(((outputs >= _even(output)) == labels)[known].mean())
    return float((outputs.argmax(axis=-1) == labels).mean())


def compare(outputs, expected, output: str, labels=None, kind: str = "classes") -> dict:
    """Compares a file's outputs with Keras'.

    Args:
        outputs: The file's outputs, `(N, K)`; of masks, `(N, H, W, K)` or `(N, H, W)`.
        expected: Keras' outputs, of the same shape.
        output: A name in `serving.OUTPUTS`.
        labels: The classes of the images, `(N,)`, or their labels, `(N, K)`.
        kind: What the outputs are: a name in `vit_keras.tasks.KINDS`.

    Returns:
        `images` (their number), `largest_difference` (of a logit, or of a number in standard
        deviations; not for the output "mask"), `agreement` and, with labels but for numbers,
        `accuracy`.
    """
    if output == "mask":
        row = {"images": len(outputs), "agreement": agreement(outputs, expected, output, kind)}
        return row | (
            {} if labels is None else {"accuracy": _accuracy(outputs, output, labels, kind)}
        )
    difference = np.abs(as_logits(outputs, output) - as_logits(expected, output))
    if output == "values":
        size = np.sqrt((expected**2).mean(axis=0))
        spread = np.maximum(expected.std(axis=0), size / 10)  # float32 errs with the size
        difference = difference / np.where(spread > 0, spread, 1.0)
    row = {"images": len(outputs), "largest_difference": float(difference.max())}
    row["agreement"] = agreement(outputs, expected, output, kind)
    if labels is not None and output != "features" and kind != "numbers":
        row["accuracy"] = _accuracy(outputs, output, labels, kind)
    return row


def loses(row: dict, accuracy: float | None) -> bool:
    """Whether a file of fewer bits loses more than is promised; `accuracy` is Keras' own."""
    if row["agreement"] < LEAST_AGREEMENT:
        return True
    if accuracy is None or "accuracy" not in row:
        return False
    return row["accuracy"] < accuracy - LARGEST_DROP


def broken_promise(precision: str, row: dict, accuracy: float | None) -> str | None:
    """What a file misses, in numbers, or None.

    Args:
        precision: The file's precision.
        row: The result of `compare`.
        accuracy: Keras' accuracy, or None without labels.
    """
    if precision in LARGEST_DIFFERENCE and "largest_difference" not in row:
        if row["agreement"] >= SAME_PIXELS:
            return None
        return f"agrees on {row['agreement']:.3%} of the pixels. The bound is {SAME_PIXELS:.1%}"
    if not np.isfinite(row.get("largest_difference", 0.0)):
        return f"answers {row['largest_difference']}"
    if precision in LARGEST_DIFFERENCE:
        bound = LARGEST_DIFFERENCE[precision]
        if row["largest_difference"] <= bound:
            return None
        return (
            f"differs from Keras by {row['largest_difference']:.2e}. The bound for {precision} is "
            f"{bound:.0e}"
        )
    if not loses(row, accuracy):
        return None
    message = (
        f"agrees with Keras on {row['agreement']:.2%} of {row['images']} images. "
        f"The bound is {LEAST_AGREEMENT:.0%}"
    )
    if "accuracy" in row:
        message += (
            f". Its accuracy is {row['accuracy']:.2%}, and Keras' is {accuracy:.2%}. "
            f"The bound is {100 * LARGEST_DROP:.1f} points less"
        )
    return message


def latencies(paths: list[str], images: np.ndarray, threads: int) -> dict[str, float]:
    """Milliseconds that each file takes for one call, in a process with so many threads.

    Raises:
        RuntimeError: If a file does not run.
    """
    count = str(threads)
    limits = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(limits, count), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as scratch:
        np.save(f"{scratch}/images.npy", images)
        program = [sys.executable, "-P", str(pathlib.Path(runtimes.__file__)), count]
        command = [*program, f"{scratch}/images.npy", *paths]
        process = subprocess.run(command, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise RuntimeError(f"An exported file does not run:\n{process.stderr[-OUTPUT_SHOWN:]}")
    return json.loads(process.stdout.splitlines()[-1])
