"""What the heads of a Vision Transformer read: one vector of each image, or two (Eq. 4)."""

from collections.abc import Callable

import keras

from vit_keras.layers import DropClassToken, MAPHead, TakeClassToken
from vit_keras.models.options import ViTOptions
from vit_keras.models.prefix import Prefix


def read_vectors(
    x, classifier: str, prefix: Prefix, norm: Callable, head: dict, options: ViTOptions, layer
) -> list:
    """Normalizes the tokens and reads vectors for the heads.

    Args:
        x: The tokens `(B, T + N, D)` after the last block.
        classifier: As in `VisionTransformer`.
        prefix: The T tokens before the patches.
        norm: Takes a name and returns the normalization called so.
        head: The arguments of `MAPHead`.
        options: The model's options.
        layer: Takes a name and returns the arguments of the layer called so.

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
