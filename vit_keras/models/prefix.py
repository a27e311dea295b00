"""The tokens before the patches, in order: class token, distillation token, registers."""

import dataclasses
from collections.abc import Callable

import keras

from vit_keras.layers import ClassToken, DropClassToken, MAPHead, RegisterTokens, TakeClassToken
from vit_keras.models.options import ViTOptions

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


def add_prefix(x, prefix: Prefix, cover: str, positions, layer):
    """Adds the prefix and positions to patches (Eq. 1).

    Args:
        x: The patches `(B, N, D)`.
        prefix: The tokens to put before them.
        cover: `ViTOptions.position_cover`.
        positions: The layer that adds positions, or None.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        The tokens `(B, prefix.count + N, D)`.
    """
    add = (lambda x: x) if positions is None else positions
    registers = (lambda x: x) if not prefix.num_registers else _registers(prefix, cover, layer)
    if cover == "patches":
        return _single_tokens(registers(add(x)), prefix, layer)
    if cover == "class":
        return registers(add(_single_tokens(x, prefix, layer)))
    return add(_single_tokens(registers(x), prefix, layer))


def _registers(prefix, cover, layer):
    after = len(prefix.names) if cover == "class" else 0
    return RegisterTokens(prefix.num_registers, after, **layer("registers"))


def _single_tokens(x, prefix, layer):
    for name in reversed(prefix.names):
        x = ClassToken(dtype=layer(name)["dtype"], name=name)(x)
    return x


def has_class_token(model: keras.Model) -> bool:
    """Tells whether the first token of a built model is a class token."""
    return any(layer.name == "cls" for layer in model.layers)


def count_registers(model: keras.Model) -> int:
    """Returns the number of registers of a built model."""
    return sum(x.num_registers for x in model.layers if isinstance(x, RegisterTokens))


def count_prefix(model: keras.Model) -> int:
    """Returns the number of tokens before the patches of a built model."""
    names = [layer.name for layer in model.layers]
    return sum(name in ("cls", "dist") for name in names) + count_registers(model)


def read_vectors(
    x, classifier: str, prefix: Prefix, norm: Callable, head: dict, options: ViTOptions, layer
) -> list:
    """Normalizes the tokens and reads vectors for the heads.

    Args:
        x: The tokens `(B, T + N, D)` after the last block.
        classifier: As in `VisionTransformer`.
        prefix: The T tokens before the patches.
        norm: A function that takes a name and returns the normalization with this name.
        head: The arguments of `MAPHead`.
        options: The model's options.
        layer: A function that takes a name and returns the arguments of the layer with this name.

    Returns:
        `[(B, D)]`, or two of them for "distilled"; `[(B, 2D)]` for "token_gap".
    """
    dtype = layer("encoder_norm")["dtype"]
    norm = norm("encoder_norm")
    if classifier == "gap_norm":
        return [norm(_mean(_patches(x, prefix, dtype), dtype))]
    x = norm(x)
    if classifier == "gap":
        return [_mean(_patches(x, prefix, dtype), dtype)]
    if classifier == "map":
        sizes = {
            "num_heads": options.map_heads or head["num_heads"],
            "mlp_dim": options.map_mlp_dim or head["mlp_dim"],
        }
        x = x if options.pool_all_tokens else _patches(x, prefix, dtype)
        return [MAPHead(**{**head, **sizes}, **layer("MAPHead_0"))(x)]
    read = {"distilled": ("token", "dist_token")}.get(classifier, ("token",))
    vectors = [TakeClassToken(i, dtype=dtype, name=name)(x) for i, name in enumerate(read)]
    if classifier == "token_gap":
        vectors.append(_mean(_patches(x, prefix, dtype), dtype))
        return [keras.layers.Concatenate(dtype=dtype, name="token_gap")(vectors)]
    return vectors


def _patches(x, prefix, dtype):
    if not prefix.count:
        return x
    return DropClassToken(prefix.count, dtype=dtype, name="patch_tokens")(x)


def _mean(x, dtype):
    return keras.layers.GlobalAveragePooling1D(dtype=dtype, name="gap")(x)
