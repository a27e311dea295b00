"""Options of blocks and models, checks of arguments, dropout and normalization."""

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Any, Literal

import keras
from keras import ops

from vit_keras.layers import backends
from vit_keras.support.checks import check_choice as check_choice
from vit_keras.support.checks import check_types
from vit_keras.support.checks import pair as pair
from vit_keras.support.keras_internals import FixedSeed


@keras.saving.register_keras_serializable(package="vit_keras")
class Dropout(keras.layers.Dropout):
    """A `keras.layers.Dropout` whose next mask may be drawn before it is called.

    It takes the arguments of `keras.layers.Dropout`, and keeps the shape of its input.

    Attributes:
        drawn: A seed, a function of the inputs that replaces the call, or None.
    """

    drawn = None

    def call(self, inputs, training=False):
        if self.drawn is None or not training:
            return super().call(inputs, training=training)
        if callable(self.drawn):
            return self.drawn(inputs)
        seed = FixedSeed(self.drawn)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


def rematerialize(function, x, dropouts):
    """Computes `function(x)` without keeping its inner activations for the backward pass.

    The backward pass computes them again. This function draws the seeds of the dropouts. If
    `function` drew them, the second computation would get different masks and give wrong gradients.

    Args:
        function: A function of one tensor.
        x: The tensor.
        dropouts: The `Dropout` layers that `function` calls in training.

    Returns:
        What `function` returns.
    """

    def replay(x, *seeds):
        for dropout, seed in zip(dropouts, seeds):
            dropout.drawn = seed
        try:
            return function(x)
        finally:
            for dropout in dropouts:
                dropout.drawn = None

    return keras.remat(replay)(x, *(dropout.seed_generator.next() for dropout in dropouts))


def check_positive(**sizes) -> None:
    """Raises ValueError unless every size is a positive int."""
    _check(sizes, lambda size: _is_count(size) and size > 0, "a positive int")


def check_counts(**counts) -> None:
    """Raises ValueError unless every count is a nonnegative int."""
    _check(counts, _is_count, "a nonnegative int")


def check_rates(**rates) -> None:
    """Raises ValueError unless every rate is at least 0 and below 1."""
    _check(rates, lambda rate: _is_number(rate) and 0 <= rate < 1, "at least 0 and below 1")


def check_kept(**rates) -> None:
    """Raises ValueError unless every rate is above 0 and at most 1."""
    rule = "the fraction of patches to keep, above 0 and at most 1"
    _check(rates, lambda rate: _is_number(rate) and 0 < rate <= 1, rule)


def _check(values, holds, rule):
    for name, value in values.items():
        if not holds(value):
            raise ValueError(f"`{name}` must be {rule}. Received: {name}={value!r}")


def _is_number(value) -> bool:
    return isinstance(value, numbers.Real)


def _is_count(value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


@backends.dispatch("layer_norm")
def normalize(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis."""
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


train_normalize = backends.lookup("train_layer_norm", normalize)


@keras.saving.register_keras_serializable(package="vit_keras")
class LayerNormalization(keras.layers.LayerNormalization):
    """Layer normalization over the last axis, with each backend's fastest operations.

    Of `keras.layers.LayerNormalization`'s arguments, it takes only `epsilon`, `name` and `dtype`.
    """

    def call(self, inputs, training=None):
        of_mode = train_normalize if training else normalize
        y = of_mode(inputs, self.gamma, self.beta, self.epsilon)
        return ops.cast(y, self.compute_dtype)


NORMALIZATIONS = {"layer": LayerNormalization, "rms": keras.layers.RMSNormalization}
QKV_BIASES = {"all": ("query", "key", "value"), "qv": ("query", "value"), "none": ()}


@dataclasses.dataclass(frozen=True)
class Rope:
    """How rotary positions turn rows and columns into angles.

    For each axis, pair j of d/4 pairs turns by f_j · t, where f_j = base^(-4j / d) and t is the
    place along the axis.

    Attributes:
        base: The number whose powers are the frequencies. Text models use 10000 for longer axes.
        offset: Added to the index of a row or column.
        reference: The rows and columns of a grid. Other grids of n places scale their angles to it:
            t = i · reference / n. None means t = i.
        centered: Whether t is 2π times the place of a patch's center in [-1, 1], as in DINOv3;
            `offset` and `reference` then have no effect.
        mixed: Whether each head learns how its angles depend on rows and columns (arXiv 2403.13298,
            Section 3.2, RoPE-Mixed); `base` then only sets the initial frequencies.
        rounded: Whether the periods 1 / f_j are rounded to bfloat16, as in Meta's files of DINOv3.

    Example:
        >>> vit_keras.layers.Rope(base=10000.0, reference=(16, 16)).centered  # as in EVA-02
        False
    """

    base: float = 100.0
    offset: float = 0.0
    reference: tuple[int, int] | None = None
    centered: bool = False
    mixed: bool = False
    rounded: bool = False

    def __post_init__(self):
        if self.reference is not None:
            object.__setattr__(self, "reference", tuple(self.reference))


@dataclasses.dataclass(frozen=True)
class BlockOptions:
    """How an encoder block differs from the paper's, whose blocks have the defaults.

    Attributes:
        qkv_bias: Which projections have a bias: "all", "qv" (no bias for the keys, as in BEiT and
            DINOv3) or "none".
        qk_norm: Whether each head normalizes its queries and keys (arXiv 2302.05442).
        attention_norm: Whether attention's result is normalized before its output projection, as in
            EVA-02-CLIP.
        mlp: "gelu", or "swiglu": Dense_1(SiLU(gate(x)) · Dense_0(x)) (arXiv 2002.05202).
        mlp_norm: Whether the hidden units of the MLP are normalized before its last layer, as in
            EVA-02.
        norm: "layer" for layer normalization, or "rms", which neither subtracts a mean nor adds an
            offset.
        layer_scale: The initial value of a factor for each channel of both residual branches
            (LayerScale, arXiv 2103.17239), or None for no factors.
        parallel: Whether attention and MLP read the same normalized tokens and their results are
            added, as in ViT-22B (arXiv 2302.05442).
        rope: A `Rope` or a dictionary of its fields, for rotary positions; None for none.
        window_size: The rows and columns of patches in a window, as in ViTDet (arXiv 2203.16527);
            an int applies to both. The patches of a window attend only to each other. Tokens before
            the patches attend to all tokens, and all tokens attend to them. None means attention
            between all tokens.

    Raises:
        ValueError: If a field has an unsupported value.

    Example:
        >>> options = vit_keras.layers.BlockOptions(layer_scale=1e-5, mlp="swiglu")
        >>> block = vit_keras.layers.EncoderBlock(num_heads=6, mlp_dim=1024, options=options)
    """

    qkv_bias: Literal["all", "qv", "none"] = "all"
    qk_norm: bool = False
    attention_norm: bool = False
    mlp: Literal["gelu", "swiglu"] = "gelu"
    mlp_norm: bool = False
    norm: Literal["layer", "rms"] = "layer"
    layer_scale: float | None = None
    parallel: bool = False
    rope: Rope | None = None
    window_size: int | tuple[int, int] | None = None

    def __post_init__(self):
        check_types(self)
        if isinstance(self.rope, dict):
            object.__setattr__(self, "rope", Rope(**self.rope))
        if self.window_size is not None:
            object.__setattr__(self, "window_size", pair(self.window_size, "window_size"))

    @classmethod
    def of(cls, value: Any) -> "BlockOptions":
        """Converts options, a dictionary of some of their fields, or None to `BlockOptions`."""
        if isinstance(value, BlockOptions):
            names = [field.name for field in dataclasses.fields(BlockOptions)]
            value = {name: getattr(value, name) for name in names}
        return BlockOptions(**(value or {}))


WITH_NO_OBJECT = ("tokens", "patches")  # `boxes` with one more class, for no object


@dataclasses.dataclass(frozen=True)
class ViTOptions(BlockOptions):
    """How a Vision Transformer differs from the paper's model, which has the defaults.

    `VisionTransformer` takes these fields, including those of `BlockOptions`, as keyword arguments.
    A family of models is a choice of their values; see `vit_keras.variants.families`.

    Attributes:
        class_token: Whether there is a class token even if the classifier does not read it, as with
            "gap" in MAE's fine-tuned models. Classifiers that read one always have it.
        distillation_token: Whether there is a distillation token, as in DeiT, even if the
            classifier does not read it. The classifier "distilled" always has it.
        num_registers: The number of registers between the class token and the patches (arXiv
            2309.16588).
        position_cover: The tokens to which positions are added: "all" tokens; the "class" token and
            the patches but not registers, as in DINOv2; or only "patches", as in DeiT III.
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
        boxes: The heads that find objects in place of a classifier: MLPs on the registers
            ("tokens", as in YOLOS) or on the patches ("patches"). A model with classes then gives a
            dictionary of "logits" and "boxes", as in `models.detector`. With "texts", as in
            OWL-ViT, classes are texts (`models.head_from_text`), and `num_classes` is the width of
            their embeddings; "texts_objectness" also predicts which patches contain objects, as in
            OWLv2. None keeps the classifier.
        global_blocks: The indices of the blocks that attend to all tokens despite `window_size`,
            such as (2, 5, 8, 11) of 12 blocks in ViTDet. Without windows, all blocks do.

    Raises:
        ValueError: If a field has an unsupported value, or `boxes` is "tokens" without registers.

    Example:
        >>> options = {"layer_scale": 1e-5, "num_registers": 4, "position_cover": "class"}
        >>> model = VisionTransformer(518, 14, 384, 12, 6, 1536, num_classes=None, **options)
        >>> model.count_params()
        22058112
    """

    class_token: bool = False
    distillation_token: bool = False
    num_registers: int = 0
    position_cover: Literal["all", "class", "patches"] = "all"
    crop_to_patches: bool = False
    pre_norm: bool = False
    final_norm: bool = True
    pool_all_tokens: bool = False
    map_heads: int | None = None
    map_mlp_dim: int | None = None
    head_use_bias: bool = True
    boxes: Literal["tokens", "patches", "texts", "texts_objectness"] | None = None
    global_blocks: tuple[int, ...] = ()

    def __post_init__(self):
        super().__post_init__()
        check_counts(num_registers=self.num_registers)
        if self.boxes == "tokens" and not self.num_registers:
            raise ValueError(
                "`num_registers` must be at least 1 if boxes='tokens', which reads the registers. "
                "Received: num_registers=0"
            )
        object.__setattr__(self, "global_blocks", tuple(sorted({*self.global_blocks})))

    @classmethod
    def among(cls, arguments: Mapping[str, Any]) -> "ViTOptions":
        """Returns the options among the arguments of `VisionTransformer`."""
        return cls(**{name: arguments[name] for name in OPTION_NAMES if name in arguments})

    def changed(self) -> dict:
        """Returns the fields that differ from the defaults, as values that JSON can hold."""
        return changed_options(dataclasses.asdict(self))


def changed_options(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns arguments of `VisionTransformer` without the options that equal the paper's."""
    same = lambda name, value: name in OPTION_NAMES and value == getattr(ViTOptions, name)
    return {name: value for name, value in arguments.items() if not same(name, value)}


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
        has_token = options.class_token or classifier in READ_CLASS_TOKEN
        has_teacher = options.distillation_token or classifier == "distilled"
        return Prefix(("cls",) * has_token + ("dist",) * has_teacher, options.num_registers)

    def positions(self, cover: str) -> int:
        """Returns how many of these tokens get added positions."""
        return {"all": self.count, "class": len(self.names), "patches": 0}[cover]
