"""The transformer encoder block (Eq. 2 and 3)."""

import functools

import keras

from vit_keras.initializers import Normal, xavier_uniform
from vit_keras.layers import kernels
from vit_keras.layers.attention import MultiHeadDotProductAttention, weights_dtype
from vit_keras.layers.base import SeededLayer, check_choice, check_positive, layer_norm
from vit_keras.layers.dense import GELUS, Dense
from vit_keras.layers.remat import Dropout, rematerialise


@kernels.dispatch("train_mlp")
def train_mlp(x, first, second):
    """second(first(x)) of two `Dense` layers in training, `(…, D)` -> `(…, D)`."""
    return second(first(x))


@keras.saving.register_keras_serializable(package="vit_keras")
class MlpBlock(SeededLayer):
    """Dense(mlp_dim) → GELU → dropout → Dense(D) → dropout: `(B, N, D)` -> `(B, N, D)`.

    `gelu` is "exact" (erf) or "tanh", the approximation of the published Flax code. Kernels start
    Xavier uniform, biases as N(0, 1e-6²).
    """

    def __init__(self, mlp_dim: int, dropout_rate: float = 0.0, gelu: str = "exact", **kwargs):
        super().__init__(**kwargs)
        check_positive(mlp_dim=mlp_dim)
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


@keras.saving.register_keras_serializable(package="vit_keras")
class EncoderBlock(SeededLayer):
    """z' = MSA(LN(z)) + z, then MLP(LN(z')) + z': `(B, N, D)` -> `(B, N, D)` (Eq. 2 and 3).

    Dropout follows every dense layer but the query, key and value projections. Stochastic depth
    drops each residual branch of an image with `stochastic_depth_rate` and scales the rest by
    1 / (1 - rate). `return_attention_weights=True` returns also the weights `(B, H, N, N)`.
    `rematerialise=True` keeps only the block's input for the backward pass of training, which
    computes the rest again. `position_embedding` and `grid` are the attention's.
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
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.dropout_rate, self.attention_dropout_rate = dropout_rate, attention_dropout_rate
        self.stochastic_depth_rate = stochastic_depth_rate
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        self.rematerialise = rematerialise
        self.position_embedding = position_embedding
        part = {"dtype": self.dtype_policy}
        self.norm_0 = layer_norm(layer_norm_epsilon, "LayerNorm_0", **part)
        name = "MultiHeadDotProductAttention_1"
        positions = {"position_embedding": position_embedding, "grid": grid}
        self.attention = MultiHeadDotProductAttention(
            num_heads,
            attention_dropout_rate,
            **positions,
            seed=self.fold_in(name),
            name=name,
            **part,
        )
        self.norm_2 = layer_norm(layer_norm_epsilon, "LayerNorm_2", **part)
        seed = self.fold_in("MlpBlock_3")
        self.mlp = MlpBlock(mlp_dim, dropout_rate, gelu, seed=seed, name="MlpBlock_3", **part)
        self.attention_out_dropout = self.dropout(dropout_rate, "dropout")
        branch = {"rate": stochastic_depth_rate, "noise_shape": (None, 1, 1)}
        self.drop_path_0 = self.dropout(name="stochastic_depth_0", **branch)
        self.drop_path_1 = self.dropout(name="stochastic_depth_1", **branch)

    def build(self, input_shape):
        for part in (self.norm_0, self.attention, self.norm_2, self.mlp):
            part.build(input_shape)

    def call(self, inputs, training=None, return_attention_weights=False):
        compute = functools.partial(
            self._compute, training=training, return_attention_weights=return_attention_weights
        )
        if not (self.rematerialise and training):
            return compute(inputs)
        attention, mlp = self.attention.attention_dropout, (self.mlp.dropout_0, self.mlp.dropout_1)
        parts = (attention, self.attention_out_dropout, self.drop_path_0, *mlp, self.drop_path_1)
        return rematerialise(compute, inputs, [part for part in parts if isinstance(part, Dropout)])

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
    """An `EncoderBlock` with its weights that returns `(B, N, D)` and attention `(B, H, N, N)`."""

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
