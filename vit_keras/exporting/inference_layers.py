"""The transformer's layers for inference: the same numbers from fewer and plainer operations.

Query, key and value come from one product, which holds the factor 1/√d and the normalization's
scale and offset. LayerNorm and GELU are spelled out, because converters turn Keras' own into more
nodes, or into operations that a runtime lacks. On torch, they and attention are torch's kernels.
"""

import math

import keras
from keras import ops

from vit_keras.exporting import token_merging
from vit_keras.exporting.folded_weights import array, fold, matrix
from vit_keras.layers import kernels
from vit_keras.layers.dense import Dense, gelu_quick, gelu_tanh

heads_first_attention = kernels.lookup("heads_first_attention")


@kernels.dispatch("inference_normalize")
def normalize(x, epsilon: float):
    """`x` with mean 0 and variance 1 along the last axis."""
    x = x - ops.mean(x, axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon)


def gelu_by_erf(x):
    """x Φ(x) in operations that tf2onnx knows."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


@kernels.dispatch("inference_gelu")
def gelu(kind: str):
    """The GELU of a kind, "exact" or "tanh"; torch fuses its own with the product before it."""
    return {"exact": gelu_by_erf, "tanh": gelu_tanh, "quick": gelu_quick}[kind]


class AttentionAndMLP(keras.layers.Layer):
    """The output projection and the MLP behind it, which blocks and attention pooling share."""

    def __init__(self, num_heads, mlp_dim, gelu="exact", layer_norm_epsilon=1e-6, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon

    def dense(self, fan_in, fan_out, name, activation=None):
        dense = Dense(fan_out, activation, name=name, dtype=self.dtype_policy)
        dense.build((None, fan_in))
        return dense

    def build_rest(self, width):
        self.out = self.dense(width, width, "out")
        self.dense_0 = self.dense(width, self.mlp_dim, "Dense_0", gelu(self.gelu))
        self.dense_1 = self.dense(self.mlp_dim, width, "Dense_1")

    def take_rest(self, attention, norm, mlp):
        """Copies the weights of the output projection, and of the MLP and its normalization."""
        kernel, bias = array(attention.out.kernel), array(attention.out.bias)
        self.out.set_weights([kernel.reshape(-1, kernel.shape[-1]), bias])
        kernel, bias = array(mlp.dense_0.kernel), array(mlp.dense_0.bias)
        self.dense_0.set_weights(fold(norm, [kernel], [bias]))
        self.dense_1.set_weights([array(mlp.dense_1.kernel), array(mlp.dense_1.bias)])

    def mlp(self, x):
        """x + MLP(LN(x)) for x of shape `(B·N, D)`."""
        return x + self.dense_1(self.dense_0(normalize(x, self.layer_norm_epsilon)))

    def get_config(self):
        config = {
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceBlock(AttentionAndMLP):
    """An `EncoderBlock` for inference: `(B, N, D)` -> `(B, N, D)`.

    If it merges tokens or is called with their sizes `(B, N, 1)`, it returns `(B, N - merged, D)`
    and the sizes of the remaining tokens.

    Args:
        merged: Pairs of tokens to merge; see `token_merging`.
        class_token: Whether the first token is a class token, which is never merged.
        with_weights: Whether the attention `(B, N, N)`, averaged over heads, is returned as well.
            Such a layer neither merges tokens nor takes sizes.
    """

    def __init__(
        self,
        *args,
        merged: int = 0,
        class_token: bool = False,
        with_weights: bool = False,
        **kwargs,
    ):
        super().__init__(*args, **kwargs)
        self.merged, self.class_token = merged, class_token
        self.with_weights = with_weights

    def build(self, x_shape, size_shape=None):
        self.qkv = self.dense(x_shape[-1], 3 * x_shape[-1], "qkv")
        self.build_rest(x_shape[-1])

    def take(self, block):
        """Copies the weights of an `EncoderBlock`."""
        attention = block.attention
        query = matrix(attention.query, attention.head_size**-0.5)
        projections = [query, matrix(attention.key), matrix(attention.value)]
        self.qkv.set_weights(fold(block.norm_0, *zip(*projections)))
        self.take_rest(attention, block.norm_2, block.mlp)

    def call(self, x, size=None):
        tokens, width = x.shape[1:]
        x = ops.reshape(x, (-1, width))
        query, key, value = self._heads(normalize(x, self.layer_norm_epsilon), tokens)
        y, weights = self._attend(query, key, value, size)
        x = x + self.out(y)
        if merges := self.merged or size is not None:
            metric = ops.mean(key, axis=1)  # (B, N, d)
            x = ops.reshape(x, (-1, tokens, width))
            size = ops.ones_like(x[..., :1]) if size is None else size
            x, size = token_merging.merge(x, size, metric, self.merged, self.class_token)
            x, tokens = ops.reshape(x, (-1, width)), tokens - self.merged
        x = ops.reshape(self.mlp(x), (-1, tokens, width))
        if self.with_weights:
            return x, ops.mean(weights, axis=1)
        return (x, size) if merges else x

    def _heads(self, x, tokens):
        """`(B·N, D)` -> query, key and value `(B, H, N, d)`."""
        size = x.shape[-1] // self.num_heads
        x = ops.reshape(self.qkv(x), (-1, tokens, 3, self.num_heads, size))
        x = ops.transpose(x, (2, 0, 3, 1, 4))  # once, and slices of it are contiguous
        return [ops.reshape(x[i : i + 1], (-1, *x.shape[2:])) for i in range(3)]

    def _attend(self, query, key, value, size):
        """Heads `(B, H, N, d)` with scaled queries -> `(B·N, D)` and weights `(B, H, N, N)`.

        The weights are None where one kernel of the backend computes the result without them.
        """
        bias, weights = None, None
        if size is not None:
            bias = ops.expand_dims(token_merging.size_bias(size), axis=1)  # (B, 1, 1, N)
        if heads_first_attention is not None and not self.with_weights:
            x = heads_first_attention(query, key, value, scale=1.0, bias=bias)
        else:
            logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
            weights = ops.softmax(logits if bias is None else logits + bias, axis=-1)
            x = ops.matmul(weights, value)
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, self.num_heads * x.shape[-1])), weights

    def compute_output_shape(self, x_shape, size_shape=None):
        batch, tokens, width = x_shape
        remaining = tokens - self.merged
        x_shape = (batch, remaining, width)
        if self.with_weights:
            return x_shape, (batch, remaining, tokens)
        merges = self.merged or size_shape is not None
        return (x_shape, (batch, remaining, 1)) if merges else x_shape

    def get_config(self):
        config = {
            "merged": self.merged,
            "class_token": self.class_token,
            "with_weights": self.with_weights,
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceLayerNorm(keras.layers.Layer):
    """Layer normalization of the last axis in the plainest operations."""

    def __init__(self, epsilon: float, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def take(self, norm):
        """Copies the weights of a `LayerNormalization` layer."""
        self.gamma.assign(array(norm.gamma))
        self.beta.assign(array(norm.beta))

    def call(self, x):
        return normalize(x, self.epsilon) * self.gamma + self.beta

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
