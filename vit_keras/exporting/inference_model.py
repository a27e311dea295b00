"""`for_inference` rewrites a model to compute the same numbers faster, without training."""

import functools

import keras
from keras import ops

from vit_keras import models
from vit_keras.exporting.serving import check_attention, clone_in_float32, with_rollout
from vit_keras.exporting.token_merging import MergingBlock, schedule, size_bias
from vit_keras.layers import (
    DropClassToken,
    EncoderBlock,
    MAPHead,
    StdConv,
    TakeClassToken,
    WithAttentionWeights,
)
from vit_keras.layers.base import refuse_quantized
from vit_keras.models.description import copy_description, count_prefix
from vit_keras.support.keras_internals import count_uses, operation_of, sublayers


@keras.saving.register_keras_serializable(package="vit_keras")
class ClassTokenBlock(EncoderBlock):
    """An `EncoderBlock` that computes only the class token: `(B, N, D)` -> `(B, 1, D)`."""

    def call(self, inputs, attention_mask=None, **_):  # type: ignore[override]  # no flags
        normal, x = self.norm_0(inputs), inputs[:, :1]
        y = self.attention(normal[:, :1], normal, attention_mask=attention_mask)
        if self.norm_2 is None:  # in parallel
            return x + self._scaled(y + self.mlp(normal[:, :1]), self.layer_scale_0)
        x = x + self._scaled(y, self.layer_scale_0)
        return x + self._scaled(self.mlp(self.norm_2(x)), self.layer_scale_1)

    def compute_output_spec(self, inputs, **_):  # type: ignore[override]  # no flags
        return keras.KerasTensor((inputs.shape[0], 1, inputs.shape[-1]), self.compute_dtype)


def for_inference(
    model: keras.Model,
    token_merging: int = 0,
    merging_schedule: str = "constant",
    with_attention: bool = False,
) -> keras.Model:
    """Returns a copy of `model` for inference in float32: images -> logits, on every backend.

    The copy is as accurate as the model unless tokens are merged. If only the class token is read,
    the last block computes only that token. Standardized filters are computed once, and a final
    softmax is left out.

    Args:
        model: A functional Keras model.
        token_merging: Pairs of tokens that each block merges on average, which costs accuracy.
        merging_schedule: "constant" or "decreasing"; see `token_merging.schedule`.
        with_attention: Whether the copy has a second output `(B, h, w)`, the attention rollout over
            the patches.

    Raises:
        ValueError: If the model is quantized, has no attention to return, has too few tokens to
            merge, or attends within windows with `token_merging` or `with_attention`.

    Example:
        ```python
        faster = for_inference(model)
        logits = faster.predict(images)
        ```
    """
    refuse_quantized(model, "A copy for inference")
    model = models.merge_lora(model) if models.lora_layers(model) else model
    if with_attention:
        check_attention(model, token_merging)
    merged = _pairs_to_merge(model, token_merging, merging_schedule)
    last = None if with_attention else _block_read_for_its_class_token(model)
    sizes: list = []  # [(B, N, 1)]: the sizes of the current tokens, once some are merged
    maps = []  # one (B, N, N) for each block

    def call(layer, *args, **kwargs):
        if isinstance(layer, WithAttentionWeights):
            x, weights = layer(*args)
            maps.append(ops.mean(weights, axis=1))
            return x
        if isinstance(layer, MergingBlock):
            x, size = layer(args[0], *sizes)
            sizes[:] = [size]
            return x
        if sizes and isinstance(layer, (ClassTokenBlock, MAPHead)):
            return layer(args[0], attention_mask=size_bias(sizes[0]))
        if sizes and isinstance(layer, keras.layers.GlobalAveragePooling1D):
            return ops.sum(args[0] * sizes[0], axis=1) / ops.sum(sizes[0], axis=1)
        if sizes and isinstance(layer, DropClassToken):
            sizes[:] = [sizes[0][:, layer.count :]]
        return layer(*args, **kwargs)

    options = {"merged": merged, "prefix": count_prefix(model), "last": last}
    clone = functools.partial(_clone, model, with_attention=with_attention, **options)
    rewritten = keras.models.clone_model(model, clone_function=clone, call_function=call)
    for new in rewritten.layers:
        new.set_weights(model.get_layer(new.name).get_weights())
        for layer in sublayers(new):
            if isinstance(layer, StdConv):
                layer.fold_standardization()
    copy_description(rewritten, model)
    return with_rollout(rewritten, maps) if with_attention else rewritten


def _pairs_to_merge(model, token_merging, merging_schedule):
    """Returns the number of pairs of tokens that each block merges, by the block's name."""
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    if token_merging and not (blocks and all(map(_attends_plainly, blocks))):
        raise ValueError(
            "Token merging needs a model with EncoderBlock layers whose attention uses neither "
            f"positions nor windows. Received: model {model.name!r}. Export it without merging"
        )
    counts = schedule(token_merging, len(blocks), merging_schedule)
    tokens, merged, prefix = blocks[0].input.shape[1] if blocks else 0, {}, count_prefix(model)
    for block, count in zip(blocks, counts):
        if not 0 <= count <= (tokens - max(prefix, 1)) // 2:
            raise ValueError(
                f"Each block can merge at most half of its tokens. Received: r={count} for the "
                f"{tokens} tokens of block {block.name!r}"
            )
        merged[block.name], tokens = count, tokens - count
    return merged


def _attends_plainly(block):
    """Whether each token of a block attends to all tokens, regardless of positions."""
    places = block.position_embedding, block.options.rope, block.options.window_size
    return places == (None, None, None)


def _block_read_for_its_class_token(model):
    """Returns the name of the block from which only the class token is read, or None."""
    for layer in model.layers if len(model.outputs) == 1 else ():
        if isinstance(layer, TakeClassToken) and layer.index == 0:
            norm = operation_of(layer.input)
            block = operation_of(norm.input)
            used_once = count_uses(norm) == count_uses(block) == 1
            if isinstance(block, EncoderBlock) and used_once and _attends_plainly(block):
                return block.name
    return None


def _clone(model, layer, merged, prefix, last, with_attention):
    new = clone_in_float32(model, layer)
    if not isinstance(layer, EncoderBlock):
        return new
    if with_attention:
        return WithAttentionWeights(new, name=layer.name, dtype="float32")
    if layer.name == last:
        return ClassTokenBlock.from_config(new.get_config())
    if any(merged.values()):
        return MergingBlock(merged=merged[layer.name], prefix=prefix, **new.get_config())
    return new
