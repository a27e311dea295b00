"""Attention with one query for each image, for inference: no keys or values are computed.

q·(y W) = (q Wᵀ)·y and Σ a (y W) = (Σ a y) W. The query is multiplied by the key's kernel, and the
mean of the tokens by the value's kernel, once per head instead of once per token.
"""

import keras
import numpy as np
from keras import ops

from vit_keras.exporting.folded_weights import array, fold, matrix
from vit_keras.exporting.inference_layers import AttentionAndMLP
from vit_keras.exporting.token_merging import size_bias


class _OneQuery(AttentionAndMLP):
    """Attention with one query for each image and head, the output projection and the MLP."""

    def build_rest(self, width):
        self.value = self.dense(width, width, "value")
        super().build_rest(width)

    def attend(self, logits, y, size):
        """Logits `(B, H, N)`, tokens `(B, N, D)` -> `(B, D)` and the weights `(B, H, N)`.

        `size` holds the tokens' sizes `(B, N, 1)`, or is None.
        """
        if size is not None:
            logits = logits + size_bias(size)
        weights = ops.softmax(logits, axis=-1)
        x = self.value(ops.reshape(ops.matmul(weights, y), (-1, y.shape[-1])))  # (B·H, D)
        x = ops.reshape(x, (-1, self.num_heads, y.shape[-1]))
        return ops.sum(ops.multiply(x, head_mask(y.shape[-1], self.num_heads)), axis=1), weights


def head_mask(width: int, num_heads: int) -> np.ndarray:
    """Returns a mask `(H, D)` that is 1 where a column belongs to a head and 0 elsewhere."""
    return np.kron(np.eye(num_heads), np.ones(width // num_heads)).astype("float32")


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceLastBlock(_OneQuery):
    """An `EncoderBlock` that computes only the class token: `(B, N, D)` -> `(B, 1, D)`.

    It also takes the tokens' sizes `(B, N, 1)`.

    Args:
        with_weights: Whether to return the attention `(B, 1, N)`, averaged over heads, too.
    """

    def __init__(self, *args, with_weights: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.with_weights = with_weights

    def build(self, x_shape, size_shape=None):
        width = x_shape[-1]
        self.query = self.dense(width, width, "query")
        self.key = self.add_weight(name="key", shape=(width, width))  # (H·d, D)
        self.build_rest(width)

    def take(self, block):
        """Copies the weights of an `EncoderBlock`. The key's bias does not change the softmax."""
        attention = block.attention
        query, key, value = (
            fold(block.norm_0, [kernel], [bias])
            for kernel, bias in (
                matrix(attention.query, attention.head_size**-0.5),
                matrix(attention.key),
                matrix(attention.value),
            )
        )
        self.query.set_weights(query)
        self.key.assign(key[0].T)
        self.value.set_weights(value)
        scales = block.layer_scale_0, block.layer_scale_1
        self.take_rest(attention, block.norm_2, block.mlp, scales)

    def call(self, x, size=None):
        width = x.shape[-1]
        y = self.normal(x)
        query = self.query(ops.reshape(y[:, :1], (-1, width)))
        query = ops.multiply(ops.expand_dims(query, axis=1), head_mask(width, self.num_heads))
        query = ops.matmul(ops.reshape(query, (-1, width)), self.key)
        query = ops.reshape(query, (-1, self.num_heads, width))  # (B, H, D)
        z, weights = self.attend(ops.matmul(query, ops.transpose(y, (0, 2, 1))), y, size)
        x = self.mlp(ops.reshape(x[:, :1], (-1, width)) + self.project(z))
        x = ops.expand_dims(x, axis=1)
        return (x, ops.mean(weights, axis=1, keepdims=True)) if self.with_weights else x

    def compute_output_shape(self, x_shape, size_shape=None):
        batch, tokens, width = x_shape
        return ((batch, 1, width), (batch, 1, tokens)) if self.with_weights else (batch, 1, width)

    def get_config(self):
        return {**super().get_config(), "with_weights": self.with_weights}


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceMAPHead(_OneQuery):
    """A `MAPHead` for inference: `(B, N, D)` -> `(B, D)`; its key holds the probe's query."""

    def build(self, x_shape, size_shape=None):
        self.key = self.add_weight(name="key", shape=(x_shape[-1], self.num_heads))
        self.build_rest(x_shape[-1])

    def take(self, head):
        """Copies the weights of a `MAPHead`."""
        attention = head.attention
        kernel, bias = matrix(attention.query, attention.head_size**-0.5)
        query = array(head.probe)[0] @ kernel + bias  # (1, D)
        query = query * head_mask(query.shape[-1], self.num_heads)
        self.key.assign(matrix(attention.key)[0] @ query.T)
        self.value.set_weights(matrix(attention.value))
        self.take_rest(attention, head.norm, head.mlp)

    def call(self, x, size=None):
        tokens, width = x.shape[1:]
        logits = ops.matmul(ops.reshape(x, (-1, width)), self.key)
        logits = ops.transpose(ops.reshape(logits, (-1, tokens, self.num_heads)), (0, 2, 1))
        return self.mlp(self.out(self.attend(logits, x, size)[0]))

    def compute_output_shape(self, x_shape, size_shape=None):
        return (x_shape[0], x_shape[-1])
