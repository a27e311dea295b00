"""A learned factor for each channel of a residual branch."""

import keras

from vit_keras.layers.base import SeededLayer


@keras.saving.register_keras_serializable(package="vit_keras")
class LayerScale(SeededLayer):
    """Multiplies each channel by a learned factor, x · γ (arXiv 2103.17239, Eq. 4).

    Args:
        initial_value: The value at which all factors `gamma` `(D,)` start.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N, D)`.

    Example:
        >>> float(vit_keras.layers.LayerScale(0.5)(np.ones((1, 1, 2)))[0, 0, 0])
        0.5
    """

    def __init__(self, initial_value: float, **kwargs):
        super().__init__(**kwargs)
        self.initial_value = initial_value

    def build(self, input_shape):
        self.gamma = self.add_weight(
            name="gamma",
            shape=(input_shape[-1],),
            initializer=keras.initializers.Constant(self.initial_value),
        )

    def call(self, x):
        return x * self.gamma

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "initial_value": self.initial_value}
