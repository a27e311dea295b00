"""Rematerialization: the backward pass computes activations again, with the same dropout."""

import keras

from vit_keras.keras_internals import FixedSeed


@keras.saving.register_keras_serializable(package="vit_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose next mask may be drawn before it is called.

    It takes the arguments of `keras.layers.Dropout`, and keeps the shape.

    Attributes:
        drawn: A seed, a function of the inputs that stands for the call, or None.
    """

    drawn = None

    def call(self, inputs, training=False):
        if self.drawn is None or not training:
            return super().call(inputs, training=training)
        if callable(self.drawn):
            return self.drawn(inputs)
        seed = FixedSeed(self.drawn)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


def rematerialise(function, x, dropouts):
    """Computes `function(x)` without keeping its inner activations for the backward pass.

    The backward pass computes them again. The seeds of the dropouts are drawn here: drawn inside
    `function`, the second computation would get other masks, and its gradients would be wrong.

    Args:
        function: A function of one tensor.
        x: The tensor.
        dropouts: The `Dropout` layers that `function` calls in training.

    Returns:
        What `function` returns.
    """

    def replay(x, *seeds):
        for dropout, seed in zip(dropouts, seeds):
            dropout.drawn = seed
        try:
            return function(x)
        finally:
            for dropout in dropouts:
                dropout.drawn = None

    return keras.remat(replay)(x, *(dropout.seed_generator.next() for dropout in dropouts))
