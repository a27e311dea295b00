"""Activations computed again in the backward pass, under the dropout of the forward pass."""

import keras


@keras.saving.register_keras_serializable(package="vit_keras")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` that `rematerialise` may give the seed of its next mask."""

    drawn = None

    def call(self, inputs, training=False):
        if self.drawn is None or not training:
            return super().call(inputs, training=training)
        seed = _Drawn(self.drawn)
        return keras.random.dropout(inputs, self.rate, noise_shape=self.noise_shape, seed=seed)


class _Drawn(keras.random.SeedGenerator):
    """Gives a seed that was drawn before, and has no state to advance."""

    _initial_seed = 0  # Keras' torch dropout takes the global generator where this is None

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


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
