"""Prepares a model for servers and phones: pixels -> probabilities and rollout, in float32."""

import functools

import keras
import numpy as np
from keras import ops

from vit_keras import models
from vit_keras.models.description import copy_description, has_class_token, with_outputs
from vit_keras.models.surgery import refuse_windows, with_attention_weights

ACTIVATIONS = {"softmax": ops.softmax, "sigmoid": ops.sigmoid}
BOX_OUTPUTS = {  # of a file that finds objects
    "boxes": "(N, T, 4): left, top, right and bottom as fractions of the picture's sides",
    "scores": "(N, T, K): the probability of each class",
}
# The shape and description of each output, given the name of one output.
OUTPUTS = {
    "softmax": ("`(N, K)`", "the probability of each {}"),
    "sigmoid": ("`(N, K)`", "the probability of each {}"),
    "values": ("`(N, K)`", "each {} in the unit of the training table"),
    "logits": ("`(N, K)`", "the logit of each {}"),
    "mask": ("`(N, H, W)`", "the number of the most likely {}"),
    "features": ("`(N, D)`", "the features of the image"),
    "tokens": ("`(N, T, D)`", "the features of each token"),
}
COUNTED = {"labels": "A label", "boxes": "An object"}


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
    return copy_description(copy, model)


def serving_model(model: keras.Model, output: str = "softmax", raw: bool = False) -> keras.Model:
    """Returns `model` with its preprocessing inside: `(B, H, W, C)` pixels -> `(B, K)`.

    8-bit pixels are uint8; pixels of other depths are float32 up to `Preprocessing.levels`.

    Args:
        model: A model in float32 that returns logits. A second output is kept.
        output: A name in `OUTPUTS`, or "boxes", a dictionary of boxes and scores. "mask"
            is the most likely class of each pixel, `(B, H, W)` int32. "values" are the model's
            unchanged outputs, and "features" the input of the head.
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


def output_text(model: keras.Model, output: str) -> str:
    """Describes what an exported model returns, given the name of its graph's output."""
    task = models.task_of(model)
    if output == "boxes":
        outputs = "; ".join(f"`{name}` {text}" for name, text in BOX_OUTPUTS.items())
        return f"The outputs are {outputs}, in the order of `labels.txt`.{thresholds_text(model)}"
    is_of_tokens = output == "features" and len(model.output_shape) == 3
    shape, text = OUTPUTS["tokens" if is_of_tokens else output]
    if task.kind == "masks" and output != "features":
        shape, text = shape.replace("(N, K", "(N, H, W, K"), f"{text} at each pixel"
    sentence = f"The output {shape} is {text.format(task.row.one)}"
    if output == "features":
        return f"{sentence}."
    sentence += ", in the order of `labels.txt`."
    if output == "logits":
        sentence += f" The {task.row.output} of the logits gives the probabilities."
    return sentence + thresholds_text(model)


def thresholds_text(model: keras.Model) -> str:
    """Lists the probabilities from which labels or objects count as present; otherwise empty."""
    task, names = models.task_of(model), enumerate(models.class_names_of(model))
    if task.kind not in COUNTED:
        return ""
    least = ", ".join(f"{name} {task.threshold(k):.4g}" for k, name in names)
    return f" {COUNTED[task.kind]} counts as present at or above this probability: {least}."


def with_tokens(model: keras.Model) -> keras.Model:
    """Returns a model with the features and the normalized tokens `(B, N, D)` of `model`.

    For a model without a final normalization, the features are the only token.
    """
    features = _with_output(model, "features").output
    norm = next((layer for layer in model.layers if layer.name == "encoder_norm"), None)
    tokens = norm.output if norm else keras.layers.Reshape((1, features.shape[-1]))(features)
    return with_outputs(model, [features, tokens])


def transformers_model(model: keras.Model, output: str, raw: bool = True) -> keras.Model:
    """Returns `model` with the names and the order of axes of transformers' ONNX files.

    Args:
        model: A model in float32; for "features", one of `with_tokens`.
        output: A name in `OUTPUTS`.
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
    refuse_windows(model, "Outputs of attention")
    models.patch_grid(model)


def with_rollout(model: keras.Model) -> keras.Model:
    """Returns a model with the output of `model` and its attention rollout `(B, h, w)`.

    The rollout (arXiv 2005.00928) leads from the classifier to the image: it multiplies the means
    of attention and identity, as `inspection.attention_rollout` does, and follows the class token's
    row, or the mean of the patches' rows in a model without a class token.

    Args:
        model: A model with one output.
    """
    whole, _ = with_attention_weights(model, "Outputs of attention")
    maps = [ops.mean(weights, axis=1) for weights in whole.outputs[1:]]  # (B, N, N) of each block
    grid, tokens = models.patch_grid(model), maps[-1].shape[-1]
    patches = grid[0] * grid[1]
    row = np.zeros((1, 1, tokens), "float32")  # 1 where the classifier reads a token
    row[..., slice(1) if has_class_token(model) else slice(-patches, None)] = 1
    row /= row.sum()
    for attention in reversed(maps):
        row = 0.5 * (ops.matmul(row, attention) + row)  # (B, 1, N)
    rollout = ops.reshape(row[:, 0, tokens - patches :], (-1, *grid))
    made = models.ImageModel(whole.input, [whole.outputs[0], rollout], name=model.name)
    return copy_description(made, model)
