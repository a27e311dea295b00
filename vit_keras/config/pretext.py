"""Training without labels: masked patches (Appendix B.1.2), MAE, DINO, or a teacher."""

import dataclasses
import math
from typing import Annotated, Literal

from vit_keras import variants
from vit_keras.config.base import Fraction, NotNegative, Positive, Range, Section, Share, Size
from vit_keras.config.model import ModelConfig
from vit_keras.support.checks import check_rules, pair

Area = Annotated[tuple[float, float], Range(above=0, most=1)]
ADDED = ("learned", "learned_2d", "sincos2d", "none")  # positions that can be interpolated


@dataclasses.dataclass(frozen=True)
class DinoConfig(Section, name="pretext.dino"):
    """The views, the head, and the schedules of `pretext.objective` dino.

    Attributes:
        local_crops: number of small views of an image, which only the student sees
        local_size: height and width of a small view in pixels; a multiple of the patch size
        global_scale: smallest and largest share of the image's area in each of the two views that
            the teacher sees
        local_scale: the same for the small views
        color_jitter: strength of the changes in brightness, contrast, saturation, and hue; 1 as
            published, 0 for none
        grayscale: share of the views that are converted to gray
        blur_sigma: largest standard deviation of the blur in pixels; 0 for none
        solarize: share of the second global views whose bright pixels are inverted
        prototypes: number of outputs of the head, K
        head_hidden_size: width of the two hidden layers of the head
        bottleneck_size: width of the vector that is compared with the prototypes
        teacher_momentum: initial momentum of the teacher's weights, which grows to 1 along a cosine
        center_momentum: momentum of the center, the mean of the teacher's outputs
        student_temperature: temperature of the student's softmax
        teacher_temperature: temperature of the teacher's softmax after the warmup
        warmup_temperature: the same at the first update, from which it grows linearly
        temperature_warmup: fraction of the updates over which the teacher's temperature grows
        frozen_prototypes: fraction of the updates during which the prototypes stay fixed
    """

    local_crops: Size = 8
    local_size: Size = 96
    global_scale: Area = (0.4, 1.0)
    local_scale: Area = (0.05, 0.4)
    color_jitter: Fraction = 1.0
    grayscale: Fraction = 0.2
    blur_sigma: NotNegative = 2.0
    solarize: Fraction = 0.2
    prototypes: Annotated[int, Range(2)] = 65536
    head_hidden_size: Size = 2048
    bottleneck_size: Size = 256
    teacher_momentum: Fraction = 0.996
    center_momentum: Fraction = 0.9
    student_temperature: Positive = 0.1
    teacher_temperature: Positive = 0.07
    warmup_temperature: Positive = 0.04
    temperature_warmup: Fraction = 0.3
    frozen_prototypes: Fraction = 0.01

    RULES = tuple(
        (name, lambda area: area[0] <= area[1], "two increasing fractions above 0 and at most 1")
        for name in ("global_scale", "local_scale")
    )


COLORS = {"mean_color": 1, "colors_4x4": 16}  # predictions per patch, each of one color
PUBLISHED = {  # target and fraction of corrupted patches for each objective
    "masked_patch": ("mean_color", 0.5),
    "mae": ("normalized_patch", 0.75),
}


@dataclasses.dataclass(frozen=True)
class PretextConfig(Section, name="pretext"):
    """What the run learns from its images instead of their labels.

    Attributes:
        objective: none for a classifier; masked_patch, which encodes all tokens and predicts the
            corrupted patches from their tokens; mae, whose encoder sees only the visible patches;
            or dino, where a student predicts a teacher's outputs for other views of an image
        target: what to predict for a corrupted patch: mean_color, its mean in 2 ** bits levels per
            channel, with a class for each color; colors_4x4, the same for each of its 16 parts;
            patch, its pixels by squared error; normalized_patch, its pixels minus their mean,
            divided by their standard deviation. null for the published one: mean_color, or
            normalized_patch for mae
        corrupt: fraction of the patches to corrupt; null for the published fraction: 0.75 for mae,
            0.5 otherwise
        bits: bits per channel of a color; 3 bits give 512 colors, or 8 levels of gray
        decoder_hidden_size: width of mae's decoder
        decoder_num_layers: number of blocks of mae's decoder
        decoder_num_heads: number of attention heads of mae's decoder
        dino: views, head, and schedules of dino
    """

    objective: Literal["none", "masked_patch", "mae", "dino"] = "none"
    target: Literal["mean_color", "colors_4x4", "patch", "normalized_patch"] | None = None
    corrupt: Annotated[float, Range(above=0, below=1)] | None = None
    bits: Annotated[int, Range(1, 5)] = 3
    decoder_hidden_size: Size = 512
    decoder_num_layers: Size = 8
    decoder_num_heads: Size = 16
    dino: DinoConfig = DinoConfig()

    RULES = (
        (
            ("decoder_hidden_size", "decoder_num_heads"),
            lambda size, heads: size % math.lcm(4, heads) == 0,
            "the first must be a multiple of 4 and of the second",
        ),
    )

    @property
    def is_active(self) -> bool:
        return self.objective != "none"

    @property
    def is_dino(self) -> bool:
        """Whether the model computes its own loss from views, without masks or targets."""
        return self.objective == "dino"

    @property
    def predicted(self) -> str:
        """The target, or the published one if `target` is None."""
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

    def check(self, model: ModelConfig) -> None:
        """Raises ValueError if the objective does not fit a complete model."""
        if not self.is_active:
            return
        plain = (variants.Variant, variants.FamilyVariant)
        has_patches = lambda name: type(variants.get(name)) in plain
        is_trained = lambda name: name != "distilled" and (name != "map" or self.is_dino)
        is_added = lambda name: name in ADDED or not self.is_dino
        rules = (
            ("variant", has_patches, "a plain Vision Transformer, such as B/16, with a pretext"),
            ("classifier", is_trained, "token or gap with a pretext; it trains no other pooling"),
            ("position_embedding", is_added, f"one of {', '.join(ADDED)} with objective dino"),
        )
        check_rules(model, "model", rules)
        (height, width), size = model.patch, pair(model.image_size, "image_size")
        needs = {"at least two patches": size[0] // height * (size[1] // width) > 1}
        if self.is_dino:
            local = self.dino.local_size
            fits = local % height == local % width == 0 and local <= min(size)
            rule = "a multiple of the patch size and at most the size of the images"
            needs[f"`pretext.dino.local_size`, which is {local}, to be {rule}"] = fits
        elif self.predicted == "colors_4x4":
            needs["patches whose sides are multiples of 4"] = height % 4 == width % 4 == 0
        if missing := [need for need, holds in needs.items() if not holds]:
            raise ValueError(
                f"`pretext.objective` {self.objective} needs {' and '.join(missing)}. Received: "
                f"patches of {height}x{width} in images of {size[0]}x{size[1]}"
            )


@dataclasses.dataclass(frozen=True)
class DistillConfig(Section, name="distill"):
    """What the run learns from another model, on the same augmented images.

    Attributes:
        teacher: model to learn from: a run, a file or folder of any format, or a published name;
            null for none
        teacher_variant: variant whose published weights `teacher` names; null for B/16
        kind: soft, the teacher's probabilities; hard, the teacher's most likely class, with a
            separate head if `model.classifier` is distilled, as in DeiT; or features, the input of
            the teacher's head, which needs no labels and gives a model without a head
        weight: the teacher's share of the loss with soft or hard; the rest goes to the labels
        temperature: divisor of both models' logits with soft
        patches: match the features of each patch too
    """

    teacher: str | None = None
    teacher_variant: str | None = None
    kind: Literal["soft", "hard", "features"] = "soft"
    weight: Share = 0.5
    temperature: Positive = 2.0
    patches: bool = False

    RULES = (("teacher", bool, "a model, or null"),)

    @property
    def is_of_features(self) -> bool:
        """Whether the run learns a teacher's features, and no labels."""
        return self.teacher is not None and self.kind == "features"
