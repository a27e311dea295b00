"""What a model learns from another model, its teacher (arXiv 1503.02531, 2012.12877)."""

import dataclasses
from typing import Any, Literal

from vit_keras.config.rules import Rule, check_rules

# The fields that each kind uses; the others stay at their defaults.
USED: dict[str, tuple[str, ...]] = {
    "soft": ("weight", "temperature"),
    "hard": ("weight",),
    "features": ("distance", "patches"),
}
# Fields of classifiers and labels, which stay at their defaults without labels.
LABELS_ALONE = (
    *("loss", "balance", "calibrate", "label_smoothing", "sweep", "folds", "patience"),
    "model.head_bias",
)


@dataclasses.dataclass(frozen=True)
class DistillConfig:
    """What the run learns from another model, on the same augmented images.

    Attributes:
        teacher: model to learn from: a run, a file or folder of any format, or a published name;
            null for none
        teacher_variant: variant whose published weights `teacher` names; null for B/16
        kind: soft, the teacher's probabilities; hard, the teacher's best class, by a head of its
            own if `model.classifier` is distilled, as in DeiT; or features, the input of the
            teacher's head, which needs no labels and leaves a model without a head
        weight: share of the teacher in the loss of soft and hard; the labels have the rest
        temperature: what both models' logits are divided by with soft
        distance: of features: cosine, which is 1 less the cosine of the angle, or mse, the squared
            distance to the teacher's features less their mean over their deviation
        patches: match the features of each patch as well
    """

    teacher: str | None = None
    teacher_variant: str | None = None
    kind: Literal["soft", "hard", "features"] = "soft"
    weight: float = 0.5
    temperature: float = 2.0
    distance: Literal["cosine", "mse"] = "cosine"
    patches: bool = False

    def __post_init__(self):
        check_rules(self, "distill", RULES)

    @property
    def is_active(self) -> bool:
        return self.teacher is not None

    @property
    def needs_labels(self) -> bool:
        return self.kind != "features"

    def check(self, run: Any) -> None:
        """Raises ValueError if the section does not fit the rest of a run's `Config`."""
        default = DistillConfig()
        if not self.is_active:
            if self != default:
                raise ValueError(
                    "The fields of `distill` need `distill.teacher`, the model to learn from. "
                    f"Received: teacher=null with {_changes(self, default)}"
                )
            return
        if run.pretext.is_active:
            raise ValueError(
                "A run learns by a pretext or from a teacher. Received: pretext.objective="
                f"{run.pretext.objective}, distill.teacher={self.teacher}"
            )
        if run.lora.is_active:
            raise ValueError(
                "A student trains all of its weights, so `lora.rank` must be null with "
                f"`distill.teacher`. Received: lora.rank={run.lora.rank}"
            )
        used = {"teacher", "teacher_variant", "kind", *USED[self.kind]}
        if unused := _changes(self, dataclasses.replace(self, **_values(default, used))):
            raise ValueError(
                f"`distill.kind` {self.kind} uses {' and '.join(USED[self.kind])} alone. "
                f"Received: {unused}"
            )
        self._check_task(run)

    def _check_task(self, run):
        if self.needs_labels and (run.task not in ("auto", "classes") or run.loss == "sigmoid"):
            raise ValueError(
                f"`distill.kind` {self.kind} compares probabilities of classes, so `task` must be "
                f"classes and `loss` softmax. Received: task={run.task}, loss={run.loss}. Use "
                "distill.kind=features, and train the head in a second run"
            )
        for name in () if self.needs_labels else LABELS_ALONE:
            value, default = _get(run, name), _get(type(run)(), name)
            if value != default:
                raise ValueError(
                    f"`{name}` must be {default} with `distill.kind` features, which learns from "
                    f"no labels. Received: {value}"
                )
        if self.patches and (run.model.patch_keep_rate != 1 or run.patch_keep_rates):
            raise ValueError(
                "`distill.patches` needs all patches, so `model.patch_keep_rate` must be 1. "
                f"Received: {run.model.patch_keep_rate}"
            )


RULES: tuple[Rule, ...] = (
    ("weight", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("temperature", lambda value: value > 0, "above 0"),
)


def _values(config, but):
    """The fields of a section that are not in `but`."""
    names = [field.name for field in dataclasses.fields(config)]
    return {name: getattr(config, name) for name in names if name not in but}


def _changes(config, other):
    """The fields in which a section differs from another, in words."""
    fields = _values(config, but=())
    texts = [f"{name}={fields[name]}" for name in fields if fields[name] != getattr(other, name)]
    return ", ".join(texts)


def _get(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config
