"""The MLP of the encoder blocks (Eq. 3)."""

import keras

from vit_keras.layers import backends
from vit_keras.layers.base import (
    NORMALIZATIONS,
    SeededLayer,
    check_choice,
    check_positive,
    check_rates,
)
from vit_keras.layers.dense import GELUS
from vit_keras.layers.initializers import Normal


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
        check_positive(mlp_dim=mlp_dim)
        check_rates(dropout_rate=dropout_rate)
        check_choice(norm, (None, *NORMALIZATIONS), "norm")
        self.mlp_dim, self.dropout_rate = mlp_dim, dropout_rate
        self.norm_kind, self.layer_norm_epsilon, self.norm = norm, layer_norm_epsilon, None
        if norm is not None:
            dtype = self.dtype_policy
            self.norm = NORMALIZATIONS[norm](layer_norm_epsilon, "norm", dtype=dtype)
        self.dropout_0 = self.dropout(dropout_rate, "dropout_0")
        self.dropout_1 = self.dropout(dropout_rate, "dropout_1")

    def build(self, input_shape):
        if self.norm is not None:
            self.norm.build((None, None, self.mlp_dim))
        self.dense_1 = self._dense(self.mlp_dim, input_shape[-1], "Dense_1")

    def _dense(self, fan_in, fan_out, name, activation=None):
        bias = Normal(1e-6, self.fold_in(f"{name}/bias"))
        return self.dense(fan_in, fan_out, name, activation, bias_initializer=bias)

    def _from_hidden(self, x, training):
        """Applies the last layer to hidden units `(B, N, mlp_dim)`: `(B, N, D)`."""
        x = x if self.norm is None else self.norm(x, training=training)
        x = self.dense_1(self.dropout_0(x, training=training), training=training)
        return self.dropout_1(x, training=training)

    def get_config(self):
        return {**super().get_config(), "norm": self.norm_kind}


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
        check_choice(kind, GELUS, "gelu")
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

    norm = None  # of the hidden units, for the cost rule of MLPs

    def __init__(self, mlp_dim: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(mlp_dim=mlp_dim)
        self.mlp_dim = mlp_dim

    def build(self, input_shape):
        width, sizes = input_shape[-1], (input_shape[-1], self.mlp_dim)
        self.dense_0 = self.dense(*sizes, "Dense_0", "relu", use_bias=False)
        zeros = {"kernel_initializer": "zeros", "use_bias": False}
        self.dense_1 = self.dense(self.mlp_dim, width, "Dense_1", **zeros)

    def call(self, x):
        return x + self.dense_1(self.dense_0(x))


MLPS = {"gelu": MlpBlock, "swiglu": SwiGLU}
