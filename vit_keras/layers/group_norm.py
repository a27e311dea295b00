"""Group normalization that stays exact where the mean is large."""

import keras
from keras import ops

GROUPS = 32


@keras.saving.register_keras_serializable(package="vit_keras")
class GroupNorm(keras.layers.GroupNormalization):
    """(x - mean) / √(mean((x - mean)²) + epsilon) · γ + β over groups of channels.

    `keras.layers.GroupNormalization` computes the variance as E[x²] - E[x]² on torch, and on every
    backend scales x before it subtracts the mean. If the mean of a group is a hundred times its
    deviation, this costs four of the seven digits of float32, and the difference may be negative.
    Source: arXiv 1803.08494, Eq. 1-3.

    Args:
        groups: The number of groups. It must divide C.
        epsilon: The number added to the variance.
        **kwargs: Other arguments of `keras.layers.GroupNormalization`, except `axis`.

    Input shape:
        `(B, …, C)`.

    Output shape:
        `(B, …, C)`.

    Raises:
        ValueError: If `groups` does not divide C.

    Example:
        >>> layer = vit_keras.layers.GroupNorm(groups=1)
        >>> keras.ops.convert_to_numpy(layer(np.array([[10000.0, 10000.5]]))).round(2)
        array([[-1.,  1.]], dtype=float32)
    """

    def __init__(self, groups: int = GROUPS, epsilon: float = 1e-6, **kwargs):
        super().__init__(groups, axis=-1, epsilon=epsilon, **kwargs)

    def call(self, inputs):
        shape, channels = ops.shape(inputs), inputs.shape[-1]
        x = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        x = ops.reshape(x, (*shape[:-1], self.groups, channels // self.groups))
        axes = (*range(1, len(shape) - 1), -1)  # all axes of an image but the groups
        x = x - ops.mean(x, axis=axes, keepdims=True)
        variance = ops.mean(ops.square(x), axis=axes, keepdims=True)  # (B, 1, …, groups, 1)
        gamma, beta = (
            ops.reshape(ops.cast(weight, x.dtype), (self.groups, -1))
            for weight in (self.gamma, self.beta)
        )
        x = x * (ops.rsqrt(variance + self.epsilon) * gamma) + beta
        return ops.cast(ops.reshape(x, shape), self.compute_dtype)

    def get_config(self):
        config = super().get_config()
        del config["axis"]
        return config
