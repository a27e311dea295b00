"""The blocks of vit-keras 0.x. Their sublayers have the names in its saved files.

New models use `EncoderBlock`. `vit_keras.legacy` builds these and converts them to `EncoderBlock`.
Importing this module registers the layers under the names in those files. `import vit_keras` does
not, because "Custom" is the package of every class that is registered without one, such as your
own `ClassToken`.
"""

import keras
from keras import ops

from vit_keras.layers.attention import attend, specs_with_weights
from vit_keras.layers.base import GELUS, SeededLayer
from vit_keras.layers.common import check_positive
from vit_keras.layers.positions import AddPositionEmbs
from vit_keras.layers.tokens import ClassToken


@keras.saving.register_keras_serializable(package="vit_keras")
class MultiHeadSelfAttention(SeededLayer):
    """The self-attention of vit-keras 0.x, softmax(q kᵀ / √d) v, with kernels `(D, D)`.

    Args:
        num_heads: H, the number of heads. It must divide D.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        Two tensors: `(B, N, D)` and the attention weights `(B, H, N, N)`.

    Raises:
        ValueError: If `num_heads` is not a positive int or does not divide D.

    Example:
        >>> layer = vit_keras.layers.MultiHeadSelfAttention(num_heads=12)
        >>> x, weights = layer(keras.Input((197, 768)))
        >>> x.shape, weights.shape
        ((None, 197, 768), (None, 12, 197, 197))
    """

    def __init__(self, *, num_heads: int, **kwargs):
        super().__init__(**kwargs)
        check_positive(num_heads=num_heads)
        self.num_heads = num_heads

    def build(self, input_shape):
        width = input_shape[-1]
        if width % self.num_heads:
            raise ValueError(
                "`num_heads` must divide `hidden_size`. "
                f"Received: num_heads={self.num_heads}, hidden_size={width}"
            )
        self.hidden_size, self.projection_dim = width, width // self.num_heads
        self.query_dense = self.dense(width, width, "query")
        self.key_dense = self.dense(width, width, "key")
        self.value_dense = self.dense(width, width, "value")
        self.combine_heads = self.dense(width, width, "out")

    def call(self, inputs):
        shape = (-1, inputs.shape[1], self.num_heads, self.projection_dim)
        projections = self.query_dense, self.key_dense, self.value_dense
        query, key, value = (ops.reshape(dense(inputs), shape) for dense in projections)
        query = query * self.projection_dim**-0.5
        x, weights = attend(query, key, value, None, lambda weights: weights, self.compute_dtype)
        return self.combine_heads(ops.reshape(x, (-1, x.shape[1], self.hidden_size))), weights

    def compute_output_spec(self, inputs):
        return specs_with_weights(inputs, self.num_heads, inputs.shape[1], self.compute_dtype)


@keras.saving.register_keras_serializable(package="vit_keras")
class TransformerBlock(SeededLayer):
    """The encoder block of vit-keras 0.x, which returns its attention weights as well.

    It computes the same function as `EncoderBlock` with exact GELU.

    Args:
        num_heads: H, the number of heads.
        mlp_dim: The number of hidden units of the MLP.
        dropout: The fraction of the units that each of the three dropouts sets to 0 in training.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        Two tensors: `(B, N, D)` and the attention weights `(B, H, N, N)`.

    Raises:
        ValueError: If `num_heads` is not a positive int or does not divide D, or if `dropout` is
            not from 0 to 1.

    Example:
        >>> block = vit_keras.layers.TransformerBlock(num_heads=12, mlp_dim=3072, dropout=0.1)
        >>> x, weights = block(keras.Input((197, 768)))
        >>> x.shape, weights.shape
        ((None, 197, 768), (None, 12, 197, 197))
    """

    def __init__(self, *, num_heads: int, mlp_dim: int, dropout: float, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.mlp_dim, self.dropout_rate = num_heads, mlp_dim, dropout

    def build(self, input_shape):
        width = input_shape[-1]
        name = "MultiHeadDotProductAttention_1"
        self.att = MultiHeadSelfAttention(num_heads=self.num_heads, **self.sublayer(name))
        self.att.build(input_shape)
        first = self.dense(width, self.mlp_dim, "Dense_0", GELUS["exact"], f"{self.name}_")
        last = self.dense(self.mlp_dim, width, "Dense_1", prefix=f"{self.name}_")
        dropouts = [self.dropout(self.dropout_rate, f"dropout_{i}") for i in range(2)]
        mlp = [first, dropouts[0], last, dropouts[1]] if self.dropout_rate else [first, last]
        self.mlpblock = keras.Sequential(mlp, name="MlpBlock_3")
        self.mlpblock.build((None, *input_shape[1:]))
        self.layernorm1 = self.normalization("layer", 1e-6, "LayerNorm_0")
        self.layernorm2 = self.normalization("layer", 1e-6, "LayerNorm_2")
        for norm in (self.layernorm1, self.layernorm2):
            norm.build(input_shape)
        self.dropout_layer = self.dropout(self.dropout_rate, "dropout")

    def call(self, inputs, training=None):
        x, weights = self.att(self.layernorm1(inputs))
        x = inputs + self.dropout_layer(x, training=training)
        return x + self.mlpblock(self.layernorm2(x), training=training), weights

    def compute_output_spec(self, inputs, training=None):
        return specs_with_weights(inputs, self.num_heads, inputs.shape[1], self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout_rate}


KINDS = (AddPositionEmbs, ClassToken, MultiHeadSelfAttention, TransformerBlock)
LAYERS = {kind.__name__: kind for kind in KINDS}
keras.saving.get_custom_objects().update({f"Custom>{name}": LAYERS[name] for name in LAYERS})
