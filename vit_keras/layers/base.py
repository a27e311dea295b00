"""What every layer of the package shares."""

import keras
from keras import ops

from vit_keras.initializers import default_seed, fold_in
from vit_keras.layers import kernels
from vit_keras.layers.remat import Dropout


def pair(value, name: str) -> tuple[int, int]:
    """`value` as (height, width): an int stands for both; ValueError unless positive ints."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2 or not all(isinstance(v, int) and v > 0 for v in both):
        raise ValueError(
            f"`{name}` must be a positive int or a pair (height, width) of them. "
            f"Received: {name}={value!r}"
        )
    return both


def check_positive(**sizes) -> None:
    """ValueError unless every size is a positive int."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"`{name}` must be a positive int. Received: {name}={size!r}")


def check_choice(value, choices, name: str) -> None:
    """ValueError unless `value` is one of `choices`."""
    if value not in choices:
        allowed = ", ".join(map(repr, choices))
        raise ValueError(f"`{name}` must be one of {allowed}. Received: {name}={value!r}")


@kernels.dispatch("train_layer_norm")
def train_layer_norm(x, gamma, beta, epsilon: float):
    """LN(x) γ + β over the last axis, with its gradient."""
    return ops.layer_normalization(x, gamma, beta, axis=-1, epsilon=epsilon)


@keras.saving.register_keras_serializable(package="vit_keras")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, faster in training on TensorFlow."""

    def call(self, inputs, training=None):
        if training:
            y = train_layer_norm(inputs, self.gamma, self.beta, self.epsilon)
            return ops.cast(y, self.compute_dtype)
        return super().call(inputs)


def layer_norm(epsilon: float, name: str, **kwargs) -> LayerNormalization:
    """A layer normalisation over the last axis."""
    return LayerNormalization(epsilon=epsilon, name=name, **kwargs)


class SeededLayer(keras.layers.Layer):
    """A layer whose initial weights and dropout follow from one `seed` and its parts' names.

    `seed=None` draws one from Python's generator, so `keras.utils.set_random_seed` decides.
    """

    def __init__(self, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.seed = default_seed() if seed is None else seed

    def fold_in(self, name: str) -> int:
        """The seed of the part called `name`."""
        return fold_in(self.seed, name)

    def dropout(self, rate: float, name: str, **kwargs):
        """A dropout sublayer with a seed of its own; at rate 0 none, which builds faster."""
        if rate == 0:
            return _identity
        seed = self.fold_in(name)
        return Dropout(rate, seed=seed, name=name, dtype=self.dtype_policy, **kwargs)

    def get_config(self):
        return {**super().get_config(), "seed": self.seed}


def _identity(x, training=None):
    return x
