"""Layers of text towers: token embeddings, attention masks, and the pooled token."""

import keras
from keras import ops

from vit_keras.layers.base import Layer, Normal, SeededLayer
from vit_keras.layers.common import check_choice, check_positive

POOLINGS = ("largest", "end", "last", "first")


@keras.saving.register_keras_serializable(package="vit_keras")
class TextEmbedding(SeededLayer):
    """Looks up the embeddings of tokens and adds those of their positions.

    The weights `token_embedding` `(V, D)` and `pos_embedding` `(L, D)` start as N(0, 0.02²).

    Args:
        vocab_size: V, the number of tokens in the vocabulary.
        context_length: L, the largest number of tokens in a text.
        hidden_size: D, the width of the tokens.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        Ids `(B, N)`, int32, with N at most L.

    Output shape:
        `(B, N, D)`.

    Raises:
        ValueError: If a size is not a positive int, or a text is longer than L tokens.

    Example:
        >>> layer = vit_keras.layers.TextEmbedding(49408, context_length=77, hidden_size=512)
        >>> keras.ops.shape(layer(np.array([[49406, 320, 49407]])))
        (1, 3, 512)
    """

    def __init__(self, vocab_size: int, context_length: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size, self.context_length = vocab_size, context_length
        self.hidden_size = hidden_size
        check_positive(**self.sizes)

    @property
    def sizes(self) -> dict[str, int]:
        """The arguments, by name."""
        return {
            name: getattr(self, name) for name in ("vocab_size", "context_length", "hidden_size")
        }

    def build(self, input_shape):
        rows = {"token_embedding": self.vocab_size, "pos_embedding": self.context_length}
        for name, count in rows.items():
            shape = (count, self.hidden_size)
            setattr(self, name, self.seeded_weight(name, shape, Normal, 0.02))

    def call(self, input_ids):
        if (input_ids.shape[1] or 0) > self.context_length:
            raise ValueError(
                f"Texts must have at most context_length={self.context_length} tokens. "
                f"Received: input_ids of shape {tuple(input_ids.shape)}"
            )
        places = self.pos_embedding[: ops.shape(input_ids)[1]]
        return ops.take(self.token_embedding, input_ids, axis=0) + places

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.hidden_size)


@keras.saving.register_keras_serializable(package="vit_keras")
class TextMask(Layer):
    """Makes the mask of the tokens that each token of a text may attend to.

    Args:
        causal: Whether tokens attend only to themselves and those before them.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        Ids `(B, N)` and, optionally, an attention mask `(B, N)`, 0 for tokens to ignore.

    Output shape:
        Booleans `(B, N, N)`, or `(B, 1, N)` if not causal.

    Example:
        >>> ids, keys = np.array([[4, 5, 0]]), np.array([[1, 1, 0]])
        >>> mask = vit_keras.layers.TextMask(causal=True)(ids, keys)
        >>> keras.ops.convert_to_numpy(mask)[0].astype(int).tolist()
        [[1, 0, 0], [1, 1, 0], [1, 1, 0]]
    """

    def __init__(self, causal: bool, **kwargs):
        super().__init__(**kwargs)
        self.causal = causal

    def build(self, input_ids_shape, attention_mask_shape=None):
        pass  # Keras' default takes the shape of one input only

    def call(self, input_ids, attention_mask=None):
        keys = ops.ones_like(input_ids) if attention_mask is None else attention_mask
        mask = ops.cast(keys, "bool")[:, None]
        if not self.causal:
            return mask
        places = ops.arange(ops.shape(input_ids)[1])
        return ops.logical_and(mask, places[:, None] >= places)

    def compute_output_spec(self, input_ids, attention_mask=None):
        batch, tokens = input_ids.shape
        shape = (batch, tokens if self.causal else 1, tokens)
        return keras.KerasTensor(shape, dtype="bool")


@keras.saving.register_keras_serializable(package="vit_keras")
class TakeToken(Layer):
    """Takes one token of each text.

    Args:
        pooling: Which one: the token with the "largest" id, as in OpenAI's code; the first "end"
            token, or the first token if a text has none; the "last" token; or the "first".
        end_id: The id of the end token, for "end".
        **kwargs: Arguments of `keras.layers.Layer`.

    Input shape:
        Tokens `(B, N, D)` and their ids `(B, N)`.

    Output shape:
        `(B, D)`.

    Raises:
        ValueError: If `pooling` is unknown.

    Example:
        >>> tokens = np.array([[[1.0], [2.0], [3.0]]])
        >>> taken = vit_keras.layers.TakeToken("end", end_id=7)(tokens, np.array([[9, 7, 7]]))
        >>> float(taken[0, 0])
        2.0
    """

    def __init__(self, pooling: str, end_id: int | None = None, **kwargs):
        super().__init__(**kwargs)
        check_choice(pooling, POOLINGS, "pooling")
        self.pooling, self.end_id = pooling, end_id

    def build(self, x_shape, input_ids_shape):
        pass  # Keras' default takes the shape of one input only

    def call(self, x, input_ids):
        if self.pooling in ("last", "first"):
            return x[:, -1 if self.pooling == "last" else 0]
        scores = input_ids if self.pooling == "largest" else ops.equal(input_ids, self.end_id)
        scores, tokens = ops.cast(scores, "int32"), ops.shape(input_ids)[1]
        top = scores == ops.max(scores, axis=1, keepdims=True)
        place = ops.min(ops.where(top, ops.arange(tokens), tokens), axis=1)  # the first of equals
        return ops.take_along_axis(x, place[:, None, None], axis=1)[:, 0]
