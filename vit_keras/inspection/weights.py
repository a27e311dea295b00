"""Properties of a model's weights that need no images: filters and position embeddings."""

import keras
import numpy as np

from vit_keras.inspection.features import principal_components
from vit_keras.layers import AddPositionEmbs, PatchEmbedding, RootBlock, StdConv
from vit_keras.models import patch_grid
from vit_keras.models.surgery import backbone_of


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
    kernel = np.asarray(keras.ops.convert_to_numpy(_pixel_kernel(model)))  # (h, w, C, D)
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    components, shares = principal_components(filters, count)
    return components.reshape(-1, *kernel.shape[:3]), shares


def _pixel_kernel(model):
    model = backbone_of(model)
    for layer in model.layers:  # in the order of computation
        if isinstance(layer, PatchEmbedding):
            return layer.kernel
        if isinstance(layer, StdConv):
            return layer.standardized_kernel()
        if isinstance(layer, RootBlock):
            return layer.conv_root.standardized_kernel()
    raise ValueError(
        "Filters need a model with a PatchEmbedding, StdConv or RootBlock layer. "
        f"Received: model {model.name!r}, which has none"
    )


def position_similarity(model: keras.Model) -> np.ndarray:
    """Computes the cosine similarities of all pairs of position embeddings (Figure 7, center).

    The class token's embedding is left out.

    Args:
        model: A functional model with one `AddPositionEmbs` layer.

    Returns:
        Similarities `(h, w, h, w)`: entry [i, j] is the map for the patch in row i and column j.

    Raises:
        ValueError: If the model has no learned position embeddings, or several sets.

    Example:
        >>> similarity = position_similarity(model)
        >>> similarity[0, 0].shape  # of the first patch to all patches
        (14, 14)
    """
    model = backbone_of(model)
    added = [layer for layer in model.layers if isinstance(layer, AddPositionEmbs)]
    if len(added) != 1:
        raise ValueError(
            "The similarity of positions needs a model with one AddPositionEmbs layer. "
            f"Received: model {model.name!r} with {len(added)} of them"
        )
    rows, columns = patch_grid(model)
    table = np.asarray(keras.ops.convert_to_numpy(added[0].pos_embedding), "float64")[0]
    table = table[-rows * columns :]  # (N, D); class tokens come first
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    return (table @ table.T).reshape(rows, columns, rows, columns)
