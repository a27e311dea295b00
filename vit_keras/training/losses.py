"""The losses of a run."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="vit_keras")
class SigmoidCrossentropy(keras.losses.Loss):
    """One binary cross-entropy a class, of logits `(B, C)` and targets `(B, C)` in [0, 1].

    Summed over the classes, then the mean over the images: big_vision's `sigmoid_xent`.
    """

    def call(self, y_true, y_pred):
        losses = ops.binary_crossentropy(y_true, y_pred, from_logits=True)
        return ops.sum(losses, axis=-1)


def build_loss(config) -> keras.losses.Loss:
    """The loss of a run's `Config`: of logits and one-hot or mixed targets, `(B, C)`.

    With a pretext, of logits `(B, N, K)` and classes `(B, N)`, or squared error of `(B, N, D)`.
    """
    if config.pretext.is_active:
        if config.pretext.predicts_colours:
            return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return keras.losses.MeanSquaredError()
    if config.loss == "sigmoid":
        return SigmoidCrossentropy()
    return keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=config.label_smoothing
    )
