"""Filters, position embeddings, and the principal components of filters and of features."""

import keras
import numpy as np

from vit_keras import layers
from vit_keras.models import feature_pyramid, patch_grid
from vit_keras.models.surgery import backbone_of, blocks_of
from vit_keras.support import extras


def filter_components(model: keras.Model, count: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Computes the principal components of the filters that read the pixels (Figure 7, left).

    The filters are the D columns of the patch embedding or, in hybrids and ResNets, the root's
    standardized filters. The entry with the largest absolute value in each component is positive.

    Args:
        model: A functional model of this package, built with weights.
        count: The number of components.

    Returns:
        The components `(K, h, w, C)` and their fractions of the variance `(K,)`. K is smaller than
        `count` if there are fewer components.

    Raises:
        ValueError: If no `PatchEmbedding`, `StdConv` or `RootBlock` reads the pixels.
    """
    kinds = layers.PatchEmbedding, layers.StdConv, layers.RootBlock
    layer = _layers_of(model, *kinds)[0]  # in the order of computation
    layer = layer.conv_root if isinstance(layer, layers.RootBlock) else layer
    is_standardized = isinstance(layer, layers.StdConv)
    kernel = layer.standardized_kernel() if is_standardized else layer.kernel
    kernel = np.asarray(keras.ops.convert_to_numpy(kernel))  # (h, w, C, D)
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    components, fractions = principal_components(filters, count)
    return components.reshape(-1, *kernel.shape[:3]), fractions


def _layers_of(model, *kinds):
    """The layers of some kinds in a model, or in its backbone."""
    layers = [layer for layer in backbone_of(model).layers if isinstance(layer, kinds)]
    if not layers:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise ValueError(
            f"This view needs a model with any of these layers: {names}. Received: model "
            f"{model.name!r}, which has none"
        )
    return layers


def position_similarity(model: keras.Model) -> np.ndarray:
    """Computes the cosine similarities of all pairs of position embeddings (Figure 7, center).

    The class token's embedding is left out.

    Args:
        model: A functional model with an `AddPositionEmbs` layer; the first one is used.

    Returns:
        Similarities `(h, w, h, w)`: entry [i, j] is the map for the patch in row i and column j.

    Raises:
        ValueError: If the model has no learned position embeddings.

    Example:
        >>> similarity = position_similarity(model)
        >>> similarity[0, 0].shape  # of the first patch to all patches
        (14, 14)
    """
    added = _layers_of(model, layers.AddPositionEmbs)[0]
    rows, columns = patch_grid(model)
    table = np.asarray(keras.ops.convert_to_numpy(added.pos_embedding), "float64")[0]
    table = table[-rows * columns :]  # (N, D); class tokens come first
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    return (table @ table.T).reshape(rows, columns, rows, columns)


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
    count = min(count, len(x) - 1, x.shape[1])
    pca = extras.require("sklearn.decomposition").PCA(count, svd_solver="full")
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
    names = [block.layer.name for block in blocks_of(model)]
    maps = feature_pyramid(model, blocks=range(len(names)))
    outputs = keras.tree.flatten(maps.predict(images, batch_size=batch, verbose=0))
    return {name: _project(x, count) for name, x in zip(names, outputs)}


def _project(x, count):
    """Maps `(B, h, w, D)` to its principal components `(B, h, w, K)`."""
    samples = np.asarray(x, "float64").reshape(-1, x.shape[-1])
    directions, _ = principal_components(samples, count)
    return ((samples - samples.mean(axis=0)) @ directions.T).reshape(*x.shape[:3], -1)
