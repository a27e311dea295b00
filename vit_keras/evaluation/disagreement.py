"""Whether the answers for views of pictures contradict those for the pictures as they are."""

import collections
import sys

import numpy as np

from vit_keras.tasks import CLASSES, Task
from vit_keras.visible import visible

FEW = 10  # fewer pictures prove nothing
NAMED = 4  # outputs in a message
VIEWS = {  # the message, and the share of the view in the average with the picture itself
    "flip": ("in mirror images, {}. {} that turn with a picture", 1 / 2),
    "crops": ("in crops, {}. {} that depend on the part of a picture", 5 / 6),
}


class Disagreement:
    """Collects the answers for pictures and for their views, and says where they contradict.

    An average over views helps only if the true answer is the same for all of them. It is not if a
    class or a label loses most of its probability in a view, or if a number changes by as much in
    a view as it does from picture to picture. Smaller sets need clearer evidence.

    Args:
        task: What the answers are.
        names: The K names of the answers.
    """

    def __init__(self, task: Task = CLASSES, names: tuple[str, ...] = ()):
        self.task, self.names = task, names
        self._last: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._kept: dict[str, list[np.ndarray]] = collections.defaultdict(list)

    def note(self, view: str, plain: np.ndarray, other: np.ndarray) -> None:
        """Notes the answers of the last call, `(B, K)` or `(B, H, W, K)`, and those for a view."""
        self._last[view] = plain, other

    def keep(self, count: int) -> None:
        """Keeps the first answers of the last call; what fills up a batch is left out."""
        for view, answers in self._last.items():
            plain, other = (x[:count] for x in answers)
            if self.task.kind != "numbers":  # sums over pictures of the means of their pixels
                sides = [plain, np.minimum(plain, other)]
                sides = [x.reshape(count, -1, x.shape[-1]).mean(axis=1) for x in sides]
                plain, other = (x.sum(axis=0, keepdims=True) for x in sides)
            self._kept[view].append(np.stack([plain, other]).astype("float64"))

    def report(self) -> None:
        """Prints on standard error where a view contradicts, and forgets what was kept."""
        row, is_number = self.task.row, self.task.kind == "numbers"
        unit = "changes by {:.0%} of the spread" if is_number else "loses {:.0%} of its probability"
        names = self.names if is_number else (f"any {row.one}", *self.names)
        for view, kept in self._kept.items():
            message, share = VIEWS[view]
            counts, changed = (_numbers if is_number else _classes)(*np.concatenate(kept, axis=1))
            limit = 0.5 + (counts[0] >= FEW) / np.sqrt(np.maximum(counts, 1))
            clear = (share * changed if is_number else changed) > limit
            clear &= counts >= min(FEW, counts[0])
            worst = [k for k in np.argsort(-changed, kind="stable") if clear[k]][:NAMED]
            if worst:
                count = [f"in {n:.0f} pictures" for n in counts]
                shown = [f"{names[k]} {unit.format(changed[k])} {count[k]}" for k in worst]
                text = message.format(", ".join(shown), row.several.capitalize())
                head = "Note (few pictures)" if counts[0] < FEW else "Warning"
                text = f"{head}: {text} are averaged wrongly: leave {view} out of --tta"
                print(visible(text), file=sys.stderr)
                break  # what was averaged over this view is no measure for the next one
        self._kept.clear()


def _numbers(plain, other):
    """The pictures, and the change of each number by its deviation between pictures."""
    floor = (plain**2).mean(axis=0) * (1 if len(plain) < FEW else 0.001)
    square = ((other - plain) ** 2).mean(axis=0) / np.maximum(plain.var(axis=0) + floor, 1e-30)
    return np.full(len(square), len(plain)), np.sqrt(square)


def _classes(plain, other):
    """The pictures, and the share of probability that is lost: of all classes, and of each."""
    counts, kept = (np.append(x.sum(), x.sum(axis=0)).round(3) for x in (plain, other))
    return counts, (counts - kept) / np.maximum(counts, 1e-30)
