"""Models that train an encoder without labels: Appendix B.1.2, MAE, and DINO."""

from typing import Any

import keras

from vit_keras.layers import (
    AddSinCosPositions,
    CorruptTokens,
    DropClassToken,
    EncoderBlock,
    PatchEmbedding,
    RestoreTokens,
    TakeVisible,
)
from vit_keras.layers.base import LayerArguments
from vit_keras.layers.common import layer_norm
from vit_keras.layers.positions import ADDED_LAYERS
from vit_keras.models.common import dense, variable_dtype
from vit_keras.models.self_distillation import GLOBAL_VIEWS, SelfDistillation
from vit_keras.models.surgery import patch_grid, refuse_fixed_grids
from vit_keras.support.keras_internals import first_input_of, operation_of

MLP_RATIO = 4  # mlp_dim / hidden_size in the blocks of MAE's decoder


def pretext_model(
    encoder: keras.Model,
    config,
    seed: int | None = None,
    total_steps: int = 10_000,
    accumulation_steps: int = 1,
) -> keras.Model:
    """Builds the model that trains a `VisionTransformer` on a pretext task, without labels.

    The model takes two inputs: images `(B, H, W, C)`, and `source` `(B, N)` int32. For each of the
    N patch positions, `source` holds the index of the patch whose embedding goes there, or N for
    the learned mask. The model predicts every patch: the logits of K colors for each of its P
    regions, `(B, N·P, K)`, or the pixels, `(B, N, p²·C)`.

    The model shares the encoder's layers up to `encoder_norm`, so training it trains the encoder.
    With "masked_patch", all positions pass through the encoder. With "mae", only the visible ones
    do, and a small decoder restores the others.

    With "dino", the inputs are global views `(B, 2, H, W, C)` and local views `(B, n, h, w, C)`,
    and `SelfDistillation` computes the output. The encoder is the teacher, which follows a student.

    Args:
        encoder: A `VisionTransformer`.
        config: A `vit_keras.config.PretextConfig`.
        seed: The seed of the new layers; None draws one.
        total_steps: The number of updates of the run, for the schedules of "dino".
        accumulation_steps: The number of batches that an update accumulates, for "dino".

    Returns:
        A `keras.Model`.

    Raises:
        ValueError: If `encoder` is a hybrid or a ResNet, which do not cut images into patches.

    Example:
        >>> model = pretext_model(encoder, PretextConfig("mae"))
        >>> model.compile("adam", "mse")
        >>> model.fit([images, source], pixels, sample_weight=is_masked)
    """
    if not isinstance(encoder.layers[1], PatchEmbedding):
        raise ValueError(
            "A pretext task needs a model that cuts the images themselves into patches, as a "
            f"VisionTransformer does. Received: {encoder.name!r}, which begins with "
            f"{type(encoder.layers[1]).__name__}"
        )
    embedding, grid = encoder.layers[1], patch_grid(encoder)
    layer = LayerArguments(seed, embedding.dtype_policy)
    if config.is_dino:
        seed = layer("self_distillation")["seed"]
        return _self_distillation(encoder, config.dino, seed, total_steps, accumulation_steps)
    patches = grid[0] * grid[1]
    source = keras.Input((patches,), dtype="int32", name="source")
    predictions, width = config.outputs(embedding.patch_size, encoder.input_shape[-1])
    predict = _masked_patch
    if config.objective == "mae":
        predict = _autoencoder
        refuse_fixed_grids(encoder, "Masked autoencoders", ADDED_LAYERS)
    layers = _layers(encoder, embedding)
    x = predict(embedding.output, source, layers, grid, config, layer)
    if before := x.shape[1] - patches:
        x = DropClassToken(before, **layer.unseeded("patches"))(x)
    dtype = variable_dtype(layer.dtype)  # it computes in the type of its variables, like a head
    x = dense(x, predictions * width, layer("prediction"), dtype=dtype)
    if config.predicts_colors:
        x = keras.layers.Reshape((patches * predictions, width), name="colors")(x)
    return keras.Model([encoder.input, source], x, name=f"{encoder.name}_{config.objective}")


def _self_distillation(encoder, config, seed, total_steps, accumulation_steps):
    head = next((layer for layer in encoder.layers if layer.name == "head"), None)
    features = keras.Model(encoder.input, head.input if head else encoder.output, name="encoder")
    *size, channels = encoder.input_shape[1:]
    local = (config.local_crops, config.local_size, config.local_size, channels)
    inputs = [
        keras.Input((GLOBAL_VIEWS, *size, channels), name="views"),
        keras.Input(local, name="local_views"),
    ]
    steps = {"total_steps": total_steps, "accumulation_steps": accumulation_steps}
    layer = SelfDistillation(features, config, **steps, seed=seed, name="self_distillation")
    outputs = layer(*inputs)
    for teacher, student in layer.variable_pairs:
        student.assign(keras.ops.convert_to_numpy(teacher))
    return keras.Model(inputs, outputs, name=f"{encoder.name}_dino")


def _layers(encoder, embedding):
    """Returns the layers after `embedding` up to `encoder_norm`, in the order of their calls."""
    x = encoder.get_layer("encoder_norm").output
    layers: list[keras.layers.Layer] = []
    while (layer := operation_of(x)) is not embedding:
        layers.insert(0, layer)
        x = first_input_of(x)
    return layers


def _masked_patch(x, source, layers, grid, config, layer):
    """Corrupts embeddings before positions are added, as BERT corrupts words."""
    x = CorruptTokens(**layer("corruption"))(x, source)
    for encoder_layer in layers:
        x = encoder_layer(x)
    return x


def _autoencoder(x, source, layers, grid, config, layer):
    """Encodes the visible patches, puts masks in all other positions, and decodes them all."""
    patches = source.shape[1]
    visible = patches - config.corrupted(patches)
    blocks = [layer for layer in layers if isinstance(layer, EncoderBlock)]
    for encoder_layer in layers:
        if encoder_layer is blocks[0]:
            x = TakeVisible(visible, **layer.unseeded("visible"))(x, source)
        x = encoder_layer(x)
    x = dense(x, config.decoder_hidden_size, layer("decoder_embedding"))
    x = RestoreTokens(visible, **layer("restored"))(x, source)
    x = AddSinCosPositions(grid, **layer.unseeded("decoder_posembed"))(x)
    epsilon = blocks[0].layer_norm_epsilon
    options: dict[str, Any] = {"gelu": blocks[0].gelu, "layer_norm_epsilon": epsilon}
    options |= {"rematerialize": blocks[0].rematerialize}
    num_heads, mlp_dim = config.decoder_num_heads, MLP_RATIO * config.decoder_hidden_size
    for i in range(config.decoder_num_layers):
        x = EncoderBlock(num_heads, mlp_dim, **options, **layer(f"decoderblock_{i}"))(x)
    return layer_norm(epsilon, **layer.unseeded("decoder_norm"))(x)


def copy_encoder(trained: keras.Model, encoder: keras.Model) -> keras.Model:
    """Copies the encoder's weights from a trained pretext model; for DINO, the teacher's weights.

    Args:
        trained: A model from `pretext_model`, or one loaded from a file.
        encoder: A `VisionTransformer` with the same architecture, changed in place. Weights that
            `trained` does not have, such as the head's, stay unchanged.

    Returns:
        `encoder`.

    Example:
        ```python
        trained = keras.saving.load_model("runs/mae/model.keras")
        encoder = VisionTransformer(32, 4, 192, 6, 3, 768, 10, classifier="gap")
        model = copy_encoder(trained, encoder)  # with an untrained head
        ```
    """
    kinds = (layer for layer in trained.layers if isinstance(layer, SelfDistillation))
    source = next((layer.teacher for layer in kinds), trained)
    values = {variable.path: variable for variable in source.weights}
    for variable in encoder.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return encoder
