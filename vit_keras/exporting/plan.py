"""What is to be exported, checked before any work."""

import dataclasses
import importlib.util
from collections.abc import Sequence

from vit_keras.exporting.serving import OUTPUTS
from vit_keras.exporting.targets import TARGETS
from vit_keras.layers.base import check_choice, check_positive


@dataclasses.dataclass(frozen=True)
class Plan:
    """The arguments of `export` that say which files and what graph.

    Attributes:
        formats: of `TARGETS`.
        precisions: of each format; None for each format's own choice.
        output: "softmax", "logits" or "features", what the head reads.
        raw: float images that are prepared already in, logits out.
        batch: images a call, None for each format's own choice, mostly any number.
        dynamic_batch: any number of images for every format.
        token_merging: pairs of tokens that each block merges.
        merging_schedule: "constant" or "decreasing".
        attention: a second output, the attention rollout `(B, h, w)` over the patches.
    """

    formats: Sequence[str] = ("savedmodel", "litert")
    precisions: Sequence[str] | None = None
    output: str = "softmax"
    raw: bool = False
    batch: int | None = None
    dynamic_batch: bool = False
    token_merging: int = 0
    merging_schedule: str = "constant"
    attention: bool = False

    def __post_init__(self):
        check_choice(self.output, OUTPUTS, "output")
        if self.batch is not None:
            check_positive(batch=self.batch)
        if self.batch is not None and self.dynamic_batch:
            raise ValueError("An export has a fixed `batch` or a `dynamic_batch`, not both")
        for format in self.formats:
            check_choice(format, TARGETS, "format")
            self._check_format(format, TARGETS[format])

    def _check_format(self, format, target):
        for precision in self.precisions or ():
            if precision not in target.precisions:
                others = [name for name in TARGETS if precision in TARGETS[name].precisions]
                instead = f" For {precision} use {' or '.join(others)}." if others else ""
                raise ValueError(
                    f"{format} is not made in {precision}, but in "
                    f"{', '.join(target.precisions)}.{instead}"
                )
        if self.attention and not target.attention:
            others = [name for name in TARGETS if TARGETS[name].attention]
            raise ValueError(f"{format} is made without attention; {', '.join(others)} have it")
        if self.dynamic_batch and not target.dynamic:
            raise ValueError(f"{format} has no dynamic batch. Give a `batch`, by default 1")
        missing = [
            package
            for module, package in target.packages.items()
            if importlib.util.find_spec(module) is None
        ]
        if missing:
            raise ValueError(
                f"{format} needs packages that are not installed: pip install {' '.join(missing)}"
            )

    @property
    def graph_output(self) -> str:
        return "logits" if self.raw and self.output == "softmax" else self.output

    def files(self) -> list[tuple[str, str]]:
        """(format, precision) of each file that is asked for."""
        return [
            (format, precision)
            for format in dict.fromkeys(self.formats)
            for precision in dict.fromkeys(self.precisions or TARGETS[format].default)
        ]

    def batch_of(self, format: str) -> int | None:
        """Images a call, None for any number."""
        return None if self.dynamic_batch else self.batch or TARGETS[format].batch
