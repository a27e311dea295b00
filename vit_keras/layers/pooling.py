"""Attention pooling, which reduces all tokens to one vector."""

import keras
from keras import ops

from vit_keras.layers.attention import MultiHeadDotProductAttention
from vit_keras.layers.base import SeededLayer, layer_norm
from vit_keras.layers.blocks import MlpBlock
from vit_keras.layers.initializers import xavier_uniform


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
        self.norm = layer_norm(layer_norm_epsilon, "LayerNorm_0", dtype=self.dtype_policy)
        self.mlp = MlpBlock(mlp_dim, gelu=gelu, **self.sublayer("MlpBlock_0"))

    def build(self, input_shape):
        width = input_shape[-1]
        self.probe = self.add_weight(
            name="probe",
            shape=(1, 1, width),
            initializer=xavier_uniform(1, width, self.fold_in("probe")),
        )
        for layer in (self.attention, self.norm, self.mlp):
            layer.build((input_shape[0], 1, width))

    def call(self, x, attention_mask=None):
        probe = ops.broadcast_to(self.probe, (ops.shape(x)[0], 1, x.shape[-1]))
        y = self.attention(probe, x, attention_mask=attention_mask)  # (B, 1, D)
        y = y + self.mlp(self.norm(y))
        return ops.reshape(y, (-1, x.shape[-1]))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], input_shape[-1])
