"""PatchDropout: training on a part of the patches (arXiv 2208.07220)."""

import keras
from keras import ops

from vit_keras.layers.base import SeededLayer, check_kept


@keras.saving.register_keras_serializable(package="vit_keras")
class PatchDropout(SeededLayer):
    """Keeps a random part of the patches of each image in training.

    Of P patches, max(1, round(P · `keep_rate`)) stay in their order, drawn anew for each image and
    step. At inference all stay, and nothing is scaled. The layer must follow the position
    embeddings. Source: arXiv 2208.07220.

    Args:
        keep_rate: The part of the patches that stays, above 0 and at most 1.
        class_tokens: The number of tokens before the patches; they always stay.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        `(B, N, D)`.

    Output shape:
        `(B, N', D)` in training, `(B, N, D)` at inference.

    Raises:
        ValueError: If `keep_rate` is not above 0 and at most 1.

    Example:
        >>> layer = vit_keras.layers.PatchDropout(keep_rate=0.25, class_tokens=1)
        >>> keras.ops.shape(layer(np.ones((2, 197, 8)), training=True))
        (2, 50, 8)
    """

    def __init__(self, keep_rate: float, class_tokens: int = 0, **kwargs):
        super().__init__(**kwargs)
        check_kept(keep_rate=keep_rate)
        self.keep_rate, self.class_tokens = keep_rate, class_tokens
        self.seed_generator = keras.random.SeedGenerator(self.fold_in("patches"))

    def kept(self, tokens: int) -> int:
        """Returns how many of `tokens` tokens, class token included, stay in training."""
        return self.class_tokens + max(1, round((tokens - self.class_tokens) * self.keep_rate))

    def call(self, x, training=None):
        tokens, first = x.shape[1], self.class_tokens
        count = self.kept(tokens) - first
        if not training or count == tokens - first:
            return x
        shape = (ops.shape(x)[0], tokens - first)
        numbers = keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)
        places = ops.sort(ops.top_k(numbers, count, sorted=False)[1], axis=-1) + first  # (B, N')
        kept = ops.take_along_axis(x, ops.expand_dims(places, -1), axis=1)
        return ops.concatenate([x[:, :first], kept], axis=1) if first else kept

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        config = {"keep_rate": self.keep_rate, "class_tokens": self.class_tokens}
        return {**super().get_config(), **config}
