"""How other families differ from the paper's model, and the tokens before the patches."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from vit_keras.layers.base import BlockOptions
from vit_keras.support.annotated import check_choices

POSITION_COVERS = ("all", "class", "patches")
WITH_NO_OBJECT = ("tokens", "patches")  # boxes with another class, which means no object
BOXES = (None, *WITH_NO_OBJECT, "texts", "texts_objectness")


@dataclasses.dataclass(frozen=True)
class ViTOptions(BlockOptions):
    """How a Vision Transformer differs from the paper's model, which has the defaults.

    `VisionTransformer` takes these fields, including those of `BlockOptions`, as keyword arguments.
    A family of models is a set of them; see `vit_keras.variants.families`.

    Attributes:
        class_token: Whether there is a class token even if the classifier does not read it, as with
            "gap" in MAE's fine-tuned models. Classifiers that read one always have it.
        distillation_token: Whether there is a distillation token, as in DeiT, even if the
            classifier does not read it. The classifier "distilled" always has it.
        num_registers: The number of registers between the class token and the patches (arXiv
            2309.16588).
        position_cover: The tokens that get added positions: "all" tokens; "class" token and patches
            but not registers, as in DINOv2; or only "patches", as in DeiT III.
        crop_to_patches: Whether to ignore pixels at the right and bottom that do not fill a patch,
            like the convolution of So400m/14 at 384 pixels. Otherwise such images are refused.
        pre_norm: Whether tokens are normalized before the first block, as in CLIP. The patch
            embedding then has no bias.
        final_norm: Whether tokens are normalized after the last block.
        pool_all_tokens: Whether the classifier "map" also pools the tokens before the patches, as
            in PE.
        map_heads: The number of heads of the classifier "map"; None means the blocks' number.
        map_mlp_dim: The number of hidden units of the classifier "map"; None means the blocks'
            number.
        head_use_bias: Whether the classifier has a bias. CLIP's projection has none.
        boxes: What finds objects instead of the classifier, so that the model gives a dictionary of
            outputs if it has classes: MLPs on the registers ("tokens", as in YOLOS) or on the
            patches ("patches"), with the outputs "logits" and "boxes" as in `models.detector`. With
            "texts", as in OWL-ViT, classes are texts (`models.head_from_text`), and `num_classes`
            is the width of their embeddings; "texts_objectness" also says which patches have
            objects, as in OWLv2. None is the classifier.
        global_blocks: The indices of the blocks that attend to all tokens despite `window_size`,
            such as (2, 5, 8, 11) of 12 blocks in ViTDet.

    Raises:
        ValueError: If a field has an unsupported value, or `global_blocks` come without
            `window_size`.

    Example:
        >>> options = {"layer_scale": 1e-5, "num_registers": 4, "position_cover": "class"}
        >>> model = VisionTransformer(518, 14, 384, 12, 6, 1536, num_classes=None, **options)
        >>> model.count_params()
        22058112
    """

    class_token: bool = False
    distillation_token: bool = False
    num_registers: int = 0
    position_cover: str = "all"
    crop_to_patches: bool = False
    pre_norm: bool = False
    final_norm: bool = True
    pool_all_tokens: bool = False
    map_heads: int | None = None
    map_mlp_dim: int | None = None
    head_use_bias: bool = True
    boxes: str | None = None
    global_blocks: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        check_choices(self, {"position_cover": POSITION_COVERS, "boxes": BOXES})
        if not isinstance(self.num_registers, int) or self.num_registers < 0:
            raise ValueError(
                "`num_registers` must be an int of at least 0. "
                f"Received: num_registers={self.num_registers!r}"
            )
        if self.boxes == "tokens" and not self.num_registers:
            raise ValueError(
                "`boxes` 'tokens' come from registers, so `num_registers` must be at least 1. "
                "Received: num_registers=0"
            )
        self._check_global_blocks()

    def _check_global_blocks(self):
        blocks = self.global_blocks
        is_list = isinstance(blocks, (list, tuple))
        if not is_list or not all(_is_index(i) for i in blocks) or len({*blocks}) < len(blocks):
            raise ValueError(
                "`global_blocks` must be different indices of blocks, ints of at least 0. "
                f"Received: global_blocks={blocks!r}"
            )
        if blocks and self.window_size is None:
            raise ValueError(
                "`global_blocks` are exceptions from windows. Give `window_size` too, or leave "
                f"them out. Received: global_blocks={blocks!r}, window_size=None"
            )
        object.__setattr__(self, "global_blocks", tuple(sorted(blocks)))

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> "ViTOptions":
        """Returns the options among arguments of `VisionTransformer`."""
        return cls(**{name: arguments[name] for name in OPTION_NAMES if name in arguments})

    @property
    def extra_classes(self) -> int:
        """The number of outputs of `head` besides the classes': 1 for no object, or 0."""
        return int(self.boxes in WITH_NO_OBJECT)

    def changed(self) -> dict:
        """Returns the fields that differ from the defaults, as values that JSON can hold."""
        return changed_options(dataclasses.asdict(self))


def changed_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of `VisionTransformer` without the options that equal the paper's."""
    same = lambda name, value: name in OPTION_NAMES and value == getattr(ViTOptions, name)
    return {name: value for name, value in arguments.items() if not same(name, value)}


def _is_index(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


OPTION_NAMES = tuple(field.name for field in dataclasses.fields(ViTOptions))

# The classifiers that read the class token.
READ_CLASS_TOKEN = ("token", "token_gap", "distilled")


@dataclasses.dataclass(frozen=True)
class Prefix:
    """The tokens before the patches.

    Attributes:
        names: The names of the layers that add one token each, in the order of the tokens: "cls"
            and "dist", if present.
        num_registers: The number of registers after them.
    """

    names: tuple[str, ...]
    num_registers: int = 0

    @property
    def count(self) -> int:
        """The number of tokens before the patches."""
        return len(self.names) + self.num_registers

    @staticmethod
    def of(classifier: str, options: ViTOptions) -> "Prefix":
        """Returns the tokens of a model with this classifier and these options."""
        names: tuple[str, ...] = ()
        if options.class_token or classifier in READ_CLASS_TOKEN:
            names += ("cls",)
        if options.distillation_token or classifier == "distilled":
            names += ("dist",)
        return Prefix(names, options.num_registers)

    def positions(self, cover: str) -> int:
        """Returns how many of these tokens get added positions."""
        return {"all": self.count, "class": len(self.names), "patches": 0}[cover]
