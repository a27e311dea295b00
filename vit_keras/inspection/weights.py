"""What a model's weights show without an image: its filters and its position embeddings."""

import keras
import numpy as np

from vit_keras.inspection.pca import principal_components
from vit_keras.layers import AddPositionEmbs, PatchEmbedding, RootBlock, StdConv
from vit_keras.models import patch_grid


def filter_components(model: keras.Model, count: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """Principal components `(K, h, w, C)` of the filters that read the pixels, and their shares.

    The filters are the D columns of the patch embedding (Figure 7, left), in a hybrid or a ResNet
    the standardised ones of its root. The shares of the variance are `(K,)`; K is `count`, or as
    many as there are. Signs as in `principal_components`. Raises ValueError where no layer of the
    kind reads the pixels.
    """
    kernel = np.asarray(keras.ops.convert_to_numpy(_pixel_kernel(model)))  # (h, w, C, D)
    filters = kernel.reshape(-1, kernel.shape[-1]).T
    components, shares = principal_components(filters, count)
    return components.reshape(-1, *kernel.shape[:3]), shares


def _pixel_kernel(model):
    for layer in model.layers:  # in the order of the computation
        if isinstance(layer, PatchEmbedding):
            return layer.kernel
        if isinstance(layer, StdConv):
            return layer.standardized_kernel()
        if isinstance(layer, RootBlock):
            return layer.conv_root.standardized_kernel()
    raise ValueError(
        "Filters are read from a PatchEmbedding, StdConv or RootBlock layer. "
        f"Received: model {model.name!r} with none of them"
    )


def position_similarity(model: keras.Model) -> np.ndarray:
    """Cosine similarity of each patch's position embedding with all, `(h, w, h, w)` (Figure 7).

    The class token's is left out. Raises ValueError unless the model adds one set of learned
    embeddings.
    """
    added = [layer for layer in model.layers if isinstance(layer, AddPositionEmbs)]
    if len(added) != 1:
        raise ValueError(
            "The similarity of positions is read from the model's one AddPositionEmbs layer. "
            f"Received: model {model.name!r} with {len(added)} of them"
        )
    rows, columns = patch_grid(model)
    table = np.asarray(keras.ops.convert_to_numpy(added[0].pos_embedding), "float64")[0]
    table = table[-rows * columns :]  # (N, D); class tokens come first
    table = table / np.linalg.norm(table, axis=1, keepdims=True)
    return (table @ table.T).reshape(rows, columns, rows, columns)
