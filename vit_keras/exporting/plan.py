"""`Plan` defines what to export, and is checked before any work."""

import dataclasses
from collections.abc import Sequence

from vit_keras.exporting.serving import ACTIVATIONS, OUTPUTS
from vit_keras.exporting.targets import OPSETS, TARGETS
from vit_keras.layers.base import check_choice, check_positive
from vit_keras.support import extras


@dataclasses.dataclass(frozen=True)
class Plan:
    """The files that `export` writes, and the graph that they hold.

    Attributes:
        formats: Names of rows of `TARGETS`.
        precisions: The precisions of each format; None for each format's default.
        output: "softmax" for classes and masks, "sigmoid" for labels, "values" for numbers, "mask"
            for the most likely class of each pixel, "boxes" with their scores, "logits", or
            "features", the input of the head.
        raw: Whether the graph takes preprocessed float32 images and returns logits.
        batch: Images per call; None for each format's default, which is mostly any number.
        dynamic_batch: Whether every format takes any number of images.
        dynamic_size: Whether the files take images of any size, and interpolate their positions.
        token_merging: Pairs of tokens that each block merges.
        merging_schedule: "constant" or "decreasing".
        opset: The opset of ONNX files, and of the files made from them; None for 20.
        attention: Whether the attention rollout `(B, h, w)` over the patches is a second output.

    Raises:
        ValueError: If a field has an invalid value, or a format does not support the plan.
        ImportError: If a format or precision needs a package that is not installed.
    """

    formats: Sequence[str] = ("savedmodel", "litert")
    precisions: Sequence[str] | None = None
    output: str = "softmax"
    raw: bool = False
    batch: int | None = None
    dynamic_batch: bool = False
    dynamic_size: bool = False
    token_merging: int = 0
    merging_schedule: str = "constant"
    opset: int | None = None
    attention: bool = False

    def __post_init__(self):
        check_choice(self.output, OUTPUTS, "output")
        if self.batch is not None:
            check_positive(batch=self.batch)
        if self.batch is not None and self.dynamic_batch:
            raise ValueError(
                "An export has either a fixed `batch` or a `dynamic_batch`. "
                f"Received: batch={self.batch}, dynamic_batch=True"
            )
        if self.dynamic_size and (self.attention or self.token_merging):
            raise ValueError(
                "Files for images of any size have no attention and merge no tokens. Received: "
                f"dynamic_size=True, attention={self.attention}, token_merging={self.token_merging}"
            )
        if self.opset is not None:
            self._check_opset(self.opset)
        for format in self.formats:
            check_choice(format, TARGETS, "format")
            self._check_format(format, TARGETS[format])
        for format, precision in self.files():
            target = TARGETS[format]
            packages = (*target.packages, *target.precisions[precision].packages)
            purpose = f"Exporting to {format} in {precision}"
            extras.check(*packages, extra=target.extra, purpose=purpose)

    def _check_opset(self, opset):
        if "onnx" not in self.formats or opset not in OPSETS:
            raise ValueError(
                f"`opset` must be one that torch writes and ONNX Runtime runs, {OPSETS[0]} to "
                f"{OPSETS[-1]}, for the format onnx. Received: opset={opset}, "
                f"formats={list(self.formats)}"
            )

    def _check_format(self, format, target):
        for precision in self.precisions or ():
            if precision not in target.precisions:
                others = [name for name in TARGETS if precision in TARGETS[name].precisions]
                remedy = f". For {precision} use {' or '.join(others)}" if others else ""
                raise ValueError(
                    f"The precisions of {format} are {', '.join(target.precisions)}. "
                    f"Received: {precision!r}{remedy}"
                )
        if self.attention and not target.attention:
            others = [name for name in TARGETS if TARGETS[name].attention]
            raise ValueError(
                f"Attention can be an output of {', '.join(others)}. Received: format={format!r}"
            )
        if self.dynamic_size and not target.sizes:
            others = [name for name in TARGETS if TARGETS[name].sizes]
            raise ValueError(
                f"Files of {', '.join(others)} can take images of any size. Received: "
                f"dynamic_size=True, format={format!r}"
            )
        refused = not self.raw or len(set(self.formats)) > 1 or self.output == "mask"
        if target.prepared and refused:
            raise ValueError(
                f"The format {format} needs raw=True, no other format, and an `output` of logits, "
                f"boxes or features. Received: raw={self.raw}, formats={[*self.formats]}, "
                f"output={self.output!r}"
            )
        if self.dynamic_batch and not target.dynamic:
            raise ValueError(
                f"The format {format} needs a fixed `batch`, 1 by default. "
                "Received: dynamic_batch=True"
            )

    @property
    def graph_output(self) -> str:
        """The output of the graph: `raw` turns probabilities into "logits"."""
        return "logits" if self.raw and self.output in ACTIVATIONS else self.output

    def files(self) -> list[tuple[str, str]]:
        """The (format, precision) of each file to write."""
        return [
            (format, precision)
            for format in dict.fromkeys(self.formats)
            for precision in dict.fromkeys(self.precisions or TARGETS[format].default)
        ]

    def batch_of(self, format: str) -> int | None:
        """Returns the images per call of a format's files; None for any number."""
        return None if self.dynamic_batch else self.batch or TARGETS[format].batch
