"""What a model learns from images without labels: Appendix B.1.2, MAE, and DINO."""

import dataclasses
import math
from typing import Any, Literal

from vit_keras import variants
from vit_keras.config.dino import REPLACED, DinoConfig
from vit_keras.config.model import ModelConfig, both_sides
from vit_keras.config.rules import Rule, check_rules

COLORS = {"mean_colour": 1, "colours_4x4": 16}  # predictions of a patch, each of one color
PUBLISHED = {  # the target and the fraction of corrupted patches of each objective
    "masked_patch": ("mean_colour", 0.5),
    "mae": ("normalised_patch", 0.75),
}
# Fields of classifiers and labels, which stay at their defaults with a pretext objective.
LABELS_ALONE = (
    *(
        "loss",
        "balance",
        "calibrate",
        "label_smoothing",
        "sweep",
        "folds",
        "patience",
        "watch_every",
    ),
    *("model.representation_size", "augment.mixup_alpha", "augment.cutmix_alpha", "lora.rank"),
)


@dataclasses.dataclass(frozen=True)
class PretextConfig:
    """What the run learns from its images instead of their labels.

    Attributes:
        objective: none for a classifier; masked_patch, which encodes all tokens and predicts the
            corrupted patches from theirs; mae, whose encoder sees the visible patches alone; or
            dino, where a student predicts the outputs of a teacher for other views of an image
        target: what to predict of a corrupted patch: mean_colour, its mean in 2 ** bits levels a
            channel, with a class for each color; colours_4x4, the same for each of its 16 parts;
            patch, its pixels by squared error; normalised_patch, its pixels less their mean over
            their deviation. null for the published one: mean_colour, or normalised_patch for mae
        corrupt: fraction of the patches to corrupt; null for the published one, 0.5, or 0.75 for
            mae
        bits: bits of a channel of a color; 3 give 512 colors, or 8 grays
        decoder_hidden_size: width of mae's decoder
        decoder_num_layers: number of blocks of mae's decoder
        decoder_num_heads: number of attention heads of mae's decoder
        dino: views, head, and schedules of dino
    """

    objective: Literal["none", "masked_patch", "mae", "dino"] = "none"
    target: Literal["mean_colour", "colours_4x4", "patch", "normalised_patch"] | None = None
    corrupt: float | None = None
    bits: int = 3
    decoder_hidden_size: int = 512
    decoder_num_layers: int = 8
    decoder_num_heads: int = 16
    dino: DinoConfig = DinoConfig()

    def __post_init__(self):
        check_rules(self, "pretext", RULES)
        if self.decoder_hidden_size % math.lcm(4, self.decoder_num_heads):
            raise ValueError(
                "`pretext.decoder_hidden_size` must be a multiple of 4 and of `decoder_num_heads`. "
                f"Received: {self.decoder_hidden_size}, of {self.decoder_num_heads} heads"
            )

    @property
    def is_active(self) -> bool:
        return self.objective != "none"

    @property
    def is_dino(self) -> bool:
        """Whether the model computes its own loss from views, without masks and targets."""
        return self.objective == "dino"

    @property
    def predicted(self) -> str:
        """The target, with the published one for null."""
        return self.target or PUBLISHED[self.objective][0]

    @property
    def predicts_colours(self) -> bool:
        return not self.is_dino and self.predicted in COLORS

    def corrupted(self, patches: int) -> int:
        """How many of an image's patches are corrupted: at least one, and not all."""
        share = PUBLISHED[self.objective][1] if self.corrupt is None else self.corrupt
        return min(max(round(share * patches), 1), patches - 1)

    def outputs(self, patch_size: tuple[int, int], channels: int) -> tuple[int, int]:
        """Predictions for a patch, and their width: 1 or 16 over all colors, or 1 over pixels."""
        if self.predicts_colours:
            return COLORS[self.predicted], 2 ** (self.bits * channels)
        return 1, math.prod(patch_size) * channels

    def check(self, run: Any) -> None:
        """Raises ValueError if the objective does not fit the rest of a run's `Config`."""
        if not self.is_active:
            return
        self._check_defaults(run, LABELS_ALONE, "trains no classifier")
        if self.is_dino:
            self._check_defaults(run, REPLACED, "has views, averages and masks of its own")
        self._check_model(run.model)
        if self.is_dino:
            self.dino.check(run)
        elif self.predicted == "colours_4x4" and any(size % 4 for size in run.model.patch):
            raise ValueError(
                "`pretext.target` colours_4x4 needs patches whose sides 4 divides. "
                f"Received: {run.model.patch[0]}x{run.model.patch[1]}"
            )

    def _check_defaults(self, run, names, reason):
        for name in names:
            value, default = _get(run, name), _get(type(run)(), name)
            if value != default:
                raise ValueError(
                    f"`{name}` must be {default} with `pretext.objective` {self.objective}, which "
                    f"{reason}. Received: {value}"
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
        kind, place = model.position_embedding, model.position_embedding_at
        if self.objective == "mae" and (kind in ("relative", "rope2d") or place != "stem"):
            raise ValueError(
                "mae drops patches after positions are added, so `model.position_embedding` must "
                "be added at the stem. Received: "
                f"position_embedding={kind}, position_embedding_at={place}"
            )
        patch = model.patch
        sides = both_sides(model.image_size)
        if math.prod(side // size for side, size in zip(sides, patch)) < 2:
            raise ValueError(
                "A pretext needs at least two patches. Received: "
                f"model.image_size={model.image_size} with patches of {patch[0]}x{patch[1]}"
            )


RULES: tuple[Rule, ...] = (
    ("corrupt", lambda value: 0 < value < 1, "above 0 and below 1, or null for the published one"),
    ("bits", lambda value: 1 <= value <= 5, "from 1 to 5"),
    ("decoder_num_layers", lambda value: value >= 1, "at least 1"),
    ("decoder_num_heads", lambda value: value >= 1, "at least 1"),
    ("decoder_hidden_size", lambda value: value >= 1, "at least 1"),
)


def _get(config, name):
    for part in name.split("."):
        config = getattr(config, part)
    return config
