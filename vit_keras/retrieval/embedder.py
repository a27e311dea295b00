"""Models as functions from images to embeddings, and jobs that embed pictures piece by piece.

An embedding is the head's input, one token, or all patches.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
from collections.abc import Callable, Generator, Sequence
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
from vit_keras.retrieval import tables
from vit_keras.retrieval.tables import Picture, PictureList
from vit_keras.support import extras
from vit_keras.support.checks import check_choice, differences
from vit_keras.support.files import claimed_output, recover, remove_folder, sha256
from vit_keras.support.preprocessing import Preprocessing, as_inputs
from vit_keras.weights.containers.checks import digest


def embedding_model(
    model: keras.Model, layer: str | None = None, tokens: str = "pool"
) -> keras.Model:
    """Truncates a model at an embedding of its images; the weights are shared.

    Args:
        model: A functional image model.
        layer: The layer whose output is used. By default, "pool" uses the input of the layer
            `head`, and the other choices use the last layer that outputs tokens or a feature map.
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
    check_choice(tokens, ("pool", *TOKENS), "tokens")
    if tokens == "pool":
        return feature_model(model, layer)
    outputs = {x.name: x.output for x in model.layers if _fits(model, x.output, tokens)}
    layer = next(reversed(outputs), None) if layer is None else layer
    if layer not in outputs:
        raise ValueError(
            f"`layer` must name a layer whose output suits tokens={tokens!r}. Received: {layer!r} "
            f"for {model.name!r}, where these fit: {', '.join(map(repr, outputs)) or 'none'}"
        )
    return with_features(model, TOKENS[tokens](model, outputs[layer]), "embedding")


def _fits(model, x, tokens):
    """Whether an output is tokens `(B, T + N, D)` or, without class tokens, `(B, h, w, D)`."""
    if not isinstance(x, keras.KerasTensor) or x is model.input:
        return False
    if len(x.shape) != 3:
        return len(x.shape) == 4 and tokens != "class"
    patches = math.prod(patch_grid(model))
    if tokens == "class":
        return has_class_token(model) and x.shape[1] > patches
    return x.shape[1] >= patches


def _patches(model, x):
    if len(x.shape) == 4:
        return x
    rows, columns = patch_grid(model)
    return ops.reshape(x[:, -rows * columns :], (-1, rows, columns, x.shape[-1]))


# The values of `tokens` besides "pool": functions of the model and the output of a layer.
TOKENS: dict[str, Callable] = {
    "class": lambda model, x: TakeClassToken(dtype=x.dtype, name="class_embedding")(x),
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
                f"An exported file takes no `layer` and only tokens='pool'. Received: {layer=!r}, "
                f"{tokens=!r}. Give the run or the checkpoint that the file was made from"
            )
        run, shape, of_weights = predictor.run, (predictor.num_classes,), _sha256_of_files(source)
    else:
        model = embedding_model(predictor.model, layer, tokens)
        run, of_weights = model.predict_on_batch, sha256_of_weights(model)
        shape = tuple(model.compute_output_shape((1, *predictor.input_shape))[1:])
    preprocessing, (*size, channels) = predictor.preprocessing, predictor.input_shape
    chosen = {"layer": layer, "tokens": tokens, "normalize": normalize, "shape": shape}
    inputs = {"image_size": size, "channels": channels}
    resizing = {"preprocessing": dataclasses.asdict(preprocessing)}

    def embed(images):
        vectors = np.asarray(run(as_inputs(images, preprocessing)), "float32")
        return unit_length(vectors) if normalize else vectors

    # The description is the same when it is read back from a table.
    description = json.loads(json.dumps({"weights": of_weights, **chosen, **inputs, **resizing}))
    return Embedder(embed, predictor.input_shape, shape, preprocessing, description)


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
    embedder: Embedder, pictures: PictureList, *, batch: int, on_error: str, first: int = 0
) -> Generator[tuple[Sequence[Picture], np.ndarray, Sequence[str | None]], None, None]:
    """Embeds pictures in order, while threads read the next two batches.

    Args:
        embedder: From `open_embedder`.
        pictures: The pictures, and how to read them.
        batch: The number of images in each call of the embedder. In the last one, the last image is
            repeated, since another number would recompile the model and change the last bits of an
            embedding.
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to return a
            reason.
        first: The number of the first picture to embed.

    Returns:
        An iterator of batches: N pictures, their embeddings `(N, *shape)` float32, with zeros for
        unreadable pictures, and for each picture None or the reason why it cannot be read.

    Raises:
        ValueError: While iterating, if `batch` or `on_error` is out of range, if embeddings are not
            finite or, with "raise", if a picture cannot be read. The message names the file.
        OSError: While iterating with "raise", if a file does not exist or cannot be opened.
    """
    file_predictions.check_options(on_error, batch=batch)

    def prepare(numbered):
        number, picture = numbered
        pixels = pictures.read(number, picture.path, embedder.input_shape[-1])
        return file_predictions.prepared(embedder, pixels)

    run = filled(embedder.run, batch)
    left = itertools.islice(enumerate(pictures.pictures), first, None)
    batches = file_predictions.read_batches(prepare, left, batch, on_error)
    with contextlib.closing(batches):
        for rows in batches:
            numbered, images, errors = zip(*rows)
            vectors = np.zeros((len(rows), *embedder.shape), "float32")
            if readable := [image for image in images if image is not None]:
                vectors[[error is None for error in errors]] = run(np.array(readable, "float32"))
            for (_, picture), vector in zip(numbered, vectors):
                check_finite(vector, picture.path)
            yield [picture for _, picture in numbered], vectors, errors


PART_ROWS, PART_BYTES = 1024, 2**24  # limits of a part, which has at least one batch
ABOUT = ("model", "folder")  # what may differ when a job continues


class EmbeddingJob:
    """The work on one table of embeddings, which can continue after an interruption.

    Complete parts of the table lie in the folder `OUT.parts`; each is written under another name
    and then renamed. The last step joins them into the table, which appears in one step, and
    removes the folder. A process that is killed at any moment therefore loses at most one part,
    and a job with the same arguments continues and writes the same bytes.

    Args:
        embedder: From `open_embedder`.
        pictures: From `list_pictures`.
        out: The Parquet file to write.
        batch: The number of pictures per call of the embedder.
        dtype: The type of the numbers in the file, "float32" or "float16".
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to write a row
            with the reason and without an embedding.
        about: Additions to the table's description, such as the model's path. They may differ when
            a job continues.

    Attributes:
        total: The number of pictures.
        done: The number of pictures whose parts are complete.

    Raises:
        FileNotFoundError, ValueError: If a picture or a folder does not exist, as in
            `list_pictures`; if an argument is out of range; if another table exists at `out`; if
            another process is making the table; or if the model, an option or the pictures have
            changed since the first part (the message lists the changes).

    Example:
        ```python
        embedder = retrieval.open_embedder("runs/mine")
        pictures = retrieval.list_pictures(["folder:photos"])
        job = retrieval.EmbeddingJob(embedder, pictures, "features.parquet")
        for count in job.run():  # batch by batch
            print(job.done, job.total)
        ```
    """

    def __init__(
        self,
        embedder: Embedder,
        pictures: PictureList,
        out: str | os.PathLike,
        *,
        batch: int = 32,
        dtype: str = "float32",
        on_error: str = "raise",
        about: dict[str, Any] | None = None,
    ):
        extras.check("pyarrow", "PIL", extra="tables")
        file_predictions.check_options(on_error, batch=batch)
        check_choice(dtype, tables.DTYPES, "dtype")
        self.out = pathlib.Path(out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        listed = list(pictures.pictures)
        self.total = len(listed)
        common: Any = {"batch": min(batch, self.total), "on_error": on_error}
        pictures = pictures._replace(pictures=listed)
        self._embed = functools.partial(embed_batches, embedder, pictures, **common)
        digest = hashlib.sha256("".join(json.dumps(x) + "\n" for x in listed).encode())
        row_bytes = math.prod(embedder.shape) * np.dtype(dtype).itemsize
        self._rows = batch * max(1, min(PART_ROWS, PART_BYTES // row_bytes) // batch)
        known = {"dtype": dtype, "batch": batch, "backend": keras.backend.backend()}
        known["pictures"] = {"count": self.total, "sha256": digest.hexdigest()}
        self.description = embedder.description | known
        self.is_complete = self._open(about or {})
        self.schema = tables.schema(embedder.shape, dtype, self.description)

    @property
    def done(self) -> int:
        return self.total if self.is_complete else min(self._parts() * self._rows, self.total)

    def run(self) -> Generator[int, None, None]:
        """Embeds the remaining pictures, and yields the number of pictures in each batch.

        Raises:
            OSError, ValueError: If a picture cannot be read, unless it is skipped; if embeddings
                are not finite; or if the file cannot be written. Complete parts are kept.
        """
        if self.is_complete:
            return
        with claimed_output(self.out, "an embedding"):
            self.folder.mkdir(exist_ok=True)
            with contextlib.closing(self._embed(first=self.done)) as batches:
                for number in range(self._parts(), -(-self.total // self._rows)):
                    made = []
                    for batch in itertools.islice(batches, self._rows // self.description["batch"]):
                        made.append(tables.table_of(self.schema, *batch))
                        yield len(batch[0])
                    table = extras.require("pyarrow").concat_tables(made).combine_chunks()
                    tables.write(self._part(number), self.schema, [table])
            read = extras.require("pyarrow.parquet").read_table
            files = map(self._part, range(self._parts()))
            tables.write(self.out, self.schema, (read(x, schema=self.schema) for x in files))
            self.is_complete = True
            remove_folder(self.folder)

    def _open(self, about):
        """Begins the job, or checks that it is the same one; returns whether it is complete."""
        if self.out.exists():
            self._check_same(self.out, f"{str(self.out)!r} was made by another job")
            with contextlib.suppress(OSError, ValueError), claimed_output(self.out, "an embedding"):
                recover(self.out.parent)  # after a process that was killed at its end
                remove_folder(self.folder)
            return True
        with claimed_output(self.out, "an embedding"):
            if self._parts():
                self._check_same(self._part(0), f"{str(self.folder)!r} belongs to another job")
            else:
                self.description |= about
        return False

    def _check_same(self, file, which):
        """Continues the job that wrote `file`; a ValueError lists its differences from this one."""
        recorded, now = tables.EmbeddingTable(file).description, self.description
        if changes := differences(recorded, now, sorted({*recorded, *now} - {*ABOUT})):
            raise ValueError(f"{which} ({'; '.join(changes)}). Delete it, or give another --out")
        self.description = recorded

    def _part(self, number):
        return self.folder / f"{number:06}.parquet"

    def _parts(self):
        """Returns the number of complete parts."""
        return next(n for n in itertools.count() if not self._part(n).is_file())
