"""Models as functions from images to embeddings: the head's input, one token, or all patches."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.config import DataConfig
from vit_keras.evaluation import feature_model, file_predictions, make_predictor, open_predictor
from vit_keras.evaluation.predictors import check_finite, filled
from vit_keras.evaluation.probes import unit_length, with_features
from vit_keras.layers import TakeClassToken
from vit_keras.models import patch_grid
from vit_keras.models.description import has_class_token
from vit_keras.retrieval.tables import Picture
from vit_keras.support.checks import check_choice
from vit_keras.support.files import sha256
from vit_keras.support.preprocessing import Preprocessing, as_inputs
from vit_keras.weights.containers.checks import digest


def embedding_model(
    model: keras.Model, layer: str | None = None, tokens: str = "pool"
) -> keras.Model:
    """Truncates a model at an embedding of its images; the weights are shared.

    Args:
        model: A functional image model.
        layer: The layer whose output is used. By default, "pool" uses the input of the layer
            `head`, and the others use the last layer that outputs tokens or a feature map.
        tokens: What to take from the output. "pool" takes the unchanged vector, `(B, D)`. "class"
            takes the class token, `(B, D)`. "mean" takes the mean of the patches, `(B, D)`.
            "patches" takes all patches, `(B, rows, columns, D)`.

    Returns:
        A model that maps images `(B, H, W, C)` to embeddings.

    Raises:
        ValueError: If there is no such layer, or if its output has no such tokens. The message
            lists suitable layers.

    Example:
        ```python
        features = retrieval.embedding_model(model, layer="encoderblock_11", tokens="mean")
        features.predict(images)  # (B, 768)
        ```
    """
    check_choice(tokens, TOKENS, "tokens")
    if tokens == "pool" and layer is None:
        embedding = feature_model(model).output
    else:
        outputs = {x.name: x.output for x in model.layers if _fits(model, x.output, tokens)}
        layer = next(reversed(outputs), None) if layer is None else layer
        if layer not in outputs:
            raise ValueError(
                f"`layer` must be a layer whose output has what tokens={tokens!r} takes. Received: "
                f"layer={layer!r} for model {model.name!r}, where these do: "
                f"{', '.join(map(repr, outputs)) or 'none'}"
            )
        embedding = TOKENS[tokens](model, outputs[layer])
    return with_features(model, embedding, "embedding")


def _fits(model, x, tokens):
    """Whether an output is one vector, or tokens `(B, T + N, D)`, or a map `(B, h, w, D)`."""
    if not isinstance(x, keras.KerasTensor) or x is model.input:
        return False
    if tokens == "pool" or len(x.shape) != 3:
        return len(x.shape) == {"pool": 2, "class": 3}.get(tokens, 4)
    rows, columns = patch_grid(model)
    if tokens == "class":
        return has_class_token(model) and x.shape[1] > rows * columns
    return x.shape[1] >= rows * columns


def _class(model, x):
    return TakeClassToken(dtype=x.dtype, name="class_embedding")(x)


def _patches(model, x):
    if len(x.shape) == 4:
        return x
    rows, columns = patch_grid(model)
    return ops.reshape(x[:, -rows * columns :], (-1, rows, columns, x.shape[-1]))


# The values of `tokens`: functions of the model and the output of a layer.
TOKENS: dict[str, Callable] = {
    "pool": lambda model, x: x,
    "class": _class,
    "mean": lambda model, x: ops.mean(_patches(model, x), axis=(1, 2)),
    "patches": _patches,
}


@dataclasses.dataclass(frozen=True)
class Embedder:
    """A function from images to embeddings, made by `open_embedder`.

    Attributes:
        run: Maps images `(B, H, W, C)`, prepared by `preprocessing`, to `(B, *shape)` float32.
        input_shape: (H, W, C).
        shape: The shape of an embedding: (D,), or (rows, columns, D) for all patches.
        preprocessing: Turns pictures into the images that `run` takes.
        description: JSON values that determine an embedding: the SHA-256 of the weights, the layer,
            the tokens, the preprocessing, and the size of the images.

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
        """The levels and bands with which to read pictures."""
        levels: Any = int(self.preprocessing.levels)
        return DataConfig(levels="float" if levels == 1 else levels, bands=self.preprocessing.bands)


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
        source: A run's folder, a checkpoint of any format, a Keras model, or a file exported with
            `--output features`.
        image_size: The side of the images in pixels, or their height and width, if different from
            the model's.
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
                "An exported file gives the input of the classifier, so it takes no `layer` and "
                f"only `tokens` 'pool'. Received: layer={layer!r}, tokens={tokens!r}. Give the "
                "run or the checkpoint that the file was made from"
            )
        run, shape, of_weights = predictor.run, (predictor.num_classes,), _sha256_of_files(source)
    else:
        model = embedding_model(predictor.model, layer, tokens)
        run, of_weights = model.predict_on_batch, sha256_of_weights(model)
        shape = tuple(model.compute_output_shape((1, *predictor.input_shape))[1:])
    description = {
        "weights": of_weights,
        "layer": layer,
        "tokens": tokens,
        "normalize": normalize,
        "shape": shape,
        "image_size": predictor.input_shape[:2],
        "channels": predictor.input_shape[2],
        "preprocessing": dataclasses.asdict(predictor.preprocessing),
    }

    def embed(images):
        vectors = np.asarray(run(as_inputs(images, predictor.preprocessing)), "float32")
        return unit_length(vectors) if normalize else vectors

    description = json.loads(json.dumps(description))  # as it is read back from a table
    return Embedder(embed, predictor.input_shape, shape, predictor.preprocessing, description)


def sha256_of_weights(model: keras.Model) -> str:
    """Returns the SHA-256 of a model's weights in order, whatever backend and file hold them."""
    return digest(("", keras.ops.convert_to_numpy(weight.value)) for weight in model.weights)


def _sha256_of_files(path):
    """Returns the SHA-256 of an exported file, or of all files in a SavedModel's folder."""
    path = pathlib.Path(path)
    beside = [path.with_suffix(".bin"), path.with_name(f"{path.name}.data")]  # weights
    files = sorted(path.rglob("*")) if path.is_dir() else [path, *beside]
    hashes = "".join(map(sha256, filter(pathlib.Path.is_file, files)))
    return hashlib.sha256(hashes.encode()).hexdigest()


def embed_batches(
    embedder: Embedder,
    pictures: Iterable[tuple[int, Picture]],
    read: Callable[[int, str, int], np.ndarray],
    *,
    batch: int,
    size: int,
    on_error: str = "raise",
) -> Generator[tuple[Sequence[Picture], np.ndarray, Sequence[str | None]], None, None]:
    """Embeds pictures in order, while threads read the next two batches.

    Args:
        embedder: From `open_embedder`.
        pictures: The pictures with their numbers.
        read: As in `PictureList`.
        batch: The largest number of pictures in a batch.
        size: The number of images in each call of the embedder. If there are fewer, the last image
            is repeated, since another number would recompile the model and change the last bits of
            an embedding.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to return a
            reason.

    Returns:
        An iterator of N pictures, their embeddings `(N, *shape)` float32, with zeros for unreadable
        pictures, and N reasons or None.

    Raises:
        ValueError: If `batch` or `on_error` is out of range. While iterating, if embeddings are
            not finite or, with "raise", if a picture cannot be read. The message names the file.
        OSError: While iterating with "raise", if a file does not exist or cannot be opened.
    """
    file_predictions.check_options(on_error, batch=batch)

    def prepare(numbered):
        number, picture = numbered
        pixels = read(number, picture.path, embedder.input_shape[-1])
        return file_predictions.prepared(embedder, pixels)

    batches = file_predictions.read_batches(prepare, pictures, batch, on_error)
    return _embed(embedder, batches, filled(embedder.run, size))


def _embed(embedder, batches, run):
    with contextlib.closing(batches):
        for rows in batches:
            numbered, images, errors = zip(*rows)
            vectors = np.zeros((len(rows), *embedder.shape), "float32")
            known = [number for number, error in enumerate(errors) if error is None]
            if known:
                vectors[known] = run(np.array([images[i] for i in known], "float32"))
            pictures = [picture for _, picture in numbered]
            for picture, vector in zip(pictures, vectors):
                check_finite(vector, picture.path)
            yield pictures, vectors, errors
