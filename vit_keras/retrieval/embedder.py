"""Opens a model as a function from images to embeddings that knows what it is."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from vit_keras.config import DataConfig
from vit_keras.evaluation import make_predictor, open_predictor
from vit_keras.preprocessing import Preprocessing, as_inputs
from vit_keras.retrieval.embedding_model import embedding_model


@dataclasses.dataclass(frozen=True)
class Embedder:
    """A function from images to embeddings, made by `open_embedder`.

    Attributes:
        run: Maps images `(B, H, W, C)`, prepared as `preprocessing` says, to `(B, *shape)` float32.
        input_shape: (H, W, C).
        shape: The shape of an embedding: (D,), or (rows, columns, D) for all patches.
        preprocessing: How pictures become the images that `run` takes.
        description: What decides the values of an embedding, as JSON can hold it: the SHA-256 of
            the weights, the layer, the tokens, the preprocessing, and the size of the images.

    Example:
        ```python
        embedder = retrieval.open_embedder("runs/mine", tokens="mean")
        embedder.run(images)  # (B, 768)
        ```
    """

    run: Callable[[np.ndarray], np.ndarray]
    input_shape: tuple[int, int, int]
    shape: tuple[int, ...]
    preprocessing: Preprocessing
    description: dict[str, Any]

    @property
    def pixels(self) -> DataConfig:
        """The levels and the bands by which pictures are read."""
        levels: Any = {1: "float"}.get(
            int(self.preprocessing.levels), int(self.preprocessing.levels)
        )
        return DataConfig(levels=levels, bands=self.preprocessing.bands)


def open_embedder(
    source: str | os.PathLike | keras.Model,
    image_size: int | tuple[int, int] | None = None,
    *,
    layer: str | None = None,
    tokens: str = "pool",
    normalize: bool = False,
) -> Embedder:
    """Opens a model as a function from images to embeddings.

    Args:
        source: A run's folder, a checkpoint of any format, a Keras model, or a file that was
            exported with `--output features`.
        image_size: The side of the images in pixels, or their height and width, if it is not the
            model's.
        layer: As in `embedding_model`; an exported file has no layers to choose from.
        tokens: As in `embedding_model`; an exported file gives "pool".
        normalize: Whether to divide each vector by its Euclidean length.

    Raises:
        FileNotFoundError: If there is nothing at `source`.
        ValueError: If the model has no such layer or tokens, or if an exported file gives classes.

    Example:
        ```python
        embedder = retrieval.open_embedder("ViT-B_16.npz", layer="encoderblock_11", tokens="class")
        embedder.shape  # (768,)
        ```
    """
    if isinstance(source, keras.Model):
        predictor = make_predictor(source, image_size)
    else:
        predictor, _ = open_predictor(source, image_size, features=True)
    if predictor.model is None:
        if layer is not None or tokens != "pool":
            raise ValueError(
                "An exported file gives what the classifier reads, so it takes no `layer` and "
                f"`tokens` 'pool' alone. Received: layer={layer!r}, tokens={tokens!r}. Give the "
                "run or the checkpoint that the file was made of"
            )
        run, shape, digest = predictor.run, (predictor.num_classes,), _sha256_of_files(source)
    else:
        model = embedding_model(predictor.model, layer, tokens)
        run, digest = model.predict_on_batch, sha256_of_weights(model)
        shape = tuple(model.compute_output_shape((1, *predictor.input_shape))[1:])
    description = {
        "weights": digest,
        "layer": layer,
        "tokens": tokens,
        "normalize": normalize,
        "shape": list(shape),
        "image_size": list(predictor.input_shape[:2]),
        "channels": predictor.input_shape[2],
        "preprocessing": _pixels(predictor.preprocessing),
    }
    scale = unit_length if normalize else (lambda x: x)
    return Embedder(
        lambda images: scale(
            np.asarray(run(as_inputs(images, predictor.preprocessing)), "float32")
        ),
        predictor.input_shape,
        shape,
        predictor.preprocessing,
        description,
    )


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Divides vectors `(..., D)` by their Euclidean lengths; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def sha256_of_weights(model: keras.Model) -> str:
    """The SHA-256 of a model's weights in their order, whatever backend and file hold them."""
    digest = hashlib.sha256()
    for weight in model.weights:
        values = np.asarray(keras.ops.convert_to_numpy(weight.value))
        digest.update(f"{values.shape} {values.dtype}".encode())
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _sha256_of_files(path):
    """The SHA-256 of an exported file, or of all files in a SavedModel's folder."""
    path = pathlib.Path(path)
    beside = [path.with_suffix(".bin"), path.with_name(f"{path.name}.data")]  # weights
    files = sorted(path.rglob("*")) if path.is_dir() else [path, *beside]
    digest = hashlib.sha256()
    for file in filter(pathlib.Path.is_file, files):
        digest.update(os.fsencode(file.name))
        digest.update(hashlib.file_digest(file.open("rb"), "sha256").digest())
    return digest.hexdigest()


def _pixels(preprocessing):
    """The fields for JSON."""
    fields = dataclasses.asdict(preprocessing)
    return {k: list(v) if isinstance(v, tuple) else v for k, v in sorted(fields.items())}
