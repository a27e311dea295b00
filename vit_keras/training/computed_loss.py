"""The loss of models that compute it themselves, and the metrics of pretexts."""

import keras


@keras.saving.register_keras_serializable(package="vit_keras")
class ComputedLoss(keras.losses.Loss):
    """The loss of a model that computes it itself, as the first number of each output `(B, n)`.

    Example:
        >>> outputs = np.array([[2.0, 0.1], [4.0, 0.3]])
        >>> float(vit_keras.training.ComputedLoss()(np.zeros((2, 2)), outputs))
        3.0
    """

    def call(self, y_true, y_pred):
        return y_pred[:, 0]


@keras.saving.register_keras_serializable(package="vit_keras")
def teacher_entropy(y_true, y_pred):
    """The entropy that `SelfDistillation` puts out beside its loss, `(B, 2)` -> `(B,)`."""
    return y_pred[:, 1]


def pretext_metrics(pretext) -> list:
    """Returns the metrics of a `PretextConfig`."""
    if pretext.is_dino:
        return [keras.metrics.MeanMetricWrapper(teacher_entropy, name="teacher_entropy")]
    return ["accuracy"] if pretext.predicts_colours else []
