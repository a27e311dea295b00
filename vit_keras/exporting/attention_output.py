"""Attention rollout as a second output of an exported graph."""

import keras
import numpy as np
from keras import ops

from vit_keras.layers import EncoderBlock
from vit_keras.models import ImageModel, patch_grid
from vit_keras.models.description import has_class_token
from vit_keras.models.surgery import refuse_windows


@keras.saving.register_keras_serializable(package="vit_keras")
class Rollout(keras.layers.Layer):
    """Attention rollout (arXiv 2005.00928) from the classifier to the image: `(B, h, w)`.

    The inputs are the attention `(B, N, N)` of every block in order, averaged over heads. For the
    last block, the class token's row `(B, 1, N)` is enough. As in `inspection.attention_rollout`,
    the layer multiplies the means of attention and identity. It follows the class token's row, or
    the mean of the patches' rows in a model without a class token.

    Args:
        grid: The numbers of patches along both sides of an image, (h, w).
        class_token: Whether the first token is a class token.
    """

    def __init__(self, grid, class_token: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.grid, self.class_token = tuple(grid), class_token

    def call(self, maps):
        tokens, patches = maps[-1].shape[-1], self.grid[0] * self.grid[1]
        if self.class_token:
            first = ops.one_hot(0, tokens, dtype=maps[-1].dtype)
            row = 0.5 * (ops.reshape(first, (1, 1, tokens)) + maps[-1][:, :1])
        else:
            mean = np.zeros((1, 1, tokens), "float32")
            mean[..., -patches:] = 1 / patches
            mean = ops.convert_to_tensor(mean, dtype=maps[-1].dtype)
            row = 0.5 * (mean + ops.mean(maps[-1][:, -patches:], axis=1, keepdims=True))
        for attention in reversed(maps[:-1]):
            row = 0.5 * (row + ops.matmul(row, attention))  # (B, 1, N)
        return ops.reshape(row[:, 0, tokens - patches :], (-1, *self.grid))

    def compute_output_shape(self, map_shapes):
        return (map_shapes[0][0], *self.grid)

    def get_config(self):
        config = {"grid": self.grid, "class_token": self.class_token}
        return {**super().get_config(), **config}


def check(model: keras.Model, token_merging: int = 0) -> None:
    """Checks that `model` can output attention over its patches.

    Raises:
        ValueError: If the model has no EncoderBlock layers or no grid of patches, if blocks attend
            within windows, or if token merging would lose patches.
    """
    if token_merging:
        raise ValueError(
            "Attention over the patches needs all patches: export either with token merging or "
            f"with attention. Received: token_merging={token_merging}, attention=True"
        )
    if not any(isinstance(layer, EncoderBlock) for layer in model.layers):
        raise ValueError(
            "Attention needs a model with EncoderBlock layers. "
            f"Received: model {model.name!r}, which has none"
        )
    refuse_windows(model, "Outputs of attention")
    patch_grid(model)


def with_rollout(model: ImageModel, maps: list) -> ImageModel:
    """Returns a model with two outputs: the output of `model` and the rollout of `maps`."""
    place = patch_grid(model), has_class_token(model)
    rollout = Rollout(*place, dtype="float32", name="attention")(maps)
    return ImageModel(model.input, [model.output, rollout], name=model.name)
