"""The transformer encoder block (Eq. 2 and 3), and the layers that only it uses."""

from typing import Any

import keras
from keras import ops

from vit_keras.layers.attention import MultiHeadDotProductAttention, weights_dtype
from vit_keras.layers.base import (
    NORMALIZATIONS,
    BlockOptions,
    Dropout,
    Layer,
    SeededLayer,
    check_rates,
    rematerialize,
)
from vit_keras.layers.mlp import MLPS


@keras.saving.register_keras_serializable(package="vit_keras")
class LayerScale(SeededLayer):
    """Multiplies each channel by a learned factor, x · γ (arXiv 2103.17239, Eq. 4).

    Args:
        initial_value: The initial value of all factors `gamma` `(D,)`.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Example:
        >>> float(vit_keras.layers.LayerScale(0.5)(np.ones((1, 1, 2)))[0, 0, 0])
        0.5
    """

    def __init__(self, initial_value: float, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, x):
        return x * self.gamma


@keras.saving.register_keras_serializable(package="vit_keras")
class EncoderBlock(SeededLayer):
    """z' = MSA(LN(z)) + z, then z' + MLP(LN(z')) (Eq. 2 and 3), or a variant of this block.

    Args:
        num_heads: The number of attention heads.
        mlp_dim: The number of hidden units of the MLP.
        dropout_rate: The dropout rate after every dense layer, except the query, key and value
            projections.
        attention_dropout_rate: The dropout rate of the attention weights.
        stochastic_depth_rate: The probability that training drops a residual branch of an image.
            The remaining branches are scaled by 1 / (1 - rate).
        gelu: As in `MlpBlock`.
        layer_norm_epsilon: The number added to the variances of both normalizations.
        rematerialize: Whether training keeps only the input of the block for the backward pass,
            which then computes the rest again.
        position_embedding: As in `MultiHeadDotProductAttention`.
        grid: As in `MultiHeadDotProductAttention`.
        options: How the block differs from the paper's, as `BlockOptions` or a dictionary of its
            fields; None for the paper's.
        **kwargs: Arguments of `SeededLayer`.

    Call arguments:
        inputs: The tokens, `(B, N, D)`.
        return_attention_weights: Whether to return the attention weights as well.
        attention_mask: As in `MultiHeadDotProductAttention`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`; with `return_attention_weights` also `(B, H, N, N)`.

    Raises:
        ValueError: If `stochastic_depth_rate` is not at least 0 and below 1, or if `MlpBlock` or
            `MultiHeadDotProductAttention` refuses an argument.

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
        rematerialize: bool = False,
        position_embedding: str | None = None,
        grid: tuple[int, int] | None = None,
        options: BlockOptions | dict | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_rates(stochastic_depth_rate=stochastic_depth_rate)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.dropout_rate, self.attention_dropout_rate = dropout_rate, attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        self.rematerialize = rematerialize
        self.position_embedding = position_embedding
        self.options = BlockOptions.of(options)
        self._make_branches(grid)
        self.attention_out_dropout = self.dropout(dropout_rate, "dropout")
        branch: dict[str, Any] = {"rate": stochastic_depth_rate, "noise_shape": (None, 1, 1)}
        self.drop_path_0 = self.dropout(name="stochastic_depth_0", **branch)
        self.drop_path_1 = self.dropout(name="stochastic_depth_1", **branch)

    def _make_branches(self, grid):
        options, epsilon = self.options, self.layer_norm_epsilon
        norm, dtype = NORMALIZATIONS[options.norm], self.dtype_policy
        self.norm_0 = norm(epsilon, "LayerNorm_0", dtype=dtype)
        self.attention = MultiHeadDotProductAttention(
            self.num_heads,
            self.attention_dropout_rate,
            position_embedding=self.position_embedding,
            grid=grid,
            options=options,
            layer_norm_epsilon=epsilon,
            **self.sublayer("MultiHeadDotProductAttention_1"),
        )
        self.norm_2 = None if options.parallel else norm(epsilon, "LayerNorm_2", dtype=dtype)
        self.mlp = MLPS[options.mlp](
            self.mlp_dim,
            self.dropout_rate,
            norm=options.norm if options.mlp_norm else None,
            layer_norm_epsilon=epsilon,
            **({"gelu": self.gelu} if options.mlp == "gelu" else {}),
            **self.sublayer("MlpBlock_3"),
        )
        self.layer_scale_0 = self._layer_scale("LayerScale_0")
        self.layer_scale_1 = None if options.parallel else self._layer_scale("LayerScale_1")

    def _layer_scale(self, name):
        if self.options.layer_scale is None:
            return None
        return LayerScale(self.options.layer_scale, **self.sublayer(name))

    @property
    def grid(self) -> tuple[int, int] | None:
        return self.attention.grid

    @property
    def branches(self) -> list[keras.layers.Layer]:
        """The sublayers with weights, in the order of computation."""
        first = (self.norm_0, self.attention, self.layer_scale_0)
        layers = (*first, self.norm_2, self.mlp, self.layer_scale_1)
        return [layer for layer in layers if layer is not None]

    def build(self, input_shape):
        for layer in self.branches:
            layer.build(input_shape)

    def call(self, inputs, training=None, return_attention_weights=False, attention_mask=None):
        flags = training, return_attention_weights, attention_mask
        compute = lambda x: self.compute(x, *flags)
        if self.rematerialize and training:  # the backward pass runs after this call has ended
            return rematerialize(compute, inputs, self.dropouts)
        return compute(inputs)

    @property
    def dropouts(self) -> list[Dropout]:
        """The dropouts that training uses."""
        attention, mlp = self.attention.attention_dropout, (self.mlp.dropout_0, self.mlp.dropout_1)
        layers = (attention, self.attention_out_dropout, self.drop_path_0, *mlp, self.drop_path_1)
        return [layer for layer in layers if isinstance(layer, Dropout)]

    def compute(self, inputs, training=None, return_attention_weights=False, attention_mask=None):
        """The result of a call without rematerialization, inside or outside a call."""
        normal, weights = self.norm_0(inputs, training=training), None
        options = {"training": training, "attention_mask": attention_mask}
        if return_attention_weights:
            x, weights = self.attention(normal, return_attention_weights=True, **options)
        else:
            x = self.attention(normal, **options)
        x = self.attention_out_dropout(x, training=training)
        if self.norm_2 is None:  # in parallel
            x = self._scaled(x + self.mlp(normal, training=training), self.layer_scale_0)
            y = inputs + self.drop_path_0(x, training=training)
        else:
            x = self._scaled(x, self.layer_scale_0)
            x = inputs + self.drop_path_0(x, training=training)
            y = self.mlp(self.norm_2(x, training=training), training=training)
            y = self._scaled(y, self.layer_scale_1)
            y = x + self.drop_path_1(y, training=training)
        return (y, weights) if return_attention_weights else y

    @staticmethod
    def _scaled(x, layer_scale):
        return x if layer_scale is None else layer_scale(x)

    def compute_output_spec(self, inputs, return_attention_weights=False, **_):
        y = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_weights:
            return y
        return y, self.attention.compute_output_spec(inputs, return_attention_weights=True)[1]


@keras.saving.register_keras_serializable(package="vit_keras")
class WithAttentionWeights(Layer):
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

    def call(self, inputs, training=None, attention_mask=None):
        options = {"training": training, "attention_mask": attention_mask}
        x, weights = self.block(inputs, return_attention_weights=True, **options)
        dtype = self.compute_dtype  # may differ from the block's
        return ops.cast(x, dtype), ops.cast(weights, weights_dtype(dtype))

    def compute_output_spec(self, inputs, **_):
        x, weights = self.block.compute_output_spec(inputs, return_attention_weights=True)
        dtypes = self.compute_dtype, weights_dtype(self.compute_dtype)
        return tuple(keras.KerasTensor(y.shape, dtype) for y, dtype in zip((x, weights), dtypes))
