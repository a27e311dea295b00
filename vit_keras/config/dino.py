"""What DINO's self-distillation is made of (arXiv 2104.14294)."""

import dataclasses
from typing import Any

from vit_keras.config.rules import Rule, check_rules

Range = tuple[float, float]
ADDED = ("learned", "learned_2d", "sincos2d", "none")  # positions that can be interpolated
# Fields that DINO replaces by its own, which stay at their defaults.
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
        local_crops: number of small views of an image, which the student alone sees
        local_size: height and width of a small view in pixels; the patch divides them
        global_scale: smallest and largest part of the area in the two views that the teacher sees
        local_scale: the same for the small views
        color_jitter: strength of the changes of brightness, contrast, saturation, and hue; 1 as
            published, 0 for none
        grayscale: share of the views without colors
        blur_sigma: largest standard deviation of the blur in pixels; 0 for none
        solarize: share of the second global views whose bright pixels are inverted
        prototypes: outputs of the head, K
        head_hidden_size: width of the two hidden layers of the head
        bottleneck_size: width of the vector that is compared with the prototypes
        teacher_momentum: momentum of the teacher's weights, which grows to 1 by a cosine
        center_momentum: momentum of the center, the mean of the teacher's outputs
        student_temperature: temperature of the student's softmax
        teacher_temperature: temperature of the teacher's softmax after the warmup
        warmup_temperature: the same at the first update; it grows linearly
        temperature_warmup: fraction of the updates over which it grows
        frozen_prototypes: fraction of the updates in which the prototypes do not train
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
        check_rules(self, "pretext.dino", RULES)

    def check(self, run: Any) -> None:
        """Raises ValueError if self-distillation does not fit the rest of a run's `Config`."""
        model = run.model
        if model.position_embedding not in ADDED:
            raise ValueError(
                "dino interpolates positions for its small views, so `model.position_embedding` "
                f"must be one of {', '.join(ADDED)}. Received: {model.position_embedding}"
            )
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
RULES: tuple[Rule, ...] = (
    *((name, *_POSITIVE) for name in ("local_crops", "local_size", "head_hidden_size")),
    *((name, *_POSITIVE) for name in ("bottleneck_size",)),
    ("prototypes", lambda value: value >= 2, "at least 2"),
    *((name, *_AREA) for name in ("global_scale", "local_scale")),
    *((name, *_SHARE) for name in ("color_jitter", "grayscale", "solarize")),
    *((name, *_SHARE) for name in ("teacher_momentum", "center_momentum")),
    *((name, *_SHARE) for name in ("temperature_warmup", "frozen_prototypes")),
    ("blur_sigma", lambda value: value >= 0, "at least 0"),
    *((name, *_TEMPERATURE) for name in ("student_temperature", "teacher_temperature")),
    ("warmup_temperature", *_TEMPERATURE),
)
