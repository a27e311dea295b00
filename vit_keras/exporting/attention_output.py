"""Where the answer comes from in the image, as a second output of the graph."""

import keras
from keras import ops

from vit_keras.layers import EncoderBlock
from vit_keras.models import ImageModel, patch_grid


@keras.saving.register_keras_serializable(package="vit_keras")
class Rollout(keras.layers.Layer):
    """Attention rollout (arXiv 2005.00928) from the classifier to the image: `(B, h, w)`.

    Called with each block's attention `(B, N, N)`, the mean over its heads, first block first; of
    the last one the class token's row `(B, 1, N)` is enough. Halves of the attention and of the
    identity are multiplied, as in `inspection.attention_rollout`; the row that is followed is the
    class token's or, where the N tokens are all of the `grid` (h, w), the mean of all.
    """

    def __init__(self, grid, **kwargs):
        super().__init__(**kwargs)
        self.grid = tuple(grid)

    def call(self, maps):
        tokens, patches = maps[-1].shape[-1], self.grid[0] * self.grid[1]
        if tokens > patches:
            row = 0.5 * (ops.reshape(ops.one_hot(0, tokens), (1, 1, tokens)) + maps[-1][:, :1])
        else:
            row = 0.5 * (1 / tokens + ops.mean(maps[-1], axis=1, keepdims=True))
        for attention in reversed(maps[:-1]):
            row = 0.5 * (row + ops.matmul(row, attention))  # (B, 1, N)
        return ops.reshape(row[:, 0, tokens - patches :], (-1, *self.grid))

    def compute_output_shape(self, map_shapes):
        return (map_shapes[0][0], *self.grid)

    def get_config(self):
        return {**super().get_config(), "grid": self.grid}


def check(model: keras.Model, token_merging: int = 0) -> None:
    """ValueError where a model has no attention to show, or loses its patches on the way."""
    if token_merging:
        raise ValueError(
            "Attention over the patches needs them all: export with token merging or with "
            f"attention. Received: r={token_merging}"
        )
    if not any(isinstance(layer, EncoderBlock) for layer in model.layers):
        raise ValueError("Attention is that of EncoderBlock layers. Received: a model without")
    patch_grid(model)


def beside(model: ImageModel, maps: list) -> ImageModel:
    """The model with two outputs: its own, and the rollout of `maps` in its graph."""
    rollout = Rollout(patch_grid(model), dtype="float32", name="attention")(maps)
    return ImageModel(model.input, [model.output, rollout], name=model.name)
