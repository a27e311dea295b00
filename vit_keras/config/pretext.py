"""Training without labels: masked patches (Appendix B.1.2), MAE, DINO, or a teacher."""

import dataclasses
import math
from typing import Any, Literal

from vit_keras import variants
from vit_keras.config.model import ModelConfig, both_sides
from vit_keras.support.checks import Rule, check_defaults, check_rules

Range = tuple[float, float]
ADDED = ("learned", "learned_2d", "sincos2d", "none")  # positions that can be interpolated
# Fields that DINO replaces with its own; they must keep their defaults.
REPLACED = (
    *("augment.rotation_degrees", "augment.scale", "augment.shift", "augment.crop"),
    *("augment.randaugment_layers", "augment.policy", "augment.color_jitter", "augment.erasing"),
    *("optimizer.ema_decay", "optimizer.layer_decay"),
    *("optimizer.freeze", "patch_keep_rates", "pretext.target", "pretext.corrupt"),
)


@dataclasses.dataclass(frozen=True)
class DinoConfig:
    """The views, the head, and the schedules of `pretext.objective` dino.

    Attributes:
        local_crops: number of small views of an image, which only the student sees
        local_size: height and width of a small view in pixels; a multiple of the patch
        global_scale: smallest and largest part of the area in the two views that the teacher sees
        local_scale: the same for the small views
        color_jitter: strength of the changes of brightness, contrast, saturation, and hue; 1 as
            published, 0 for none
        grayscale: share of the views without colors
        blur_sigma: largest standard deviation of the blur in pixels; 0 for none
        solarize: share of the second global views whose bright pixels are inverted
        prototypes: number of outputs of the head, K
        head_hidden_size: width of the two hidden layers of the head
        bottleneck_size: width of the vector that is compared with the prototypes
        teacher_momentum: initial momentum of the teacher's weights, which grows to 1 along a cosine
        center_momentum: momentum of the center, the mean of the teacher's outputs
        student_temperature: temperature of the student's softmax
        teacher_temperature: temperature of the teacher's softmax after the warmup
        warmup_temperature: the same at the first update; it grows linearly
        temperature_warmup: fraction of the updates over which it grows
        frozen_prototypes: fraction of the updates during which the prototypes stay fixed
    """

    local_crops: int = 8
    local_size: int = 96
    global_scale: Range = (0.4, 1.0)
    local_scale: Range = (0.05, 0.4)
    color_jitter: float = 1.0
    grayscale: float = 0.2
    blur_sigma: float = 2.0
    solarize: float = 0.2
    prototypes: int = 65536
    head_hidden_size: int = 2048
    bottleneck_size: int = 256
    teacher_momentum: float = 0.996
    center_momentum: float = 0.9
    student_temperature: float = 0.1
    teacher_temperature: float = 0.07
    warmup_temperature: float = 0.04
    temperature_warmup: float = 0.3
    frozen_prototypes: float = 0.01

    def __post_init__(self):
        check_rules(self, "pretext.dino", DINO_RULES)

    def check(self, run: Any) -> None:
        """Raises ValueError if self-distillation does not fit the rest of a run's `Config`."""
        model = run.model
        rule = f"one of {', '.join(ADDED)}, since dino interpolates positions for its small views"
        check_rules(model, "model", [("position_embedding", ADDED.__contains__, rule)])
        sizes = model.image_size if isinstance(model.image_size, tuple) else (model.image_size,)
        if any(self.local_size % side for side in model.patch) or self.local_size > min(sizes):
            raise ValueError(
                "`pretext.dino.local_size` must be a multiple of the patch and at most the size of "
                f"the images. Received: {self.local_size} with patches of "
                f"{model.patch[0]}x{model.patch[1]} in images of {model.image_size}"
            )


_POSITIVE = (lambda value: value >= 1, "at least 1")
_SHARE = (lambda value: 0 <= value <= 1, "from 0 to 1")
_TEMPERATURE = (lambda value: value > 0, "above 0")
_AREA = (lambda value: 0 < value[0] <= value[1] <= 1, "two rising fractions above 0 and at most 1")
DINO_RULES: tuple[Rule, ...] = (
    *((name, *_POSITIVE) for name in ("local_crops", "local_size")),
    *((name, *_POSITIVE) for name in ("head_hidden_size", "bottleneck_size")),
    ("prototypes", lambda value: value >= 2, "at least 2"),
    *((name, *_AREA) for name in ("global_scale", "local_scale")),
    *((name, *_SHARE) for name in ("color_jitter", "grayscale", "solarize")),
    *((name, *_SHARE) for name in ("teacher_momentum", "center_momentum")),
    *((name, *_SHARE) for name in ("temperature_warmup", "frozen_prototypes")),
    ("blur_sigma", lambda value: value >= 0, "at least 0"),
    *((name, *_TEMPERATURE) for name in ("student_temperature", "teacher_temperature")),
    ("warmup_temperature", *_TEMPERATURE),
)


COLORS = {"mean_color": 1, "colors_4x4": 16}  # predictions per patch, each of one color
PUBLISHED = {  # target and fraction of corrupted patches for each objective
    "masked_patch": ("mean_color", 0.5),
    "mae": ("normalized_patch", 0.75),
}
# Fields of classifiers and labels; they must keep their defaults with a pretext objective.
LABELS_ALONE = (
    *("loss", "balance", "calibrate", "label_smoothing", "sweep", "folds", "patience"),
    "watch_every",
    *("model.representation_size", "augment.mixup_alpha", "augment.cutmix_alpha", "lora.rank"),
)


@dataclasses.dataclass(frozen=True)
class PretextConfig:
    """What the run learns from its images instead of their labels.

    Attributes:
        objective: none for a classifier; masked_patch, which encodes all tokens and predicts the
            corrupted patches from their tokens; mae, whose encoder sees only the visible patches;
            or dino, where a student predicts a teacher's outputs for other views of an image
        target: what to predict for a corrupted patch: mean_color, its mean in 2 ** bits levels per
            channel, with a class for each color; colors_4x4, the same for each of its 16 parts;
            patch, its pixels by squared error; normalized_patch, its pixels minus their mean,
            divided by their deviation. null for the published one: mean_color, or normalized_patch
            for mae
        corrupt: fraction of the patches to corrupt; null for the published one, 0.5, or 0.75 for
            mae
        bits: bits per channel of a color; 3 bits give 512 colors, or 8 grays
        decoder_hidden_size: width of mae's decoder
        decoder_num_layers: number of blocks of mae's decoder
        decoder_num_heads: number of attention heads of mae's decoder
        dino: views, head, and schedules of dino
    """

    objective: Literal["none", "masked_patch", "mae", "dino"] = "none"
    target: Literal["mean_color", "colors_4x4", "patch", "normalized_patch"] | None = None
    corrupt: float | None = None
    bits: int = 3
    decoder_hidden_size: int = 512
    decoder_num_layers: int = 8
    decoder_num_heads: int = 16
    dino: DinoConfig = DinoConfig()

    def __post_init__(self):
        check_rules(self, "pretext", PRETEXT_RULES)

    @property
    def is_active(self) -> bool:
        return self.objective != "none"

    @property
    def is_dino(self) -> bool:
        """Whether the model computes its own loss from views, without masks and targets."""
        return self.objective == "dino"

    @property
    def predicted(self) -> str:
        """The target; the published one for null."""
        return self.target or PUBLISHED[self.objective][0]

    @property
    def predicts_colors(self) -> bool:
        return not self.is_dino and self.predicted in COLORS

    def corrupted(self, patches: int) -> int:
        """Returns the number of an image's patches to corrupt: at least one, but not all."""
        share = PUBLISHED[self.objective][1] if self.corrupt is None else self.corrupt
        return min(max(round(share * patches), 1), patches - 1)

    def outputs(self, patch_size: tuple[int, int], channels: int) -> tuple[int, int]:
        """Returns the number of predictions per patch, 1 or 16, and the width of each."""
        if self.predicts_colors:
            return COLORS[self.predicted], 2 ** (self.bits * channels)
        return 1, math.prod(patch_size) * channels

    def check(self, run: Any) -> None:
        """Raises ValueError if the objective does not fit the rest of a run's `Config`."""
        if not self.is_active:
            return
        where = f"`pretext.objective` {self.objective}"
        check_defaults(run, LABELS_ALONE, f"{where}, which trains no classifier")
        if self.is_dino:
            check_defaults(run, REPLACED, f"{where}, which has views and averages of its own")
        self._check_model(run.model)
        if self.is_dino:
            self.dino.check(run)
        elif self.predicted == "colors_4x4" and any(size % 4 for size in run.model.patch):
            raise ValueError(
                "`pretext.target` colors_4x4 needs patches with sides in multiples of 4. "
                f"Received: {run.model.patch[0]}x{run.model.patch[1]}"
            )

    def _check_model(self, model: ModelConfig):
        plain = (variants.Variant, variants.FamilyVariant)
        if model.variant and type(variants.get(model.variant)) not in plain:
            raise ValueError(
                "A pretext needs the patches of a plain Vision Transformer, such as B/16; hybrids "
                f"and ResNets have none. Received: model.variant={model.variant}"
            )
        if model.classifier == "distilled" or (model.classifier == "map" and not self.is_dino):
            raise ValueError(
                "`model.classifier` must be token or gap with a pretext, which would not train the "
                f"pool of map or the head of distilled. Received: {model.classifier}"
            )
        patch = model.patch
        sides = both_sides(model.image_size)
        if math.prod(side // size for side, size in zip(sides, patch)) < 2:
            raise ValueError(
                "A pretext needs at least two patches. Received: "
                f"model.image_size={model.image_size} with patches of {patch[0]}x{patch[1]}"
            )


PRETEXT_RULES: tuple[Rule, ...] = (
    ("corrupt", lambda value: 0 < value < 1, "above 0 and below 1, or null for the published one"),
    ("bits", lambda value: 1 <= value <= 5, "from 1 to 5"),
    *((f"decoder_{name}", *_POSITIVE) for name in ("num_layers", "num_heads", "hidden_size")),
    (
        ("decoder_hidden_size", "decoder_num_heads"),
        lambda size, heads: size % math.lcm(4, heads) == 0,
        "the first must be a multiple of 4 and of the second",
    ),
)


# The fields that each kind uses; the others must keep their defaults.
USED: dict[str, tuple[str, ...]] = {
    "soft": ("weight", "temperature"),
    "hard": ("weight",),
    "features": ("distance", "patches"),
}
# Fields of classifiers and labels; they must keep their defaults without labels.
CLASSES_ALONE = (
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
        kind: soft, the teacher's probabilities; hard, the teacher's best class, with a separate
            head if `model.classifier` is distilled, as in DeiT; or features, the input of the
            teacher's head, which needs no labels and gives a model without a head
        weight: share of the teacher in the loss of soft and hard; the rest goes to the labels
        temperature: divisor of both models' logits with soft
        distance: distance of features: cosine, which is 1 minus the cosine of the angle, or mse,
            the squared distance to the teacher's features after subtracting their mean and dividing
            by their deviation
        patches: match the features of each patch too
    """

    teacher: str | None = None
    teacher_variant: str | None = None
    kind: Literal["soft", "hard", "features"] = "soft"
    weight: float = 0.5
    temperature: float = 2.0
    distance: Literal["cosine", "mse"] = "cosine"
    patches: bool = False

    def __post_init__(self):
        check_rules(self, "distill", DISTILL_RULES)

    @property
    def is_active(self) -> bool:
        return self.teacher is not None

    @property
    def needs_labels(self) -> bool:
        return self.kind != "features"

    def check(self, run: Any) -> None:
        """Raises ValueError if the section does not fit the rest of a run's `Config`."""
        if not self.is_active:
            if self != DistillConfig():
                raise ValueError(
                    "The fields of `distill` need `distill.teacher`, the model to learn from. "
                    "Received: teacher=null"
                )
            return
        check_defaults(run, ("pretext.objective", "lora.rank"), "`distill.teacher`")
        fields = {field.name for field in dataclasses.fields(self)}
        unused = sorted(fields - {"teacher", "teacher_variant", "kind", *USED[self.kind]})
        kind = f"`distill.kind` {self.kind}"
        check_defaults(run, [f"distill.{name}" for name in unused], kind)
        self._check_task(run)

    def _check_task(self, run):
        if self.needs_labels and (run.task not in ("auto", "classes") or run.loss == "sigmoid"):
            raise ValueError(
                f"`distill.kind` {self.kind} compares probabilities of classes, so `task` must be "
                f"classes and `loss` softmax. Received: task={run.task}, loss={run.loss}. Use "
                "distill.kind=features, and train the head in a second run"
            )
        if not self.needs_labels:
            where = "`distill.kind` features, which learns from no labels"
            check_defaults(run, CLASSES_ALONE, where)
        if self.patches:
            where = "`distill.patches`, which needs all patches"
            check_defaults(run, ("model.patch_keep_rate", "patch_keep_rates"), where)


DISTILL_RULES: tuple[Rule, ...] = (
    ("weight", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("temperature", lambda value: value > 0, "above 0"),
)
