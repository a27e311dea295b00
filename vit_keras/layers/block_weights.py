"""An encoder block that returns its attention weights as well."""

import keras
from keras import ops

from vit_keras.layers.attention_weights import weights_dtype
from vit_keras.layers.blocks import EncoderBlock


@keras.saving.register_keras_serializable(package="vit_keras")
class WithAttentionWeights(keras.layers.Layer):
    """Calls an `EncoderBlock` and returns its attention weights as well.

    Args:
        block: The `EncoderBlock`, whose weights this layer shares.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        Two tensors: `(B, N, D)` and the weights `(B, H, N, N)`.

    Example:
        >>> block = vit_keras.layers.EncoderBlock(num_heads=12, mlp_dim=3072)
        >>> x, weights = vit_keras.layers.WithAttentionWeights(block)(keras.Input((197, 768)))
        >>> weights.shape
        (None, 12, 197, 197)
    """

    def __init__(self, block: EncoderBlock, **kwargs):
        super().__init__(**kwargs)
        self.block = block

    def build(self, input_shape):
        if not self.block.built:
            self.block.build(input_shape)

    def call(self, inputs, training=None):
        x, weights = self.block(inputs, training=training, return_attention_weights=True)
        dtype = self.compute_dtype  # which may be another one than the block's
        return ops.cast(x, dtype), ops.cast(weights, weights_dtype(dtype))

    def compute_output_spec(self, inputs, training=None):
        x, weights = self.block.compute_output_spec(inputs, return_attention_weights=True)
        dtypes = self.compute_dtype, weights_dtype(self.compute_dtype)
        return tuple(keras.KerasTensor(y.shape, dtype) for y, dtype in zip((x, weights), dtypes))

    def get_config(self):
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config):
        block = keras.saving.deserialize_keras_object(config.pop("block"))
        return cls(block, **config)
