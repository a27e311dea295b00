"""Shared by layers for inference: normalization, GELU, the output projection and the MLP.

LayerNorm and GELU are written out, because converters turn Keras' own into more nodes, or into
operations that a runtime lacks. On torch they use torch's kernels. Scales and offsets of
normalizations and LayerScale's factors are folded into the adjacent products.
"""

import dataclasses
import math

import keras
from keras import ops

from vit_keras.exporting.folded_weights import affine, array, fold, scaled
from vit_keras.layers import BlockOptions, backends
from vit_keras.layers.block_options import PAPER
from vit_keras.layers.dense import Dense, gelu_quick, gelu_tanh


@backends.dispatch("inference_normalize")
def normalize(x, epsilon: float):
    """Normalizes `x` to mean 0 and variance 1 along the last axis."""
    x = x - ops.mean(x, axis=-1, keepdims=True)
    return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon)


def normalize_rms(x, epsilon: float):
    """Normalizes `x` to a mean square of 1 along the last axis."""
    return x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + epsilon)


NORMALIZE = {"layer": normalize, "rms": normalize_rms}


def gelu_by_erf(x):
    """x Φ(x) in operations that tf2onnx knows."""
    return 0.5 * x * (1.0 + ops.erf(x * math.sqrt(0.5)))


@backends.dispatch("inference_gelu")
def gelu(kind: str):
    """Returns the GELU "exact" or "tanh"; torch fuses its own with the product before it."""
    return {"exact": gelu_by_erf, "tanh": gelu_tanh, "quick": gelu_quick}[kind]


class AttentionAndMLP(keras.layers.Layer):
    """The output projection and the MLP after it, which blocks and attention pooling share."""

    def __init__(
        self,
        num_heads,
        mlp_dim,
        gelu="exact",
        layer_norm_epsilon=1e-6,
        options=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        self.options = BlockOptions.of(options)

    def dense(self, fan_in, fan_out, name, activation=None):
        dense = Dense(fan_out, activation, name=name, dtype=self.dtype_policy)
        dense.build((None, fan_in))
        return dense

    def build_rest(self, width):
        gated = self.options.mlp == "swiglu"
        self.out = self.dense(width, width, "out")
        activation = None if gated else gelu(self.gelu)
        self.dense_0 = self.dense(width, self.mlp_dim * (1 + gated), "Dense_0", activation)
        self.dense_1 = self.dense(self.mlp_dim, width, "Dense_1")

    def take_rest(self, attention, norm, mlp, layer_scales=(None, None)):
        """Copies the weights of the output projection, and of the MLP and its normalization."""
        kernel, bias = array(attention.out.kernel), array(attention.out.bias)
        out = fold(attention.norm, [kernel.reshape(-1, kernel.shape[-1])], [bias])
        self.out.set_weights(scaled(out, layer_scales[0]))
        first = [mlp.gate, mlp.dense_0] if self.options.mlp == "swiglu" else [mlp.dense_0]
        kernels, biases = ([array(getattr(d, name)) for d in first] for name in ("kernel", "bias"))
        self.dense_0.set_weights(fold(norm, kernels, biases))
        last = fold(mlp.norm, [array(mlp.dense_1.kernel)], [array(mlp.dense_1.bias)])
        self.dense_1.set_weights(scaled(last, layer_scales[1]))

    def normal(self, x):
        """Normalizes `x` along its last axis, without scale and offset."""
        return NORMALIZE[self.options.norm](x, self.layer_norm_epsilon)

    def project(self, x):
        """Applies the output projection to the attention's result `(B·N, D)`."""
        return self.out(self.normal(x) if self.options.attention_norm else x)

    def feed_forward(self, x):
        """Applies the MLP to normalized tokens `(B·N, D)`."""
        x = self.dense_0(x)
        if self.options.mlp == "swiglu":
            gate, x = ops.split(x, 2, axis=-1)
            x = gate * ops.sigmoid(gate) * x
        return self.dense_1(self.normal(x) if self.options.mlp_norm else x)

    def mlp(self, x):
        """Computes x + MLP(LN(x)) for x of shape `(B·N, D)`."""
        return x + self.feed_forward(self.normal(x))

    def get_config(self):
        config = {
            "num_heads": self.num_heads,
            "mlp_dim": self.mlp_dim,
            "gelu": self.gelu,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "options": None if self.options == PAPER else dataclasses.asdict(self.options),
        }
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="vit_keras")
class InferenceLayerNorm(keras.layers.Layer):
    """Layer or RMS normalization of the last axis in the simplest operations.

    Args:
        epsilon: Added to the variance.
        kind: "layer" or "rms".
    """

    def __init__(self, epsilon: float, kind: str = "layer", **kwargs):
        super().__init__(**kwargs)
        self.epsilon, self.kind = epsilon, kind

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=input_shape[-1:], initializer="ones")
        self.beta = self.add_weight(name="beta", shape=input_shape[-1:], initializer="zeros")

    def take(self, norm):
        """Copies the weights of a normalization."""
        for variable, value in zip((self.gamma, self.beta), affine(norm)):
            variable.assign(value)

    def call(self, x):
        return NORMALIZE[self.kind](x, self.epsilon) * self.gamma + self.beta

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon, "kind": self.kind}
