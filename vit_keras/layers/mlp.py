"""The MLP of the encoder blocks (Eq. 3)."""

import keras

from vit_keras.initializers import Normal, xavier_uniform
from vit_keras.layers import kernels
from vit_keras.layers.base import SeededLayer, check_choice, check_positive, check_rates
from vit_keras.layers.dense import GELUS, Dense


@kernels.dispatch("train_mlp")
def train_mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`."""
    return second(first(x))


@keras.saving.register_keras_serializable(package="vit_keras")
class MlpBlock(SeededLayer):
    """Dense(mlp_dim) → GELU → dropout → Dense(D) → dropout.

    Kernels start Xavier uniform, biases as N(0, 1e-6²).

    Args:
        mlp_dim: The number of hidden units.
        dropout_rate: The part of the units that each dropout sets to 0 in training.
        gelu: "exact" computes GELU by erf, "tanh" as the published Flax code approximates it.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If `mlp_dim` is not a positive int, if `dropout_rate` is not at least 0 and
            below 1, or if `gelu` is another name.

    Example:
        >>> vit_keras.layers.MlpBlock(mlp_dim=3072)(keras.Input((197, 768))).shape
        (None, 197, 768)
    """

    def __init__(self, mlp_dim: int, dropout_rate: float = 0.0, gelu: str = "exact", **kwargs):
        super().__init__(**kwargs)
        check_positive(mlp_dim=mlp_dim)
        check_rates(dropout_rate=dropout_rate)
        self.mlp_dim, self.dropout_rate, self.gelu = mlp_dim, dropout_rate, gelu
        self.dropout_0 = self.dropout(dropout_rate, "dropout_0")
        self.dropout_1 = self.dropout(dropout_rate, "dropout_1")

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
        width = input_shape[-1]
        self.dense_0 = self._dense(width, self.mlp_dim, "Dense_0", GELUS[self.gelu])
        self.dense_1 = self._dense(self.mlp_dim, width, "Dense_1")

    def _dense(self, fan_in, fan_out, name, activation=None):
        dense = Dense(
            fan_out,
            activation,
            kernel_initializer=xavier_uniform(fan_in, fan_out, self.fold_in(f"{name}/kernel")),
            bias_initializer=Normal(1e-6, self.fold_in(f"{name}/bias")),
            dtype=self.dtype_policy,
            name=name,
        )
        dense.build((None, fan_in))
        return dense

    def call(self, inputs, training=None):
        if training and not self.dropout_rate:
            return train_mlp(inputs, self.dense_0, self.dense_1)
        x = self.dropout_0(self.dense_0(inputs), training=training)
        return self.dropout_1(self.dense_1(x), training=training)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"mlp_dim": self.mlp_dim, "dropout_rate": self.dropout_rate, "gelu": self.gelu}
        return {**super().get_config(), **config}
