"""The projection head of self-distillation (DINO, arXiv 2104.14294, Appendix C)."""

import keras
from keras import ops

from vit_keras.layers.base import SeededLayer, check_positive
from vit_keras.layers.dense import Dense, gelu
from vit_keras.layers.initializers import Uniform, lecun_normal

EPSILON = 1e-12  # the smallest squared length to divide by


@keras.saving.register_keras_serializable(package="vit_keras")
class PrototypeHead(SeededLayer):
    """Compares a vector with K prototypes, after an MLP (DINO, arXiv 2104.14294).

    Three dense layers, the first two with GELU, produce a bottleneck vector of unit length. The
    output is its product with the columns of `kernel` `(bottleneck_size, K)`. These also have unit
    length, so the output holds cosines.

    The kernels start LeCun normal; with 2048 units, their deviation is close to the published 0.02.
    In a narrow head, 0.02 would make outputs so small that the biases soon outweigh them and all
    images get the same output.

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
        self,
        num_prototypes: int,
        hidden_size: int = 2048,
        bottleneck_size: int = 256,
        **kwargs,
    ):
        super().__init__(**kwargs)
        sizes = {"hidden_size": hidden_size, "bottleneck_size": bottleneck_size}
        check_positive(num_prototypes=num_prototypes, **sizes)
        self.num_prototypes = num_prototypes
        self.hidden_size, self.bottleneck_size = hidden_size, bottleneck_size

        options = {"activation": gelu, "dtype": self.dtype_policy}
        self.dense_0 = Dense(hidden_size, **options, name="Dense_0")
        self.dense_1 = Dense(hidden_size, **options, name="Dense_1")
        self.dense_2 = Dense(bottleneck_size, dtype=self.dtype_policy, name="Dense_2")

    @property
    def dense_layers(self) -> tuple[Dense, ...]:
        """The layers of the MLP, in the order of computation."""
        return self.dense_0, self.dense_1, self.dense_2

    def build(self, input_shape):
        width = input_shape[-1]
        for layer in self.dense_layers:
            layer.kernel_initializer = lecun_normal(width, self.fold_in(layer.name))
            layer.build((None, width))
            width = layer.units
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.bottleneck_size, self.num_prototypes),
            initializer=Uniform(self.bottleneck_size**-0.5, self.fold_in("kernel")),
        )

    def call(self, x, frozen=None, training=None):
        for layer in self.dense_layers:
            x = layer(x, training=training)
        prototypes = ops.convert_to_tensor(self.kernel)
        if frozen is not None:
            prototypes = ops.where(frozen, ops.stop_gradient(prototypes), prototypes)
        return ops.matmul(_unit(x, axis=-1), _unit(prototypes, axis=0))

    def compute_output_shape(self, input_shape):
        return (input_shape[0], self.num_prototypes)


def _unit(x, axis):
    """Divides vectors by their length; the squares are summed in float32."""
    squares = ops.sum(ops.square(ops.cast(x, "float32")), axis=axis, keepdims=True)
    return x * ops.cast(ops.rsqrt(ops.maximum(squares, EPSILON)), x.dtype)
