"""Activations computed again in the backward pass, under the dropout of the forward pass."""

import keras

from vit_keras.keras_internals import FixedSeed


@keras.saving.register_keras_serializable(package="vit_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that `rematerialise` may give the seed of its next mask."""

    drawn = None

    def call(self, inputs, training=False):
        if self.drawn is None or not training:
            return super().call(inputs, training=training)
        seed = FixedSeed(self.drawn)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


def rematerialise(function, x, dropouts):
    """`function(x)`, whose inner activations are computed again in the backward pass.

    `dropouts` are the `Dropout` layers that `function` calls in training. Their seeds are drawn
    here: drawn inside, the second computation would get other masks and its gradients be wrong.
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
