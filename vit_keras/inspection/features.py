"""The outputs of a model's blocks, reduced to a few components that can be drawn as colors."""

import keras
import numpy as np

from vit_keras.layers import EncoderBlock, ResNetStage
from vit_keras.models import patch_grid
from vit_keras.models.surgery import backbone_of
from vit_keras.support import extras


def principal_components(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Computes the first principal components of samples.

    The samples are centered. Each direction has length 1, and its entry with the largest absolute
    value is positive.

    Args:
        x: Samples `(N, D)`.
        count: The number of components. At most min(N - 1, D) are returned.

    Returns:
        The directions `(K, D)` and their fractions of the variance `(K,)`.
    """
    purpose = {"extra": "data", "purpose": "A principal component"}
    count = min(count, len(x) - 1, x.shape[1])
    pca = extras.require("sklearn.decomposition", **purpose).PCA(count, svd_solver="full")
    with np.errstate(invalid="ignore"):  # fractions of zero variance, 0 / 0
        pca.fit(np.asarray(x, "float64"))
    return pca.components_, np.nan_to_num(pca.explained_variance_ratio_)


def feature_components(
    model: keras.Model, images: np.ndarray, count: int = 3, batch: int = 8
) -> dict[str, np.ndarray]:
    """Projects the outputs of each block onto their first principal components.

    A block's components are computed from its outputs for all patches of all images, so equal
    colors mean similar features (as in arXiv 2304.07193). Class tokens are left out.

    Args:
        model: A functional model with `EncoderBlock` layers, `ResNetStage` layers, or both.
        images: Images `(B, H, W, C)`, prepared for the model.
        count: K, the number of components.
        batch: The number of images per batch.

    Returns:
        `{name of the block: (B, h, w, K)}`. K is smaller than `count` if there are too few patches.

    Raises:
        ValueError: If the model has neither kind of layer.

    Example:
        >>> components = feature_components(model, images)
        >>> components["encoderblock_11"].shape  # (images, rows, columns, components)
        (8, 14, 14, 3)
    """
    model = backbone_of(model)
    blocks = [layer for layer in model.layers if isinstance(layer, (EncoderBlock, ResNetStage))]
    if not blocks:
        raise ValueError(
            "Features need a model with EncoderBlock or ResNetStage layers. "
            f"Received: model {model.name!r}, which has neither"
        )
    features = keras.Model(model.input, {block.name: block.output for block in blocks})
    outputs = features.predict(images, batch_size=batch, verbose=0)
    return {block.name: _project(model, outputs[block.name], count) for block in blocks}


def _project(model, x, count):
    """Maps `(B, T + N, D)` or `(B, h, w, D)` to `(B, h, w, K)`, without the T class tokens."""
    if x.ndim == 3:
        rows, columns = patch_grid(model)
        x = x[:, -rows * columns :].reshape(len(x), rows, columns, -1)
    samples = np.asarray(x, "float64").reshape(-1, x.shape[-1])
    directions, _ = principal_components(samples, count)
    return ((samples - samples.mean(axis=0)) @ directions.T).reshape(*x.shape[:3], -1)
