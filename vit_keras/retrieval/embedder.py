"""Opens a model as a function from images to embeddings that knows what it is."""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import os
import pathlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import keras
import numpy as np

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.evaluation import make_predictor, open_predictor
from vit_keras.evaluation.file_predictions import AHEAD, check_options, run_filled
from vit_keras.preprocessing import Preprocessing, as_inputs
from vit_keras.retrieval.embedding_model import embedding_model
from vit_keras.retrieval.pictures import Picture
from vit_keras.retrieval.tables import unit_length


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
    fields = sorted(dataclasses.asdict(preprocessing).items())
    return {name: list(x) if isinstance(x, tuple) else x for name, x in fields}


def embed_batches(
    embedder: Embedder,
    pictures: Iterable[tuple[int, Picture]],
    read: Callable[[int, str, int], np.ndarray],
    *,
    batch: int,
    size: int,
    on_error: str = "raise",
) -> Generator[tuple[Sequence[Picture], np.ndarray, Sequence[str | None]], None, None]:
    """Embeds pictures in their order, while threads read the next two batches.

    Args:
        embedder: From `open_embedder`.
        pictures: The pictures with their numbers.
        read: As in `PictureList`.
        batch: The most pictures in a batch.
        size: The number of images that the embedder gets in each call. The last image is repeated
            where there are fewer, since a model is compiled again for another number, and since
            the last bits of an embedding depend on it.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to give a reason.

    Returns:
        An iterator of N pictures, their embeddings `(N, *shape)` float32, which are zeros where a
        picture cannot be read, and N reasons or None.

    Raises:
        ValueError: If `batch` or `on_error` is out of range. While iterating, if embeddings are
            not finite or, with "raise", if a picture cannot be read. The message names the file.
        OSError: While iterating with "raise", if a file does not exist or cannot be opened.
    """
    check_options(batch, on_error)
    prepare = functools.partial(_prepare, embedder, read, on_error == "skip")
    return _embed(embedder, data.read_ahead(prepare, pictures, AHEAD * batch), batch, size)


def _embed(embedder, rows, batch, size):
    with contextlib.closing(rows):
        while chunk := list(itertools.islice(rows, batch)):
            pictures, images, errors = zip(*chunk)
            yield pictures, _run(embedder, pictures, images, size), errors


def _prepare(embedder, read, skip, numbered):
    """The picture, its image for the model or None, and why it cannot be read or None."""
    number, picture = numbered
    height, width, channels = embedder.input_shape
    try:
        pixels = read(number, picture.path, channels)
    except (OSError, ValueError) as error:
        if not skip:
            raise
        return picture, None, str(error)
    pixels = data.resize(pixels, (height, width), embedder.preprocessing)
    return picture, embedder.preprocessing.normalize(pixels), None


def _run(embedder, pictures: Sequence[Picture], images, size):
    present = [i for i, image in enumerate(images) if image is not None]
    embeddings = np.zeros((len(images), *embedder.shape), "float32")
    if present:
        stacked = np.stack([images[i] for i in present]).astype("float32")
        embeddings[present] = run_filled(embedder.run, stacked, size)
    (bad,) = np.nonzero(~np.isfinite(embeddings).reshape(len(images), -1).all(axis=1))
    if len(bad):
        raise ValueError(
            f"Embeddings must be finite. Received: NaN or infinity for {pictures[bad[0]].path!r}"
        )
    return embeddings
