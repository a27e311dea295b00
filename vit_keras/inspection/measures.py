"""What a model has learned: filters, positions, features, and how far and wide attention looks.

Attention weights are `(B, L, H, N, N)`, for images, layers, heads, queries and keys, and each row
sums to 1. The last h·w of the N tokens are the patches of a `grid` (h, w) in raster order; class
tokens and registers come before them.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import keras
import numpy as np

from vit_keras import layers, models
from vit_keras.models import attention_rollout
from vit_keras.models.description import has_class_token
from vit_keras.models.surgery import backbone_of, blocks_of, covered_size, read_out
from vit_keras.support import extras


def patch_distances(grid: tuple[int, int], image_size: tuple[int, int]) -> np.ndarray:
    """Computes the distances between the centers of all pairs of patches.

    Args:
        grid: The rows and columns of patches, (h, w).
        image_size: (height, width) of the pixels that the patches cover.

    Returns:
        Distances in pixels, `(h·w, h·w)`.
    """
    centers = np.indices(grid).reshape(2, -1).T * np.divide(image_size, grid)  # (h·w, 2)
    return np.linalg.norm(centers[:, None] - centers[None], axis=-1)


def attention_distance(
    attention: np.ndarray, grid: tuple[int, int], image_size: tuple[int, int]
) -> np.ndarray:
    """Computes the mean attention distance of each layer and head (Figures 7 and 11).

    The distance of a query patch is the mean of its distances to all patches, weighted by its
    attention; its distance to itself is 0. Class tokens have no place in the image, so they are
    left out as queries and as keys. The weights on the patches are rescaled to sum to 1.

    Args:
        attention: Attention weights `(B, L, H, N, N)`, as `models.attention_maps` returns them.
        grid: The rows and columns of patches, (h, w).
        image_size: (height, width) of the pixels that the patches cover.

    Returns:
        Distances in pixels `(L, H)`, averaged over queries and images.

    Example:
        >>> uniform = np.full((1, 1, 1, 4, 4), 0.25)  # one head, looking at 2 x 2 patches equally
        >>> attention_distance(uniform, (2, 2), (32, 32))  # (0 + 16 + 16 + 16·√2) / 4
        array([[13.65685425]])
    """
    count = grid[0] * grid[1]
    patches = np.asarray(attention, "float64")[..., -count:, -count:]
    weighted = np.einsum("blhqk,qk->blhq", patches, patch_distances(grid, image_size))
    return (weighted / patches.sum(axis=-1)).mean(axis=(0, 3))


def attention_entropy(attention: np.ndarray) -> np.ndarray:
    """Computes the mean entropy of the attention weights of each layer and head.

    The entropy lies between 0, where a query attends to one token, and ln N, where it attends to
    all tokens equally. Class tokens are counted like any other token.

    Args:
        attention: Attention weights `(B, L, H, N, N)`.

    Returns:
        Entropies in nats `(L, H)`, averaged over queries and images.

    Example:
        >>> attention_entropy(np.full((1, 1, 1, 4, 4), 0.25))  # ln 4
        array([[1.38629436]])
    """
    attention = np.asarray(attention, "float64")
    logarithm = np.log(attention, out=np.zeros_like(attention), where=attention > 0)
    return -(attention * logarithm).sum(axis=-1).mean(axis=(0, 3))


@dataclasses.dataclass(frozen=True)
class AttentionViews:
    """The results of `attention_views`.

    Attributes:
        distance_px: The mean attention distance in pixels, `(L, H)`.
        entropy_nats: The mean entropy in nats, `(L, H)`.
        rollout: How much of each patch reaches the classifier, `(B, h, w)`.
        last_layer: The attention weights of each head in the last layer, `(B, H, h, w)`: the class
            token's or, in a model without one, the mean over the patches.
        tokens: N, the number of tokens. The entropy is at most ln N.

    Example:
        ```python
        views = attention_views(model, images)
        views.distance_px[0].max()  # the farthest-looking head of the first block
        views.entropy_nats / np.log(views.tokens)  # 1 if a head looks at all tokens equally
        ```
    """

    distance_px: np.ndarray
    entropy_nats: np.ndarray
    rollout: np.ndarray
    last_layer: np.ndarray
    tokens: int


def rollout_function(
    model: keras.Model, heads: str = "mean", batch: int = 4
) -> Callable[[np.ndarray], np.ndarray]:
    """Makes a function of images that returns how much of each patch reaches the classifier.

    Args:
        model: A functional model with `EncoderBlock` layers.
        heads: How the rollout joins heads, "mean" or "max".
        batch: The number of images per batch. Each image needs memory for L·H·N² weights.

    Returns:
        A function of images `(B, H, W, C)`, prepared for the model, that returns `(B, h, w)`.

    Raises:
        ValueError: If the model has no `EncoderBlock`, or one that attends within windows. The
            returned function raises ValueError if `heads` is unknown.

    Example:
        >>> rollout = rollout_function(model)
        >>> rollout(images).shape  # (images, rows, columns)
        (8, 14, 14)
    """
    model = backbone_of(model)
    maps = models.attention_maps(model)
    place = models.patch_grid(model), has_class_token(model)
    batches = lambda images: _attention(maps, images, batch)
    read = lambda attention: read_out(attention_rollout(attention, heads), *place)
    return lambda images: np.concatenate([*map(read, batches(images))])


def attention_views(
    model: keras.Model, images: np.ndarray, heads: str = "mean", batch: int = 4
) -> AttentionViews:
    """Computes all measures of the attention that a model pays to images, in one pass.

    Args:
        model: A functional model with `EncoderBlock` layers.
        images: Images `(B, H, W, C)`, prepared for the model.
        heads: How the rollout joins heads, "mean" or "max".
        batch: The number of images per batch. Each image needs memory for L·H·N² weights.

    Returns:
        `AttentionViews`.

    Raises:
        ValueError: If the model has no `EncoderBlock`, or one that attends within windows, or if
            `heads` is unknown.

    Example:
        >>> views = attention_views(model, images)
        >>> views.distance_px.shape  # (layers, heads)
        (12, 12)
    """
    model = backbone_of(model)
    grid, size = models.patch_grid(model), covered_size(model)
    place, batches = (grid, has_class_token(model)), []
    for attention in _attention(models.attention_maps(model), images, batch):
        batch_views = {
            "distance_px": attention_distance(attention, grid, size),
            "entropy_nats": attention_entropy(attention),
            "rollout": read_out(attention_rollout(attention, heads), *place),
            "last_layer": read_out(attention[:, -1], *place),
        }
        batches.append(batch_views)
    mean = functools.partial(np.average, axis=0, weights=[len(x["rollout"]) for x in batches])
    join = {"distance_px": mean, "entropy_nats": mean}
    joined = {k: join.get(k, np.concatenate)([x[k] for x in batches]) for k in batch_views}
    return AttentionViews(**joined, tokens=attention.shape[-1])


def _attention(maps, images, batch) -> Iterator[np.ndarray]:
    for start in range(0, len(images), batch):
        yield np.asarray(maps.predict_on_batch(images[start : start + batch]))


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
    rows, columns = models.patch_grid(model)
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
    maps = models.feature_pyramid(model, blocks=range(len(names)))
    outputs = keras.tree.flatten(maps.predict(images, batch_size=batch, verbose=0))
    return {name: _project(x, count) for name, x in zip(names, outputs)}


def _project(x, count):
    """Maps `(B, h, w, D)` to its principal components `(B, h, w, K)`."""
    samples = np.asarray(x, "float64").reshape(-1, x.shape[-1])
    directions, _ = principal_components(samples, count)
    return ((samples - samples.mean(axis=0)) @ directions.T).reshape(*x.shape[:3], -1)
