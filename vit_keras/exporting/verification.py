"""What an exported file answers in its own runtime, beside what Keras answers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from vit_keras import runtimes

DIFFERENCE = {"fp32": 1e-4, "fp16": 1e-2}  # of a logit, at most
AGREEMENT = 0.99  # of the first class, for fewer bits
DROP = 0.005  # of the accuracy, for fewer bits


def as_logits(outputs: np.ndarray, output: str) -> np.ndarray:
    """Logits up to a constant an image, from probabilities, where these are not negligible."""
    return np.log(np.maximum(outputs, 1e-6)) if output == "softmax" else outputs


def agreement(outputs: np.ndarray, expected: np.ndarray, output: str) -> float:
    """The share of images of the same first class; of features, the mean cosine."""
    if output != "features":
        return float((outputs.argmax(axis=-1) == expected.argmax(axis=-1)).mean())
    norms = np.linalg.norm(outputs, axis=-1) * np.linalg.norm(expected, axis=-1)
    return float(((outputs * expected).sum(axis=-1) / norms).mean())


def compare(outputs, expected, output: str, labels=None) -> dict:
    """`largest_difference` of logits, `agreement`, and with `labels` `(N,)` the `accuracy`."""
    difference = np.abs(as_logits(outputs, output) - as_logits(expected, output)).max()
    row = {"images": len(outputs), "largest_difference": float(difference)}
    row["agreement"] = agreement(outputs, expected, output)
    if labels is not None and output != "features":
        row["accuracy"] = float((outputs.argmax(axis=-1) == labels).mean())
    return row


def loses(row: dict, accuracy: float | None) -> bool:
    """Whether a file of fewer bits answers worse than it may: half a point of the accuracy.

    `accuracy` is that of Keras; without labels, agreement with Keras takes its place.
    """
    if row["agreement"] < AGREEMENT:
        return True
    return "accuracy" in row and row["accuracy"] < accuracy - DROP


def broken_promise(precision: str, row: dict, accuracy: float | None) -> str | None:
    """What a file's `compare` row misses, in numbers, or None."""
    if not np.isfinite(row["largest_difference"]):
        return f"answers {row['largest_difference']}"
    if precision in DIFFERENCE:
        if row["largest_difference"] <= DIFFERENCE[precision]:
            return None
        return (
            f"differs from Keras by {row['largest_difference']:.2e}, more than the "
            f"{DIFFERENCE[precision]:.0e} of {precision}"
        )
    if not loses(row, accuracy):
        return None
    measured = f"agrees with Keras on {100 * row['agreement']:.2f}% of {row['images']} images"
    if "accuracy" in row:
        measured += f" and has {100 * row['accuracy']:.2f}% of Keras' {100 * accuracy:.2f}%"
    return f"{measured}; it must be {100 * AGREEMENT:.0f}% and at most {100 * DROP:.1f} points less"


def latencies(paths: list[str], images: np.ndarray, threads: int) -> dict[str, float]:
    """Milliseconds that each file takes for `images`, in a process of its own with `threads`."""
    count = str(threads)
    limits = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(limits, count), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as scratch:
        np.save(f"{scratch}/images.npy", images)
        program = [sys.executable, "-P", str(pathlib.Path(runtimes.__file__)), count]
        command = [*program, f"{scratch}/images.npy", *paths]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"An exported file does not run:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
