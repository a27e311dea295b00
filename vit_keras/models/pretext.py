"""What is trained without labels: an encoder's own layers, between corruption and prediction."""

import functools

import keras

from vit_keras.initializers import default_seed, xavier_uniform
from vit_keras.keras_internals import first_input_of, operation_of
from vit_keras.layers import (
    AddSinCosPositions,
    CorruptTokens,
    DropClassToken,
    EncoderBlock,
    PatchEmbedding,
    RestoreTokens,
    TakeVisible,
)
from vit_keras.layers.base import layer_norm
from vit_keras.models.common import layer_options
from vit_keras.models.surgery import patch_grid

MLP_RATIO = 4  # of the blocks of MAE's decoder


def pretext_model(encoder: keras.Model, config, seed: int | None = None) -> keras.Model:
    """The model that trains a `VisionTransformer` by a run's `PretextConfig`.

    It takes images `(B, H, W, C)` and `source` `(B, N)` int32, for each place the patch whose
    embedding stands there, N for the mask, and gives predictions for every patch: of colours
    `(B, N·P, K)` logits, P a patch, or of pixels `(B, N, p²·C)`. The encoder's layers up to
    `encoder_norm` are shared, not copied: what trains is the encoder. Raises ValueError for a
    hybrid or a ResNet.
    """
    if not isinstance(encoder.layers[1], PatchEmbedding):
        raise ValueError(
            "A pretext needs a model that cuts images themselves into patches, a "
            f"VisionTransformer. Received: {encoder.name!r}, which begins with "
            f"{type(encoder.layers[1]).__name__}"
        )
    embedding, grid = encoder.layers[1], patch_grid(encoder)
    part = functools.partial(
        layer_options, default_seed() if seed is None else seed, embedding.dtype_policy
    )
    patches = grid[0] * grid[1]
    source = keras.Input((patches,), dtype="int32", name="source")
    predictions, width = config.outputs(embedding.patch_size, encoder.input_shape[-1])
    through = _masked_patch if config.objective == "masked_patch" else _autoencoder
    x = through(embedding.output, source, _layers(encoder, embedding), grid, config, part)
    if x.shape[1] > patches:
        x = DropClassToken(dtype=part("patches")["dtype"], name="patches")(x)
    x = _dense(predictions * width, x, part, "prediction")
    if config.predicts_colours:
        x = keras.layers.Reshape((patches * predictions, width), name="colours")(x)
    return keras.Model([encoder.input, source], x, name=f"{encoder.name}_{config.objective}")


def _layers(encoder, embedding):
    """The layers after `embedding` up to `encoder_norm`, in the order of their calls."""
    x, found = encoder.get_layer("encoder_norm").output, []
    while (layer := operation_of(x)) is not embedding:
        found.insert(0, layer)
        x = first_input_of(x)
    return found


def _masked_patch(x, source, layers, grid, config, part):
    """Embeddings are corrupted before their places are added, as words are by BERT."""
    x = CorruptTokens(**part("corruption"))(x, source)
    for layer in layers:
        x = layer(x)
    return x


def _autoencoder(x, source, layers, grid, config, part):
    """Visible patches through the encoder; with masks in their places through the decoder."""
    patches = source.shape[1]
    visible = patches - config.corrupted(patches)
    blocks = [layer for layer in layers if isinstance(layer, EncoderBlock)]
    for layer in layers:
        if layer is blocks[0]:
            x = TakeVisible(visible, dtype=part("visible")["dtype"], name="visible")(x, source)
        x = layer(x)
    x = _dense(config.decoder_hidden_size, x, part, "decoder_embedding")
    x = RestoreTokens(visible, **part("restored"))(x, source)
    dtype = part("decoder_posembed")["dtype"]
    x = AddSinCosPositions(grid, dtype=dtype, name="decoder_posembed")(x)
    epsilon = blocks[0].layer_norm_epsilon
    how = {"gelu": blocks[0].gelu, "layer_norm_epsilon": epsilon}
    how |= {"rematerialise": blocks[0].rematerialise}
    sizes = config.decoder_num_heads, MLP_RATIO * config.decoder_hidden_size
    for i in range(config.decoder_num_layers):
        x = EncoderBlock(*sizes, **how, **part(f"decoderblock_{i}"))(x)
    return layer_norm(epsilon, "decoder_norm", dtype=dtype)(x)


def _dense(units, x, part, name):
    """Predictions compute in the type of their variables, so that mixed precision ends in it."""
    shared = part(name)
    kernel = xavier_uniform(x.shape[-1], units, shared.pop("seed"))
    if name == "prediction":
        policy = keras.dtype_policies.get(shared["dtype"])
        shared["dtype"] = policy.variable_dtype
    return keras.layers.Dense(units, kernel_initializer=kernel, **shared)(x)


def copy_encoder(trained: keras.Model, encoder: keras.Model) -> keras.Model:
    """Gives `encoder` the weights of the layers of a `pretext_model` that bear its names."""
    values = {variable.path: variable for variable in trained.weights}
    for variable in encoder.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return encoder
