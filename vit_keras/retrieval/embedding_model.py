"""Models that end in an embedding: what the head reads, one token, or all patches."""

import keras
from keras import ops

from vit_keras.evaluation import feature_model
from vit_keras.layers import TakeClassToken
from vit_keras.models import patch_grid
from vit_keras.models.description import copy_description
from vit_keras.models.image_model import ImageModel
from vit_keras.models.prefix import has_class_token


def embedding_model(
    model: keras.Model, layer: str | None = None, tokens: str = "pool"
) -> keras.Model:
    """Cuts a model off at an embedding of its images; the weights are shared.

    Args:
        model: A functional image model.
        layer: The layer whose output is used. By default, "pool" uses the input of the layer
            `head`, and the others use the last layer that puts out tokens or a feature map.
        tokens: What is taken from the output. "pool" takes a vector as it is, `(B, D)`. "class"
            takes the class token, `(B, D)`. "mean" takes the mean of the patches, `(B, D)`.
            "patches" takes all patches, `(B, rows, columns, D)`.

    Returns:
        A model that maps images `(B, H, W, C)` to embeddings.

    Raises:
        ValueError: If there is no such layer, or if its output has no such tokens. The message
            lists the layers that would do.

    Example:
        ```python
        features = retrieval.embedding_model(model, layer="encoderblock_11", tokens="mean")
        features.predict(images)  # (B, 768)
        ```
    """
    if tokens not in TOKENS:
        raise ValueError(
            f"`tokens` must be one of {', '.join(map(repr, TOKENS))}. Received: tokens={tokens!r}"
        )
    outputs = _outputs(model)
    if layer is not None and layer not in outputs:
        raise ValueError(
            f"`layer` must be a layer of the model. Received: layer={layer!r} for model "
            f"{model.name!r}, which has {', '.join(map(repr, outputs))}"
        )
    embedding = TOKENS[tokens](model, outputs, layer)
    made = ImageModel(model.input, embedding, name=f"{model.name}_embedding")
    copy_description(made, model)
    made.class_names = None  # of the logits
    return made


def _outputs(model):
    """The outputs of the model's layers by name: vectors, tokens and feature maps."""
    outputs = {layer.name: layer.output for layer in model.layers}
    return {
        name: output
        for name, output in outputs.items()
        if isinstance(output, keras.KerasTensor) and len(output.shape) in (2, 3, 4)
    }


def _pool(model, outputs, layer):
    if layer is None:
        return feature_model(model).output
    if len(outputs[layer].shape) != 2:
        raise ValueError(
            "`tokens` 'pool' needs a layer whose output is one vector an image. Received: "
            f"layer={layer!r}, whose output is {outputs[layer].shape}. Give tokens 'class', 'mean' "
            "or 'patches'"
        )
    return outputs[layer]


def _class(model, outputs, layer):
    x, (rows, columns) = _token_output(model, outputs, layer)
    only_patches = x.shape[1] == rows * columns
    if len(x.shape) != 3 or only_patches or not has_class_token(model):
        raise ValueError(
            f"`tokens` 'class' needs a model with a class token. Received: model {model.name!r}, "
            "which has none. Give tokens 'pool' or 'mean'"
        )
    return TakeClassToken(dtype=x.dtype, name="class_embedding")(x)


def _mean(model, outputs, layer):
    x, (rows, columns) = _token_output(model, outputs, layer)
    if len(x.shape) == 4:
        return ops.mean(x, axis=(1, 2))
    return ops.mean(x[:, -rows * columns :], axis=1)


def _patches(model, outputs, layer):
    x, (rows, columns) = _token_output(model, outputs, layer)
    if len(x.shape) == 4:
        return x
    return ops.reshape(x[:, -rows * columns :], (-1, rows, columns, x.shape[-1]))


# What `tokens` may be: functions of the model, its outputs by name, and the layer.
TOKENS = {"pool": _pool, "class": _class, "mean": _mean, "patches": _patches}


def _token_output(model, outputs, layer):
    """The output of the layer, tokens `(B, T + N, D)` or a map `(B, h, w, D)`, and its grid."""
    images = {name for name, output in outputs.items() if output is model.input}
    usable = {
        name: output
        for name, output in outputs.items()
        if len(output.shape) > 2 and name not in images
    }
    name = list(usable)[-1] if layer is None and usable else layer
    if name not in usable:
        raise ValueError(
            "`tokens` 'class', 'mean' and 'patches' need a layer that puts out tokens. Received: "
            f"layer={layer!r} for model {model.name!r}, where these do: "
            f"{', '.join(map(repr, usable)) or 'none'}"
        )
    output = usable[name]
    grid = patch_grid(model) if len(output.shape) == 3 else tuple(output.shape[1:3])
    if len(output.shape) == 3 and output.shape[1] < grid[0] * grid[1]:
        raise ValueError(
            f"Tokens need a layer with one for each of {grid[0]}x{grid[1]} patches. Received: "
            f"layer={name!r}, whose output is {output.shape}"
        )
    return output, grid
