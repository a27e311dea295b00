"""Attention pooling, the projection head of DINO (arXiv 2104.14294), and boxes of patches."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers.attention import MultiHeadDotProductAttention
from vit_keras.layers.backends import gelu
from vit_keras.layers.base import Layer, OnGrid, SeededLayer, Uniform, lecun_normal, xavier_uniform
from vit_keras.layers.blocks import MlpBlock
from vit_keras.layers.common import check_positive


@keras.saving.register_keras_serializable(package="vit_keras")
class MAPHead(SeededLayer):
    """Multi-head attention pooling, as in big_vision.

    One learned probe attends to all tokens; x + MLP(LN(x)) follows. The probe starts Xavier
    uniform.

    Args:
        num_heads: The number of attention heads.
        mlp_dim: The number of hidden units of the MLP.
        gelu: As in `MlpBlock`.
        layer_norm_epsilon: The number added to the variance of the normalization.
        **kwargs: Arguments of `SeededLayer`.

    Call arguments:
        x: The tokens, `(B, N, D)`.
        attention_mask: As in `MultiHeadDotProductAttention`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, D)`.

    Raises:
        ValueError: If `MlpBlock` or `MultiHeadDotProductAttention` refuses an argument.

    Example:
        >>> vit_keras.layers.MAPHead(num_heads=12, mlp_dim=3072)(keras.Input((196, 768))).shape
        (None, 768)
    """

    def __init__(
        self,
        num_heads: int,
        mlp_dim: int,
        gelu: str = "exact",
        layer_norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads, self.mlp_dim = num_heads, mlp_dim
        self.gelu, self.layer_norm_epsilon = gelu, layer_norm_epsilon
        named = self.sublayer("MultiHeadDotProductAttention_0")
        self.attention = MultiHeadDotProductAttention(num_heads, **named)
        self.norm = self.normalization("layer", layer_norm_epsilon, "LayerNorm_0")
        self.mlp = MlpBlock(mlp_dim, gelu=gelu, **self.sublayer("MlpBlock_0"))

    def build(self, input_shape):
        width = input_shape[-1]
        self.probe = self.seeded_weight("probe", (1, 1, width), xavier_uniform, 1, width)
        for layer in (self.attention, self.norm, self.mlp):
            layer.build((input_shape[0], 1, width))

    def call(self, x, attention_mask=None):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        y = self.attention(probe, x, attention_mask=attention_mask)  # (B, 1, D)
        y = y + self.mlp(self.norm(y))
        return ops.reshape(y, (-1, x.shape[-1]))


EPSILON = 1e-12  # the smallest squared length to divide by


@keras.saving.register_keras_serializable(package="vit_keras")
class PrototypeHead(SeededLayer):
    """Compares a vector with K prototypes, after an MLP (DINO, arXiv 2104.14294).

    Three dense layers, the first two with GELU, produce a bottleneck vector of unit length. The
    output is its product with the columns of `kernel` `(bottleneck_size, K)`. These also have unit
    length, so the output holds cosines.

    The kernels start LeCun normal; with 2048 units, their standard deviation is close to the
    published 0.02. In a narrow head, 0.02 would make outputs so small that the biases soon outweigh
    them and all images get the same output.

    Args:
        num_prototypes: K, the number of prototypes.
        hidden_size: The width of the two hidden layers.
        bottleneck_size: The width of the bottleneck.
        **kwargs: Arguments of `SeededLayer`.

    Call arguments:
        x: The vectors, `(B, D)`.
        frozen: A boolean scalar: whether the prototypes get no gradient.

    Output shape:
        `(B, K)`.

    Raises:
        ValueError: If a size is not a positive int.

    Example:
        >>> head = vit_keras.layers.PrototypeHead(num_prototypes=65536)
        >>> head(keras.Input((384,))).shape
        (None, 65536)
    """

    def __init__(
        self, num_prototypes: int, hidden_size: int = 2048, bottleneck_size: int = 256, **kwargs
    ):
        super().__init__(**kwargs)
        check_positive(num_prototypes=num_prototypes)
        self.num_prototypes = num_prototypes
        self.hidden_size, self.bottleneck_size = hidden_size, bottleneck_size

    def build(self, input_shape):
        width, self.dense_layers = input_shape[-1], []
        sizes = self.hidden_size, self.hidden_size, self.bottleneck_size
        for i, (units, activation) in enumerate(zip(sizes, (gelu, gelu, None))):
            name = f"Dense_{i}"
            kernel = {"kernel_initializer": lecun_normal(width, self.fold_in(name))}
            self.dense_layers.append(self.dense(width, units, name, activation, **kernel))
            width = units
        shape = (self.bottleneck_size, self.num_prototypes)
        self.kernel = self.seeded_weight("kernel", shape, Uniform, self.bottleneck_size**-0.5)

    def call(self, x, frozen=None, training=None):
        for layer in self.dense_layers:
            x = layer(x, training=training)
        prototypes = ops.convert_to_tensor(self.kernel)
        if frozen is not None:
            prototypes = ops.where(frozen, ops.stop_gradient(prototypes), prototypes)
        return ops.matmul(_unit(x, axis=-1), _unit(prototypes, axis=0))


def _unit(x, axis):
    """Divides vectors by their length; the squares are summed in float32."""
    squares = ops.sum(ops.square(ops.cast(x, "float32")), axis=axis, keepdims=True)
    return x * ops.cast(ops.rsqrt(ops.maximum(squares, EPSILON)), x.dtype)


SMALL = 1e-4  # added to fractions of the image so that their logits are finite


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchBoxes(OnGrid, Layer):
    """Turns logits of boxes into boxes at the places of patches (arXiv 2205.06230, Section 3.1).

    Logits of zero give a box of the size of its patch, centered at the patch's lower right corner,
    as in the published code.

    Args:
        grid: The rows and columns (h, w) of patches; an int applies to both.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        `(B, h·w, 4)`.

    Output shape:
        `(B, h·w, 4)`: center x, center y, width and height in 0..1.

    Example:
        >>> layer = vit_keras.layers.PatchBoxes(grid=(1, 2))
        >>> keras.ops.convert_to_numpy(layer(np.zeros((1, 2, 4)))).round(2)
        array([[[0.5, 1. , 0.5, 1. ],
                [1. , 1. , 0.5, 1. ]]], dtype=float32)
    """

    def build(self, input_shape):
        rows, columns = self.grid
        y, x = np.indices(self.grid).reshape(2, -1) + 1
        ones = np.ones(rows * columns)
        places = (x / columns, y / rows, ones / columns, ones / rows)
        shares = np.stack(places, axis=-1).astype("float32")  # (h·w, 4)
        self.logits = np.log(shares + SMALL) - np.log1p(SMALL - shares)

    def call(self, x):
        return ops.sigmoid(x + ops.cast(self.logits, x.dtype))
