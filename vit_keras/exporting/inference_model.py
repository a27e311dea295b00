"""A model rewritten for inference: the same numbers, faster; and with merged tokens if wanted."""

import functools

import keras
from keras import ops

from vit_keras.exporting import attention_output
from vit_keras.exporting.inference_layers import InferenceBlock, InferenceLayerNorm
from vit_keras.exporting.one_query_layers import InferenceLastBlock, InferenceMAPHead
from vit_keras.exporting.token_merging import WeightedMean, most, schedule
from vit_keras.keras_internals import count_uses, operation_of, sublayers
from vit_keras.layers import (
    EncoderBlock,
    MAPHead,
    StdConv,
    TakeClassToken,
    WithAttentionWeights,
)
from vit_keras.models.image_model import copy_description

SIZES = ("num_heads", "mlp_dim", "gelu", "layer_norm_epsilon")
BLOCKS = (InferenceBlock, InferenceLastBlock)


def for_inference(
    model: keras.Model,
    token_merging: int = 0,
    merging_schedule: str = "constant",
    with_attention: bool = False,
) -> keras.Model:
    """A copy of `model` for inference alone, in float32: images -> logits, on every backend.

    What changes costs no accuracy: see `inference_layers`; the last block of a model that reads the
    class token computes that token alone; standardised filters are computed once; a softmax at the
    end is left out. `token_merging` merges that many pairs of tokens a block, by its schedule
    ("constant" or "decreasing"), which does cost some. `with_attention` adds a second output
    `(B, h, w)`, the attention rollout over the patches. Raises ValueError where the model has no
    attention, no tokens to merge or too few.
    """
    if with_attention:
        attention_output.check(model, token_merging)
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    merged = _merged(blocks, token_merging, merging_schedule)
    last = _read_for_its_class_token(model)
    sizes = []  # [(B, N, 1)], of the tokens where the call has come to, once some are merged
    maps = []  # (B, N, N), of each block

    def call(layer, *args, **kwargs):
        if with_attention and isinstance(layer, (*BLOCKS, WithAttentionWeights)):
            x, weights = layer(*args)
            maps.append(weights if len(weights.shape) == 3 else ops.mean(weights, axis=1))
            return x
        if token_merging and isinstance(layer, (*BLOCKS, InferenceMAPHead, WeightedMean)):
            x, *merged = keras.tree.flatten(layer(args[0], *sizes))
            sizes[:] = merged or sizes
            return x
        return layer(*args, **kwargs)

    clone = functools.partial(_clone, merged=merged, last=last, with_attention=with_attention)
    rewritten = keras.models.clone_model(model, clone_function=clone, call_function=call)
    for new in rewritten.layers:
        _take_weights(new, model)
    rewritten = attention_output.beside(rewritten, maps) if with_attention else rewritten
    return copy_description(rewritten, model)


def _merged(blocks, token_merging, merging_schedule):
    """Pairs to merge in each block, by its name."""
    if token_merging and not blocks:
        raise ValueError("Token merging needs a model with EncoderBlock layers. Received: none")
    counts = schedule(token_merging, len(blocks), merging_schedule)
    tokens, merged = blocks[0].input.shape[1] if blocks else 0, {}
    for block, count in zip(blocks, counts):
        if not is_plain(block) and token_merging:
            raise ValueError(
                f"Token merging takes blocks whose attention knows no positions. Received: "
                f"{block.name!r}. Export this model without token merging"
            )
        if count > most(tokens, class_token=True):
            raise ValueError(
                f"Each block can merge at most half of its tokens. Received: r={count} for the "
                f"{tokens} tokens of {block.name!r}"
            )
        merged[block.name], tokens = count, tokens - count
    return merged


def is_plain(block: EncoderBlock) -> bool:
    """Whether the attention knows no positions, as the paper's; others are exported as they are."""
    return getattr(block, "position_embedding", None) is None


def _read_for_its_class_token(model):
    """The name of the block of which only the class token is read, or None."""
    for layer in model.layers:
        if isinstance(layer, TakeClassToken):
            norm = operation_of(layer.input)
            block = operation_of(norm.input)
            used_once = count_uses(norm) == count_uses(block) == 1
            if isinstance(block, EncoderBlock) and used_once:
                return block.name
    return None


def _clone(layer, merged, last, with_attention):
    config = {**layer.get_config(), "dtype": "float32"}
    named = {"name": layer.name, "dtype": "float32"}
    sizes = {name: config[name] for name in SIZES if name in config}
    if isinstance(layer, EncoderBlock) and is_plain(layer):
        named["with_weights"] = with_attention
        if layer.name == last:
            return InferenceLastBlock(**sizes, **named)
        merging = {"merged": merged[layer.name], "class_token": last is not None}
        return InferenceBlock(**sizes, **merging, **named)
    if isinstance(layer, EncoderBlock) and with_attention:
        return WithAttentionWeights(type(layer).from_config(config), **named)
    if isinstance(layer, MAPHead):
        return InferenceMAPHead(**sizes, **named)
    if isinstance(layer, keras.layers.LayerNormalization):
        return InferenceLayerNorm(layer.epsilon, **named)
    if isinstance(layer, keras.layers.GlobalAveragePooling1D) and any(merged.values()):
        return WeightedMean(**named)
    if config.get("activation") == "softmax":
        config["activation"] = "linear"
    return layer.__class__.from_config(config)


def _take_weights(new, model):
    old = model.get_layer(new.name)
    if hasattr(new, "take"):
        return new.take(old)
    new.set_weights(old.get_weights())
    for part in sublayers(new):
        if isinstance(part, StdConv):
            part.fold_standardization()
    return None
