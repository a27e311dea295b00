"""What attention does: how far it looks, how it spreads, and where it gets to.

Attention is `(B, L, H, N, N)`: images, layers, heads, queries, keys; its rows sum to 1. Of the N
tokens the last h·w are the patches of a `grid` (h, w), row by row; class tokens come before them.
"""

import dataclasses
import functools
from collections.abc import Iterator

import keras
import numpy as np

from vit_keras.models import attention_maps, attention_rollout, patch_grid


def patch_distances(grid: tuple[int, int], image_size: tuple[int, int]) -> np.ndarray:
    """Pixels between the centres of all pairs of patches, `(h·w, h·w)`, in the input image."""
    steps = (size / cells for size, cells in zip(image_size, grid))
    axes = np.meshgrid(
        *(np.arange(cells) * step for cells, step in zip(grid, steps)), indexing="ij"
    )
    centers = np.stack(axes, axis=-1).reshape(-1, 2)
    return np.linalg.norm(centers[:, None] - centers[None], axis=-1)


def attention_distance(
    attention: np.ndarray, grid: tuple[int, int], image_size: tuple[int, int]
) -> np.ndarray:
    """Mean attention distance in pixels of each layer and head, `(L, H)` (Figures 7 and 11).

    For a query patch, the distances to all patches (to itself 0) weighted by its attention; mean
    over queries and images. Class tokens are no place in the image: they are left out as queries
    and as keys, and the weights on the patches are scaled to sum to 1.
    """
    patches = _patches(attention, grid)
    weighted = np.einsum("blhqk,qk->blhq", patches, patch_distances(grid, image_size))
    return (weighted / patches.sum(axis=-1)).mean(axis=(0, 3))


def attention_entropy(attention: np.ndarray) -> np.ndarray:
    """Entropy of the weights of a query in nats, mean over all queries and images, `(L, H)`.

    Between 0, one token attended to, and ln N, all alike; class tokens are tokens here.
    """
    attention = np.asarray(attention, "float64")
    logarithm = np.log(attention, out=np.zeros_like(attention), where=attention > 0)
    return -(attention * logarithm).sum(axis=-1).mean(axis=(0, 3))


def read_out(weights: np.ndarray, grid: tuple[int, int]) -> np.ndarray:
    """From `(..., N, N)`, what the classifier takes of each patch, `(..., h, w)`.

    That is the class token's row or, where there is none, the mean of all rows.
    """
    rows, columns = grid
    queries = weights[..., 0, :] if weights.shape[-1] > rows * columns else weights.mean(axis=-2)
    return queries[..., -rows * columns :].reshape(*queries.shape[:-1], rows, columns)


@dataclasses.dataclass(frozen=True)
class AttentionViews:
    """What `attention_views` finds.

    Attributes:
        distance_px: mean attention distance, `(L, H)`.
        entropy_nats: mean entropy, `(L, H)`.
        rollout: from the classifier to the image, `(B, h, w)`.
        last_layer: attention of the last layer from the class token, else the mean over tokens,
            head by head, `(B, H, h, w)`.
        tokens: N, of which entropy is at most the logarithm.
    """

    distance_px: np.ndarray
    entropy_nats: np.ndarray
    rollout: np.ndarray
    last_layer: np.ndarray
    tokens: int


def attention_views(
    model: keras.Model, images: np.ndarray, heads: str = "mean", batch: int = 4
) -> AttentionViews:
    """All views of the attention that prepared `images` `(B, H, W, C)` cause, in one pass.

    `heads` is `attention_rollout`'s. `batch` images are held at a time, each with L·H·N² weights.
    Raises ValueError where the model has no transformer.
    """
    grid, size = patch_grid(model), tuple(model.input_shape[1:3])
    found = []
    for attention in _attention(model, images, batch):
        distance = attention_distance(attention, grid, size)
        rollout = read_out(attention_rollout(attention, heads), grid)
        last_layer = read_out(attention[:, -1], grid)
        found.append((distance, attention_entropy(attention), rollout, last_layer))
    distances, entropies, rollouts, last_layers = zip(*found)
    mean = functools.partial(np.average, axis=0, weights=[len(rollout) for rollout in rollouts])
    return AttentionViews(
        mean(distances),
        mean(entropies),
        np.concatenate(rollouts),
        np.concatenate(last_layers),
        tokens=attention.shape[-1],
    )


def _attention(model, images, batch) -> Iterator[np.ndarray]:
    maps = attention_maps(model)
    for start in range(0, len(images), batch):
        yield np.asarray(maps.predict_on_batch(images[start : start + batch]))


def _patches(attention, grid):
    count = grid[0] * grid[1]
    return np.asarray(attention, "float64")[..., -count:, -count:]
