"""Embeds pictures piece by piece, so that a stopped job goes on where it was."""

import contextlib
import functools
import itertools
import json
import math
import os
import pathlib
from collections.abc import Generator, Iterator
from typing import Any, TypedDict

import keras
import numpy as np

from vit_keras import extras
from vit_keras.file_lock import claimed_output
from vit_keras.files import remove_folder, remove_remains, replacing, write_text
from vit_keras.json_files import read_json
from vit_keras.retrieval import tables
from vit_keras.retrieval.batches import check_options, embed_batches
from vit_keras.retrieval.embedder import Embedder
from vit_keras.retrieval.job_files import check_same, list_once, read_pictures
from vit_keras.retrieval.picture_lists import PictureList

PART_ROWS, PART_BYTES = 1024, 2**24  # of a part, at most; a batch at least


class Recorded(TypedDict):
    """What `job.json` must hold."""

    pictures: dict[str, Any]


class EmbeddingJob:
    """The work on one table of embeddings, which goes on after a stop.

    Complete parts of the table lie in the folder `OUT.parts`, each written beside its place and
    then renamed. The last step joins them to the table, which appears at once, and removes the
    folder. A process that is killed at any moment therefore loses one part at most, and a job with
    the same arguments goes on to the same bytes. Memory does not grow with the number of pictures.

    Args:
        embedder: From `open_embedder`.
        pictures: From `list_pictures`.
        out: The Parquet file to write.
        batch: The number of pictures per call of the embedder.
        dtype: The type of the numbers in the file, "float32" or "float16".
        on_error: `"raise"` to stop at a picture that cannot be read, or `"skip"` to write a row
            with the reason and without an embedding.
        about: More to write into the table's description, such as the model's path. It may differ
            between a job and the one that goes on.

    Attributes:
        total: The number of pictures.
        done: The number of pictures whose parts are complete.

    Raises:
        FileNotFoundError, ValueError: If a picture or a folder does not exist, as `list_pictures`
            says; if an argument is out of range; if there is a table at `out` already that was made
            otherwise; or if the model, an option or the pictures have changed since the job began.
            The message lists the changes. Also if another process makes the table.

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
        _check(batch, dtype, on_error, out)
        self.out = pathlib.Path(out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self._embedder, self._pictures = embedder, pictures
        self._batch, self._on_error = batch, on_error
        row_bytes = math.prod(embedder.shape) * np.dtype(dtype).itemsize
        self._rows = batch * max(1, min(PART_ROWS, PART_BYTES // row_bytes) // batch)
        options = {"dtype": dtype, "batch": batch, "backend": keras.backend.backend()}
        self.description = embedder.description | options
        self.is_complete = self._open(about or {})
        self.schema = tables.schema(embedder.shape, dtype, self.description)
        self.total = self.description["pictures"]["count"]

    @property
    def done(self) -> int:
        if self.is_complete:
            return self.total
        return min(self._parts() * self._rows, self.total)

    def run(self) -> Generator[int, None, None]:
        """Embeds the pictures that are left, and yields the number in each batch.

        Raises:
            OSError, ValueError: If a picture cannot be read, without "skip"; if embeddings are not
                finite; or if the file cannot be written. The parts stay.
        """
        if self.is_complete:
            return
        with claimed_output(self.out, "an embedding"):
            yield from self._embed()

    def _embed(self):
        """Makes the parts that are left and joins them."""
        rows = enumerate(itertools.islice(read_pictures(self.folder), self.done, None), self.done)
        batches = embed_batches(
            self._embedder,
            rows,
            self._pictures.read,
            batch=self._batch,
            size=min(self._batch, self.total),
            on_error=self._on_error,
        )
        with contextlib.closing(batches):
            for number in range(self._parts(), -(-self.total // self._rows)):
                part = itertools.islice(batches, self._rows // self._batch)
                yield from self._make_part(number, part)
        self._join()

    def _open(self, about):
        """Begins the job or checks that it is the same; returns whether it is complete."""
        began = self.folder / "job.json"
        if not began.is_file() and self.out.exists():
            recorded = tables.EmbeddingTable(self.out).description
            self.description |= {"pictures": list_once(self._pictures, None)}
            check_same(recorded, self.description, f"{str(self.out)!r} is complete, of another job")
            self.description = recorded
            with contextlib.suppress(OSError, ValueError), claimed_output(self.out, "an embedding"):
                remove_remains(self.folder)  # of a process that was killed at the end
                remove_remains(self.out)
            return True
        with claimed_output(self.out, "an embedding"):
            self._begin(began, about)
        return False

    def _begin(self, began, about):
        """Begins the job, or checks that it is the one that goes on."""
        if began.is_file():
            recorded = read_json(began, Recorded, f"Remove {str(self.folder)!r} to begin again")
            self.description |= {"pictures": recorded["pictures"]}
            check_same(recorded, self.description, f"{str(self.folder)!r} belongs to another job")
            list_once(self._pictures, self.folder)
            self.description = recorded
            return
        self.folder.mkdir(exist_ok=True)
        self.description |= {"pictures": list_once(self._pictures, self.folder)} | about
        write_text(began, json.dumps(self.description, sort_keys=True))

    def _part(self, number):
        return self.folder / f"{number:06}.parquet"

    def _parts(self):
        """The number of complete parts."""
        return next(n for n in itertools.count() if not self._part(n).is_file())

    def _make_part(self, number, batches) -> Iterator[int]:
        made = []
        for pictures, embeddings, errors in batches:
            made.append(tables.batch_of(self.schema, pictures, embeddings, errors))
            yield len(pictures)
        table = tables.arrow().Table.from_batches(made).combine_chunks()
        with (
            replacing(self._part(number)) as temporary,
            open(temporary, "wb") as file,  # whose errors say more than Arrow's
            tables.open_writer(file, self.schema) as writer,
        ):
            writer.write_table(table)

    def _join(self):
        """Joins the parts to the table, one in memory at a time, and removes their folder."""
        read = functools.partial(tables.arrow("pyarrow.parquet").read_table, schema=self.schema)
        with (
            replacing(self.out) as temporary,
            open(temporary, "wb") as file,
            tables.open_writer(file, self.schema) as writer,
        ):
            for number in range(self._parts()):
                writer.write_table(read(self._part(number)))
        self.is_complete = True
        remove_folder(self.folder)


def _check(batch, dtype, on_error, out):
    extras.check("pyarrow", "PIL", extra="tables", purpose="Embedding pictures")
    check_options(batch, on_error)
    if dtype not in tables.DTYPES:
        raise ValueError(
            f"`dtype` must be {' or '.join(map(repr, tables.DTYPES))}. Received: dtype={dtype!r}"
        )
    if pathlib.Path(out).suffix.lower() != ".parquet":
        raise ValueError(f"`out` must end in .parquet. Received: {os.fspath(out)!r}")
