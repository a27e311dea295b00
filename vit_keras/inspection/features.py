"""What the blocks compute, as colours."""

import keras
import numpy as np

from vit_keras.inspection.pca import principal_components
from vit_keras.layers import EncoderBlock, ResNetStage
from vit_keras.models import patch_grid


def feature_components(
    model: keras.Model, images: np.ndarray, count: int = 3, batch: int = 8
) -> dict[str, np.ndarray]:
    """`{block: (B, h, w, K)}`: its outputs for each patch on their first K = `count` components.

    Components are those of a block's outputs for all patches of all `images` `(B, H, W, C)`,
    prepared for the model, so that equal colours mean like features (as in arXiv 2304.07193).
    Blocks are the encoder's, without class tokens, and the stages of a ResNet. Raises ValueError
    where the model has neither.
    """
    blocks = [layer for layer in model.layers if isinstance(layer, (EncoderBlock, ResNetStage))]
    if not blocks:
        raise ValueError(
            "Features are read from EncoderBlock and ResNetStage layers. "
            f"Received: model {model.name!r} with none of them"
        )
    outputs = keras.Model(model.input, {block.name: block.output for block in blocks})
    found = outputs.predict(images, batch_size=batch, verbose=0)
    return {block.name: _project(model, found[block.name], count) for block in blocks}


def _project(model, x, count):
    """`(B, T + N, D)` or `(B, h, w, D)` -> `(B, h, w, K)`."""
    if x.ndim == 3:
        rows, columns = patch_grid(model)
        x = x[:, -rows * columns :].reshape(len(x), rows, columns, -1)
    samples = np.asarray(x, "float64").reshape(-1, x.shape[-1])
    directions, _ = principal_components(samples, count)
    return ((samples - samples.mean(axis=0)) @ directions.T).reshape(*x.shape[:3], -1)
