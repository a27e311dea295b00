"""The transformer encoder block (Eqs. 2 and 3), with its MLPs and `LayerScale`."""

import functools
from typing import Any

import keras
from keras import ops

from vit_keras.layers import attention, backends, common
from vit_keras.layers.base import GELUS, Layer, Normal, SeededLayer


@backends.dispatch("mlp")
def train_mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`."""
    return second(first(x))


class _TwoLayers(SeededLayer):
    """Base class of MLPs: sizes, dropouts, the norm of the hidden units, and dense layers."""

    def __init__(
        self,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        norm: str | None = None,
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        common.check_positive(mlp_dim=mlp_dim)
        common.check_rates(dropout_rate=dropout_rate)
        common.check_choice(norm, (None, *common.NORMALIZATIONS), "norm")
        self.mlp_dim, self.dropout_rate = mlp_dim, dropout_rate
        self.norm, self.layer_norm_epsilon = norm, layer_norm_epsilon
        self.hidden_norm = self.normalization(norm, layer_norm_epsilon, "norm") if norm else None
        self.dropout_0 = self.dropout(dropout_rate, "dropout_0")
        self.dropout_1 = self.dropout(dropout_rate, "dropout_1")

    def build(self, input_shape):
        if self.hidden_norm is not None:
            self.hidden_norm.build((None, None, self.mlp_dim))
        self.dense_1 = self._dense(self.mlp_dim, input_shape[-1], "Dense_1")

    def _dense(self, fan_in, fan_out, name, activation=None):
        bias = Normal(1e-6, self.fold_in(f"{name}/bias"))
        return self.dense(fan_in, fan_out, name, activation, bias_initializer=bias)

    def _from_hidden(self, x, training):
        """Applies the last layer to hidden units `(B, N, mlp_dim)`: `(B, N, D)`."""
        x = x if self.hidden_norm is None else self.hidden_norm(x, training=training)
        x = self.dense_1(self.dropout_0(x, training=training), training=training)
        return self.dropout_1(x, training=training)


@keras.saving.register_keras_serializable(package="vit_keras")
class MlpBlock(_TwoLayers):
    """Dense(mlp_dim) → GELU → dropout → Dense(D) → dropout.

    The kernels start Xavier uniform, the biases as N(0, 1e-6²).

    Args:
        mlp_dim: The number of hidden units.
        dropout_rate: The fraction of the units that each dropout sets to 0 in training.
        gelu: The form of GELU: "exact" uses erf, "tanh" the published Flax code's approximation,
            and "quick" the approximation in OpenAI's CLIP.
        norm: "layer" or "rms" to normalize the hidden units, or None.
        layer_norm_epsilon: The number added to that normalization's variance.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If `mlp_dim` is not a positive int, if `dropout_rate` is not at least 0 and
            below 1, or if `gelu` is unknown.

    Example:
        >>> vit_keras.layers.MlpBlock(mlp_dim=3072)(keras.Input((197, 768))).shape
        (None, 197, 768)
    """

    def __init__(
        self,
        mlp_dim: int,
        dropout_rate: float = 0.0,
        gelu: str = "exact",
        norm: str | None = None,
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(mlp_dim, dropout_rate, norm, layer_norm_epsilon, **kwargs)
        self.gelu = gelu

    @property
    def gelu(self) -> str:
        return self._gelu

    @gelu.setter
    def gelu(self, kind):
        common.check_choice(kind, GELUS, "gelu")
        self._gelu = kind
        if self.built:
            self.dense_0.activation = GELUS[kind]

    def build(self, input_shape):
        self.dense_0 = self._dense(input_shape[-1], self.mlp_dim, "Dense_0", GELUS[self.gelu])
        super().build(input_shape)

    def call(self, inputs, training=None):
        plain = not self.dropout_rate and self.norm is None
        if training and plain and self.dense_0.quantization_mode is None:
            return train_mlp(inputs, self.dense_0, self.dense_1)
        return self._from_hidden(self.dense_0(inputs, training=training), training)


@keras.saving.register_keras_serializable(package="vit_keras")
class SwiGLU(_TwoLayers):
    """Dense_1(SiLU(gate(x)) · Dense_0(x)), with dropouts as in `MlpBlock` (arXiv 2002.05202).

    The kernels start Xavier uniform, the biases as N(0, 1e-6²).

    Args:
        mlp_dim: The number of hidden units, in both the gate and the values.
        dropout_rate: The fraction of the units that each dropout sets to 0 in training.
        norm: "layer" or "rms" to normalize the hidden units, or None.
        layer_norm_epsilon: The number added to that normalization's variance.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If `mlp_dim` is not a positive int, or if `dropout_rate` is not at least 0 and
            below 1.

    Example:
        >>> vit_keras.layers.SwiGLU(mlp_dim=2048)(keras.Input((197, 768))).shape
        (None, 197, 768)
    """

    def build(self, input_shape):
        self.gate = self._dense(input_shape[-1], self.mlp_dim, "gate", keras.activations.silu)
        self.dense_0 = self._dense(input_shape[-1], self.mlp_dim, "Dense_0")
        super().build(input_shape)

    def call(self, inputs, training=None):
        hidden = self.gate(inputs, training=training) * self.dense_0(inputs, training=training)
        return self._from_hidden(hidden, training)


@keras.saving.register_keras_serializable(package="vit_keras")
class FeatureAdapter(SeededLayer):
    """x + Dense_1(ReLU(Dense_0(x))): adapts features, and starts as the identity.

    This is CLIP-Adapter (arXiv 2110.04544) with a last kernel that starts at zero, so that training
    begins with the features as they are. The dense layers have no biases.

    Args:
        mlp_dim: The number of hidden units.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, D)`.

    Output shape:
        `(B, D)`.

    Raises:
        ValueError: If `mlp_dim` is not a positive int.

    Example:
        >>> x = np.random.default_rng(0).normal(size=(2, 512)).astype("float32")
        >>> bool(keras.ops.all(vit_keras.layers.FeatureAdapter(mlp_dim=128)(x) == x))
        True
    """

    hidden_norm = None  # read by the cost rule of MLPs

    def __init__(self, mlp_dim: int, **kwargs):
        super().__init__(**kwargs)
        self.mlp_dim = mlp_dim

    def build(self, input_shape):
        width, sizes = input_shape[-1], (input_shape[-1], self.mlp_dim)
        self.dense_0 = self.dense(*sizes, "Dense_0", "relu", use_bias=False)
        zeros = {"kernel_initializer": "zeros", "use_bias": False}
        self.dense_1 = self.dense(self.mlp_dim, width, "Dense_1", **zeros)

    def call(self, x):
        return x + self.dense_1(self.dense_0(x))


MLPS = {"gelu": MlpBlock, "swiglu": SwiGLU}


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
        start = keras.initializers.Constant(self.initial_value)
        self.gamma = self.add_weight(name="gamma", shape=(input_shape[-1],), initializer=start)

    def call(self, x):
        return x * self.gamma


@keras.saving.register_keras_serializable(package="vit_keras")
class EncoderBlock(SeededLayer):
    """z' = MSA(LN(z)) + z, then z' + MLP(LN(z')) (Eqs. 2 and 3), or a variant of this block.

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
        options: common.BlockOptions | dict | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        common.check_rates(stochastic_depth_rate=stochastic_depth_rate)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.dropout_rate, self.attention_dropout_rate = dropout_rate, attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        self.rematerialize = rematerialize
        self.position_embedding = position_embedding
        self.options = common.BlockOptions.of(options)
        self._make_branches(grid)
        self.grid = self.attention.grid
        self.attention_out_dropout = self.dropout(dropout_rate, "dropout")
        branch: dict[str, Any] = {"rate": stochastic_depth_rate, "noise_shape": (None, 1, 1)}
        self.drop_path_0 = self.dropout(name="stochastic_depth_0", **branch)
        self.drop_path_1 = self.dropout(name="stochastic_depth_1", **branch)

    def _make_branches(self, grid):
        options, epsilon = self.options, self.layer_norm_epsilon
        norm = functools.partial(self.normalization, options.norm, epsilon)
        self.norm_0 = norm("LayerNorm_0")
        heads = (self.num_heads, self.attention_dropout_rate, self.position_embedding, grid)
        named = self.sublayer("MultiHeadDotProductAttention_1")
        self.attention = attention.MultiHeadDotProductAttention(*heads, options, epsilon, **named)
        self.norm_2 = None if options.parallel else norm("LayerNorm_2")
        mlp: dict[str, Any] = {"gelu": self.gelu} if options.mlp == "gelu" else {}
        mlp |= {"norm": options.norm if options.mlp_norm else None, "layer_norm_epsilon": epsilon}
        mlp |= self.sublayer("MlpBlock_3")
        self.mlp = MLPS[options.mlp](self.mlp_dim, self.dropout_rate, **mlp)
        self.layer_scale_0 = self._layer_scale("LayerScale_0")
        self.layer_scale_1 = None if options.parallel else self._layer_scale("LayerScale_1")

    def _layer_scale(self, name):
        if self.options.layer_scale is None:
            return None
        return LayerScale(self.options.layer_scale, **self.sublayer(name))

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
            return common.rematerialize(compute, inputs, self.dropouts)
        return compute(inputs)

    @property
    def dropouts(self) -> list[common.Dropout]:
        """The dropouts that training uses."""
        weights, mlp = self.attention.attention_dropout, (self.mlp.dropout_0, self.mlp.dropout_1)
        layers = (weights, self.attention_out_dropout, self.drop_path_0, *mlp, self.drop_path_1)
        return [layer for layer in layers if isinstance(layer, common.Dropout)]

    def compute(self, inputs, training=None, return_attention_weights=False, attention_mask=None):
        """Computes the block without rematerialization, inside or outside of a call."""
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
        return self.attention.compute_output_spec(inputs, None, return_attention_weights)


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
        return ops.cast(x, dtype), ops.cast(weights, attention.weights_dtype(dtype))

    def compute_output_spec(self, inputs, **_):
        self.block.compute_output_spec(inputs, return_attention_weights=True)  # refuses windows
        heads, keys = self.block.num_heads, inputs.shape[1]
        return attention.specs_with_weights(inputs, heads, keys, self.compute_dtype)
