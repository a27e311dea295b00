"""The losses that a run can minimize."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="vit_keras")
class SigmoidCrossentropy(keras.losses.Loss):
    """The sum over classes of binary cross-entropies, as big_vision's `sigmoid_xent`.

    It compares logits `(B, C)` with targets `(B, C)` in [0, 1] and averages over the images.

    Example:
        >>> loss = vit_keras.training.SigmoidCrossentropy()
        >>> round(float(loss(np.array([[1.0, 0.0]]), np.zeros((1, 2)))), 4)  # 2 ln 2
        1.3863
    """

    def call(self, y_true, y_pred):
        losses = ops.binary_crossentropy(y_true, y_pred, from_logits=True)
        return ops.sum(losses, axis=-1)


def build_loss(config) -> keras.losses.Loss:
    """Builds the loss of a run's `Config`.

    Without a pretext, it compares logits and one-hot or mixed targets, both `(B, C)`. With a
    pretext, it compares logits `(B, N, K)` with classes `(B, N)`, or predictions with targets, both
    `(B, N, D)`.
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
