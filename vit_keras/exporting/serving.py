"""Prepares a model for servers and phones: pixels -> probabilities and rollout, in float32.

`for_inference` rewrites a model to compute the same numbers faster, without training. It can also
merge tokens (ToMe, arXiv 2210.09461): each block averages its r most similar pairs. Merging uses
top-k and moves whole rows with static shapes, so it runs the same in Keras, LiteRT and ONNX
Runtime, and takes little time there.
"""

import functools

import keras
import numpy as np
from keras import ops

from vit_keras import layers, models
from vit_keras.layers.base import linear, refuse_quantized
from vit_keras.models import description
from vit_keras.models.surgery import refuse_windows, with_attention_weights
from vit_keras.support.checks import check_choice
from vit_keras.support.keras_internals import sublayers

ACTIVATIONS = {"softmax": ops.softmax, "sigmoid": ops.sigmoid}
BOX_OUTPUTS = {  # of a file that finds objects
    "boxes": "(N, T, 4): left, top, right and bottom as fractions of the picture's sides",
    "scores": "(N, T, K): the probability of each class",
}


def _most_likely_class(x):
    """The index of the first of the largest logits: `(B, H, W, K)` -> `(B, H, W)` int32.

    On TensorFlow, Keras' argmax distinguishes 0 from -0 by their bits, which TFLite cannot do.
    """
    last = float(x.shape[-1] - 1)  # ONNX subtracts no floats from an integer
    is_largest = ops.cast(ops.equal(x, ops.max(x, axis=-1, keepdims=True)), "float32")
    from_last = np.arange(last, -1, -1, dtype="float32")  # last, ..., 1, 0
    return ops.cast(last - ops.max(is_largest * from_last, axis=-1), "int32")


def _boxes_and_scores(x):
    """Splits a detector's joined outputs `(B, T, K + 1 + 4)` into a dictionary.

    "boxes" `(B, T, 4)` are left, top, right and bottom as fractions of the image's sides, in 0..1,
    and "scores" `(B, T, K)` the probability of each class.
    """
    center, half = x[..., -4:-2], x[..., -2:] / 2
    corners = ops.concatenate([center - half, center + half], axis=-1)
    scores = ops.softmax(x[..., :-4], axis=-1)[..., :-1]
    return {"boxes": ops.clip(corners, 0.0, 1.0), "scores": scores}


def clone_in_float32(model: keras.Model, layer: keras.layers.Layer) -> keras.layers.Layer:
    """Copies a layer of `model` in float32, without the softmax that the model may end in."""
    config = {**layer.get_config(), "dtype": "float32"}
    if layer is model.layers[-1] and models.ends_in_softmax(model):
        config["activation"] = "linear"
    return layer.__class__.from_config(config)


def in_float32(model: keras.Model) -> keras.Model:
    """Copies `model` with every layer in float32, since runtimes have no mixed precision.

    The copy returns logits.
    """
    clone = functools.partial(clone_in_float32, model)
    copy = keras.models.clone_model(model, clone_function=clone)
    copy.set_weights(model.get_weights())
    return description.copy_description(copy, model)


def serving_model(model: keras.Model, output: str = "softmax", raw: bool = False) -> keras.Model:
    """Returns `model` with its preprocessing inside: `(B, H, W, C)` pixels -> `(B, K)`.

    8-bit pixels are uint8; pixels of other depths are float32 up to `Preprocessing.levels`.

    Args:
        model: A model in float32 that returns logits. A second output is kept.
        output: As in `targets.Plan`. "boxes" is a dictionary of boxes and scores. "mask" is the
            most likely class of each pixel, `(B, H, W)` int32. "values" are the model's unchanged
            outputs, and "features" the input of the head.
        raw: Whether images are float32 and already preprocessed.
    """
    dtype = "float32" if raw else models.preprocessing_of(model).input_type
    x = images = keras.Input(model.input_shape[1:], dtype=dtype, name="images")
    if not raw:
        scale, offset = models.preprocessing_of(model).rescaling()
        x = keras.layers.Rescaling(scale, offset, dtype="float32", name="preprocessing")(x)
    x, *others = keras.tree.flatten(_with_output(model, output)(x))
    if output == "mask":
        x = _most_likely_class(x)
    if output == "boxes":
        return keras.Model(images, _boxes_and_scores(x), name=model.name)
    if output in ACTIVATIONS:
        x = ACTIVATIONS[output](x)
    return keras.Model(images, [x, *others] if others else x, name=model.name)


def with_tokens(model: keras.Model) -> keras.Model:
    """Returns a model with the features and the normalized tokens `(B, N, D)` of `model`.

    For a model without a final normalization, the features are the only token.
    """
    features = _with_output(model, "features").output
    norm = next((layer for layer in model.layers if layer.name == "encoder_norm"), None)
    tokens = norm.output if norm else keras.layers.Reshape((1, features.shape[-1]))(features)
    return description.with_outputs(model, [features, tokens])


def transformers_model(model: keras.Model, output: str, raw: bool = True) -> keras.Model:
    """Returns `model` with the names and the order of axes of transformers' ONNX files.

    Args:
        model: A model in float32; for "features", one of `with_tokens`.
        output: As in `targets.Plan`.
        raw: Ignored. The input "pixel_values" `(B, C, H, W)` is always prepared.

    Returns:
        A model that returns a dictionary: "logits" `(B, K)`, or for masks `(B, K, H, W)`; for
        "boxes", "logits" `(B, T, K + 1)`, whose last class means no object, and "pred_boxes"
        `(B, T, 4)`, which are center x, center y, width and height in 0..1; for "features",
        "last_hidden_state" `(B, N, D)` and "pooler_output" `(B, D)`.
    """
    height, width, channels = model.input_shape[1:]
    pixels = keras.Input((channels, height, width), dtype="float32", name="pixel_values")
    x = keras.layers.Permute((2, 3, 1), name="channels_last")(pixels)
    x, *tokens = keras.tree.flatten(_with_output(model, output)(x))
    if tokens:
        outputs = {"last_hidden_state": tokens[0], "pooler_output": x}
    elif output == "boxes":
        outputs = {"logits": x[..., :-4], "pred_boxes": x[..., -4:]}
    else:
        outputs = {"logits": keras.layers.Permute((3, 1, 2))(x) if len(x.shape) == 4 else x}
    return keras.Model(pixels, outputs, name=model.name)


def _with_output(model, output):
    """The model, up to the input of its head for "features"."""
    if output != "features":
        return model
    answer, *others = model.outputs
    heads = [layer for layer in model.layers if layer.name == "head"]
    features = heads[0].input if heads else answer
    return keras.Model(model.input, [features, *others] if others else features, name=model.name)


def check_attention(model: keras.Model, token_merging: int = 0) -> None:
    """Checks that `model` can output attention over its patches.

    Raises:
        ValueError: If the model has no grid of patches, if blocks attend within windows, or if
            token merging would lose patches.
    """
    if token_merging:
        raise ValueError(
            "Attention over the patches needs all patches: export either with token merging or "
            f"with attention. Received: token_merging={token_merging}, attention=True"
        )
    refuse_windows(model)
    models.patch_grid(model)


def with_rollout(model: keras.Model) -> keras.Model:
    """Returns a model with the output of `model` and its attention rollout `(B, h, w)`.

    The rollout (arXiv 2005.00928) leads from the classifier to the image: it multiplies the means
    of attention and identity, as `inspection.attention_rollout` does, and follows the class token's
    row, or the mean of the patches' rows in a model without a class token.

    Args:
        model: A model with one output.
    """
    whole, _ = with_attention_weights(model)
    maps = [ops.mean(weights, axis=1) for weights in whole.outputs[1:]]  # (B, N, N) of each block
    grid, tokens = models.patch_grid(model), maps[-1].shape[-1]
    patches = grid[0] * grid[1]
    row = np.zeros((1, 1, tokens), "float32")  # 1 where the classifier reads a token
    row[..., slice(1) if description.has_class_token(model) else slice(-patches, None)] = 1
    row /= row.sum()
    for attention in reversed(maps):
        row = 0.5 * (ops.matmul(row, attention) + row)  # (B, 1, N)
    rollout = ops.reshape(row[:, 0, tokens - patches :], (-1, *grid))
    made = models.ImageModel(whole.input, [whole.outputs[0], rollout], name=model.name)
    return description.copy_description(made, model)


SCHEDULES = ("constant", "decreasing")


def merge(x, size, metric, merged: int, prefix: int):
    """Merges the `merged` most similar pairs of tokens by bipartite soft matching.

    Each token at an even position is compared with all tokens at odd positions. A pair becomes its
    mean, weighted by the sizes. The tokens before the patches stay first, in order.

    Args:
        x: Tokens `(B, N, D)`.
        size: The number of patches in each token, `(B, N, 1)`.
        metric: Vectors `(B, N, d)`; their cosines are the similarities of tokens.
        merged: The number of pairs.
        prefix: The number of tokens before the patches, such as 1 for a class token; they are in no
            pair.

    Returns:
        Tokens `(B, N - merged, D)` and their sizes `(B, N - merged, 1)`.
    """
    if merged == 0:
        return x, size
    if prefix > 1:  # registers too: only the patches are matched
        kept = x[:, :prefix], size[:, :prefix]
        rest = merge(x[:, prefix:], size[:, prefix:], metric[:, prefix:], merged, 0)
        x, size = (ops.concatenate(both, axis=1) for both in zip(kept, rest))
        return x, size
    scores = _scores(metric, prefix)
    # Not -x: three compilers for NPUs have no NEG.
    order = ops.cast(ops.top_k(-1 * ops.max(scores, axis=-1), scores.shape[1])[1], "int32")
    staying, going = order[:, :-merged], order[:, -merged:]  # even tokens, least similar first
    _, partner = ops.top_k(_take_rows(scores, going), 1)  # TFLite has no argmax
    partner = ops.cast(partner[..., 0], "int32")  # (B, merged)
    means, sizes = _means(x, size, 2 * going, 2 * partner + 1)
    odds = ops.arange(scores.shape[2], dtype="int32")
    is_partner = ops.equal(ops.expand_dims(partner, axis=2), odds)  # (B, merged, odds)
    rows = x.shape[1] + ops.arange(merged, dtype="float32")  # of the means, after the tokens
    rows = ops.cast(is_partner, "float32") * ops.expand_dims(rows, axis=1)
    rows = ops.cast(ops.max(rows, axis=1), "int32")  # (B, odds), 0 for a token without a pair
    odd = ops.maximum(2 * odds + 1, rows)
    remaining = ops.concatenate([2 * staying, odd], axis=1)  # (B, N - merged)
    x, size = ops.concatenate([x, means], axis=1), ops.concatenate([size, sizes], axis=1)
    return _take_rows(x, remaining), _take_rows(size, remaining)


def size_bias(size):
    """Returns the bias of attention logits, `(B, 1, N)`: a token of n patches counts n times."""
    return ops.log(ops.reshape(size, (-1, 1, size.shape[1])))


def _means(x, size, even, odd):
    """Returns means `(B, merged, D)` and sizes of pairs; pairs with the same odd token share one.

    `even` and `odd` are the pairs' tokens, `(B, merged)`.
    """
    together = ops.equal(ops.expand_dims(odd, axis=2), ops.expand_dims(odd, axis=1))
    together = ops.cast(together, "float32")  # (B, merged, merged)
    added, first = _take_rows(size, even), _take_rows(x, odd)
    total = together * ops.transpose(added, (0, 2, 1))
    total = _take_rows(size, odd) + ops.sum(total, axis=2, keepdims=True)
    return first + ops.matmul(together, added * (_take_rows(x, even) - first)) / total, total


def _scores(metric, prefix):
    """Returns d times the cosines `(B, evens, odds)` of tokens, lowered for the class token.

    The norm is a mean because TFLite's fast kernels have no operator for the sum.
    """
    tokens, width = metric.shape[1:]
    norm = ops.rsqrt(ops.mean(metric * metric, axis=-1, keepdims=True) + 1e-12)
    # Not x[:, ::2]: TFLite copies value by value with strides.
    x = metric * norm
    pairs = ops.reshape(x[:, : tokens - tokens % 2], (-1, tokens // 2, 2 * width))
    even, odd = pairs[..., :width], pairs[..., width:]
    even = ops.concatenate([even, x[:, -1:]], axis=1) if tokens % 2 else even
    scores = ops.matmul(even, ops.transpose(odd, (0, 2, 1)))
    if prefix:  # a class token; d times a cosine is at least -d
        first = ops.reshape(ops.one_hot(0, even.shape[1]), (1, -1, 1))
        scores = scores - 3.0 * width * first
    return scores


def _take_rows(x, index):
    """Takes the rows `index[b, i]` of each `x[b]`: `(B, N, D)`, `(B, K)` -> `(B, K, D)`."""
    tokens, width = x.shape[1:]
    first = ops.expand_dims(ops.arange(ops.shape(x)[0], dtype="int32") * tokens, axis=1)
    flat = ops.reshape(index + first, (-1,))
    taken = ops.take(ops.reshape(x, (-1, width)), flat, axis=0)
    return ops.reshape(taken, (-1, index.shape[1], width))


@keras.saving.register_keras_serializable(package="vit_keras")
class MergingBlock(layers.EncoderBlock):
    """An `EncoderBlock` that merges tokens after its attention, for inference.

    It maps tokens `(B, N, D)` and their sizes `(B, N, 1)`, or None for patches, to
    `(B, N - merged, D)` and the sizes of the remaining tokens.

    Args:
        merged: The number of pairs to merge.
        prefix: The number of tokens before the patches, which are never merged.
        **kwargs: Arguments of `EncoderBlock`.
    """

    def __init__(self, *, merged: int = 0, prefix: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.merged, self.prefix = merged, prefix

    def build(self, inputs_shape, size_shape=None):
        super().build(inputs_shape)

    def call(self, inputs, size=None, **_):  # type: ignore[override]  # no flags
        normal = self.norm_0(inputs)
        mask = None if size is None else size_bias(size)
        y = self.attention(normal, attention_mask=mask)
        y = y + self.mlp(normal) if self.norm_2 is None else y
        x = inputs + self._scaled(y, self.layer_scale_0)
        size = ops.ones_like(x[..., :1]) if size is None else size
        x, size, key = (ops.cast(each, "float32") for each in (x, size, self._mean_key(normal)))
        both = merge(x, size, key, self.merged, self.prefix)
        x, size = (ops.cast(each, self.compute_dtype) for each in both)
        if self.norm_2 is not None:
            x = x + self._scaled(self.mlp(self.norm_2(x)), self.layer_scale_1)
        return x, size

    def _mean_key(self, normal):
        """The mean of the heads' keys, `(B, N, d)`; without norms, from the mean of the kernels."""
        key, norm = self.attention.key, self.attention.key_norm
        if norm is not None:
            return ops.mean(norm(key(normal)), axis=2)
        bias = None if key.bias is None else ops.mean(key.bias, axis=0)
        return linear(normal, ops.mean(key.kernel, axis=1), bias)

    def compute_output_spec(self, inputs, size=None, **_):  # type: ignore[override]  # no flags
        batch, tokens, width = inputs.shape
        shapes = (batch, tokens - self.merged, width), (batch, tokens - self.merged, 1)
        return tuple(keras.KerasTensor(shape, self.compute_dtype) for shape in shapes)

    def get_config(self):
        return {**super().get_config(), "merged": self.merged, "prefix": self.prefix}


def for_inference(
    model: keras.Model,
    token_merging: int = 0,
    merging_schedule: str = "constant",
    with_attention: bool = False,
) -> keras.Model:
    """Returns a copy of `model` for inference in float32: images -> logits, on every backend.

    The copy is as accurate as the model unless tokens are merged. Standardized filters are computed
    once, and a final softmax is left out.

    Args:
        model: A functional Keras model.
        token_merging: Pairs of tokens that each block merges on average, which costs accuracy.
        merging_schedule: "constant", or "decreasing" linearly from twice the average to 0 (Section
            3 of the paper), which merges the same number of tokens, but earlier, so it is faster
            and loses more accuracy.
        with_attention: Whether the copy has a second output `(B, h, w)`, the attention rollout over
            the patches.

    Raises:
        ValueError: If the model is quantized, has no attention to return, has too few tokens to
            merge, or, with `token_merging` or `with_attention`, attends within windows.

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
    sizes: list = []  # [(B, N, 1)]: the sizes of the current tokens, once some are merged

    def call(layer, *args, **kwargs):
        if isinstance(layer, MergingBlock):
            x, size = layer(args[0], *sizes)
            sizes[:] = [size]
            return x
        if sizes and isinstance(layer, layers.MAPHead):
            return layer(args[0], attention_mask=size_bias(sizes[0]))
        if sizes and isinstance(layer, keras.layers.GlobalAveragePooling1D):
            return ops.sum(args[0] * sizes[0], axis=1) / ops.sum(sizes[0], axis=1)
        if sizes and isinstance(layer, layers.DropClassToken):
            sizes[:] = [sizes[0][:, layer.count :]]
        return layer(*args, **kwargs)

    def clone(layer):
        new = clone_in_float32(model, layer)
        if token_merging and isinstance(layer, layers.EncoderBlock):
            pairs, prefix = merged[layer.name], description.count_prefix(model)
            return MergingBlock(merged=pairs, prefix=prefix, **new.get_config())
        return new

    rewritten = keras.models.clone_model(model, clone_function=clone, call_function=call)
    for new in rewritten.layers:
        new.set_weights(model.get_layer(new.name).get_weights())
        for layer in sublayers(new):
            if isinstance(layer, layers.StdConv):
                layer.fold_standardization()
    description.copy_description(rewritten, model)
    return with_rollout(rewritten) if with_attention else rewritten


def _pairs_to_merge(model, token_merging, merging_schedule):
    """Returns the number of pairs of tokens that each block merges, by the block's name."""
    blocks = [layer for layer in model.layers if isinstance(layer, layers.EncoderBlock)]
    places = {(x.position_embedding, x.options.rope, x.options.window_size) for x in blocks}
    if token_merging and places != {(None, None, None)}:
        raise ValueError(
            "Token merging needs a model with EncoderBlock layers whose attention uses neither "
            f"positions nor windows. Received: model {model.name!r}. Export it without merging"
        )
    check_choice(merging_schedule, SCHEDULES, "merging_schedule")
    counts = [token_merging] * len(blocks)
    if merging_schedule == "decreasing" and len(blocks) > 1:
        step = 2 * token_merging / (len(blocks) - 1)
        counts = [int(2 * token_merging - step * i) for i in range(len(blocks))]
    tokens, prefix = blocks[0].input.shape[1] if blocks else 0, description.count_prefix(model)
    merged: dict[str, int] = {}
    for block, count in zip(blocks, counts):
        if not 0 <= count <= (tokens - max(prefix, 1)) // 2:
            raise ValueError(
                f"Each block can merge at most half of its tokens. Received: r={count} for the "
                f"{tokens} tokens of block {block.name!r}"
            )
        merged[block.name], tokens = count, tokens - count
    return merged
