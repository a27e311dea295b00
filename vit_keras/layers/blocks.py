"""The transformer encoder block (Eq. 2 and 3)."""

import functools
from typing import Any

import keras

from vit_keras.layers.attention import MultiHeadDotProductAttention, weights_dtype
from vit_keras.layers.base import SeededLayer, check_rates, layer_norm
from vit_keras.layers.mlp import MlpBlock
from vit_keras.layers.remat import Dropout, rematerialise


@keras.saving.register_keras_serializable(package="vit_keras")
class EncoderBlock(SeededLayer):
    """z' = MSA(LN(z)) + z, then z' + MLP(LN(z')) (Eq. 2 and 3).

    Args:
        num_heads: The number of attention heads.
        mlp_dim: The number of hidden units of the MLP.
        dropout_rate: The rate of the dropout after every dense layer, except after the query, key
            and value projections.
        attention_dropout_rate: The rate of the dropout of the attention weights.
        stochastic_depth_rate: The probability with which training drops a residual branch of an
            image. The branches that stay are scaled by 1 / (1 - rate).
        gelu: As in `MlpBlock`.
        layer_norm_epsilon: The number added to the variances of both normalizations.
        rematerialise: Whether training keeps only the input of the block for the backward pass,
            which then computes the rest again.
        position_embedding: As in `MultiHeadDotProductAttention`.
        grid: As in `MultiHeadDotProductAttention`.
        **kwargs: Arguments of `SeededLayer`.

    Call arguments:
        inputs: The tokens, `(B, N, D)`.
        return_attention_weights: Whether to return the attention weights as well.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`; with `return_attention_weights` also `(B, H, N, N)`.

    Raises:
        ValueError: If `stochastic_depth_rate` is not at least 0 and below 1, or for arguments that
            `MlpBlock` or `MultiHeadDotProductAttention` refuses.

    Example:
        >>> block = vit_keras.layers.EncoderBlock(num_heads=12, mlp_dim=3072)
        >>> block(keras.Input((197, 768))).shape
        (None, 197, 768)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        attention_dropout_rate: float = 0.0,
        stochastic_depth_rate: float = 0.0,
        gelu: str = "exact",
        layer_norm_epsilon: float = 1e-6,
        rematerialise: bool = False,
        position_embedding: str | None = None,
        grid: tuple[int, int] | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_rates(stochastic_depth_rate=stochastic_depth_rate)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.dropout_rate, self.attention_dropout_rate = dropout_rate, attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        self.rematerialise = rematerialise
        self.position_embedding = position_embedding
        dtype: dict[str, Any] = {"dtype": self.dtype_policy}
        self.norm_0 = layer_norm(layer_norm_epsilon, "LayerNorm_0", **dtype)
        name = "MultiHeadDotProductAttention_1"
        self.attention = MultiHeadDotProductAttention(
            num_heads,
            attention_dropout_rate,
            position_embedding=position_embedding,
            grid=grid,
            seed=self.fold_in(name),
            name=name,
            **dtype,
        )
        self.norm_2 = layer_norm(layer_norm_epsilon, "LayerNorm_2", **dtype)
        seed = self.fold_in("MlpBlock_3")
        self.mlp = MlpBlock(mlp_dim, dropout_rate, gelu, seed=seed, name="MlpBlock_3", **dtype)
        self.attention_out_dropout = self.dropout(dropout_rate, "dropout")
        branch: dict[str, Any] = {"rate": stochastic_depth_rate, "noise_shape": (None, 1, 1)}
        self.drop_path_0 = self.dropout(name="stochastic_depth_0", **branch)
        self.drop_path_1 = self.dropout(name="stochastic_depth_1", **branch)

    def build(self, input_shape):
        for layer in (self.norm_0, self.attention, self.norm_2, self.mlp):
            layer.build(input_shape)

    def call(self, inputs, training=None, return_attention_weights=False):
        compute = functools.partial(
            self._compute, training=training, return_attention_weights=return_attention_weights
        )
        if not (self.rematerialise and training):
            return compute(inputs)
        attention, mlp = self.attention.attention_dropout, (self.mlp.dropout_0, self.mlp.dropout_1)
        layers = (attention, self.attention_out_dropout, self.drop_path_0, *mlp, self.drop_path_1)
        dropouts = [layer for layer in layers if isinstance(layer, Dropout)]
        return rematerialise(compute, inputs, dropouts)

    def _compute(self, inputs, training, return_attention_weights):
        x, weights = self.norm_0(inputs), None
        if return_attention_weights:
            x, weights = self.attention(x, training=training, return_attention_weights=True)
        else:
            x = self.attention(x, training=training)
        x = self.attention_out_dropout(x, training=training)
        x = inputs + self.drop_path_0(x, training=training)
        y = self.mlp(self.norm_2(x), training=training)
        y = x + self.drop_path_1(y, training=training)
        return (y, weights) if return_attention_weights else y

    def compute_output_shape(self, input_shape):
        return input_shape

    def compute_output_spec(self, inputs, training=None, return_attention_weights=False):
        y = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_weights:
            return y
        batch, tokens, _ = inputs.shape
        shape = (batch, self.num_heads, tokens, tokens)
        return y, keras.KerasTensor(shape, dtype=weights_dtype(self.compute_dtype))

    def get_config(self):
        config = {
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "dropout_rate": self.dropout_rate,
            "attention_dropout_rate": self.attention_dropout_rate,
            "stochastic_depth_rate": self.stochastic_depth_rate,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "rematerialise": self.rematerialise,
            "position_embedding": self.position_embedding,
            "grid": self.attention.grid,
        }
        return {**super().get_config(), **config}


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
        return self.block(inputs, training=training, return_attention_weights=True)

    def compute_output_spec(self, inputs, training=None):
        return self.block.compute_output_spec(inputs, return_attention_weights=True)

    def get_config(self):
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config):
        block = keras.saving.deserialize_keras_object(config.pop("block"))
        return cls(block, **config)
