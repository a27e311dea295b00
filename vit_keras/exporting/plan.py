"""The plan of an export: which files it writes, and the graph that they contain."""

import dataclasses
from collections.abc import Sequence

import keras

from vit_keras.exporting.serving import ACTIVATIONS, check_attention
from vit_keras.exporting.targets import OPSETS, TARGETS, TRANSFORMERS
from vit_keras.models import task_of
from vit_keras.models.resized import check_any_size
from vit_keras.support import extras
from vit_keras.support.checks import ONE_OF_TWO, Rule, check_choice, check_rules, is_int

# What files may return beside their default, by the kind of label.
OTHER_OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("classes", "labels"), ("logits", "features")),
    "numbers": ("features",),
    "masks": ("mask", "logits", "features"),
    "boxes": (),
}
# The options that a kind of label excludes: masks and boxes need the tokens of all patches.
IMPOSSIBLE = {"masks": ("token_merging",), "boxes": ("token_merging", "attention")}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The files that `export` writes, and the graph that they contain.

    Attributes:
        formats: Names of rows of `TARGETS`.
        precisions: The precisions of each format; None for each format's default.
        output: "softmax" for classes and masks, "sigmoid" for labels, "values" for numbers, "mask"
            for the most likely class of each pixel, "boxes" with their scores, "logits", or
            "features", the input of the head.
        raw: Whether the graph takes preprocessed float32 images and returns logits.
        batch: Images per call; None for each format's default, which is usually any number.
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
        check_rules(self, None, RULES)
        for format in self.formats:
            check_choice(format, TARGETS, "format")
            target = TARGETS[format]
            for precision in self.precisions or ():
                check_choice(precision, target.precisions, f"precision of {format}")
            for option in ("attention", "dynamic_size", "dynamic_batch"):
                if getattr(self, option) and not getattr(target, option):
                    able = [name for name, row in TARGETS.items() if getattr(row, option)]
                    raise ValueError(
                        f"`{option}` needs one of the formats {', '.join(able)}. Received: "
                        f"{format!r}"
                    )
            extras.check(*target.packages, extra=target.extra, purpose=f"Exporting to {format}")

    @property
    def graph_output(self) -> str:
        """The output of the graph: `raw` turns probabilities into "logits"."""
        return "logits" if self.raw and self.output in ACTIVATIONS else self.output


RULES: list[Rule] = [
    (
        ("formats", "output"),
        lambda names, output: (
            TRANSFORMERS not in names or (len({*names}) == 1 and output != "mask")
        ),
        f"{TRANSFORMERS} must be the only format, and `output` logits, boxes or features",
    ),
    ("batch", lambda images: is_int(images) and images > 0, "a positive int"),
    (("batch", "dynamic_batch"), *ONE_OF_TWO),
    (("dynamic_size", "attention"), *ONE_OF_TWO),
    (("dynamic_size", "token_merging"), *ONE_OF_TWO),
    (
        ("opset", "formats"),
        lambda opset, formats: opset is None or ("onnx" in formats and opset in OPSETS),
        f"an opset must be from {OPSETS[0]} to {OPSETS[-1]} and needs the format onnx",
    ),
]


def plan_for(
    model: keras.Model, *, output: str | None = None, raw: bool = False, **options
) -> Plan:
    """Makes the `Plan` of an export of `model`, whose task decides which options are allowed.

    Args:
        model: The model.
        output: As in `Plan`; None for the output of the model's task.
        raw: As in `Plan`; formats that take prepared images set it.
        **options: The other fields of `Plan`.

    Raises:
        ValueError, ImportError: As in `Plan`; and ValueError if the model does not suit an
            option.
    """
    task = task_of(model)
    output, allowed = output or task.row.output, (task.row.output, *OTHER_OUTPUTS[task.kind])
    check_choice(output, allowed, f"output of a model of {task.kind}")
    raw = raw or TRANSFORMERS in options.get("formats", ())
    plan = Plan(output=output, raw=raw, **options)
    for option in IMPOSSIBLE.get(task.kind, ()):
        if value := getattr(plan, option):
            raise ValueError(
                f"Models of {task.kind} cannot be exported with `{option}`. Received: "
                f"{option}={value!r}"
            )
    if plan.attention:
        check_attention(model, plan.token_merging)
    if plan.dynamic_size:
        check_any_size(model)
    return plan
