"""Embeds pictures piece by piece, so an interrupted job can continue."""

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import pathlib
from collections.abc import Generator
from typing import Any

import keras
import numpy as np

from vit_keras.evaluation.file_predictions import check_options
from vit_keras.retrieval import tables
from vit_keras.retrieval.embedder import Embedder, embed_batches
from vit_keras.retrieval.tables import PictureList
from vit_keras.support import extras
from vit_keras.support.checks import check_choice, differences, read_json
from vit_keras.support.files import claimed_output, remove_folder, remove_remains, write_text

PART_ROWS, PART_BYTES = 1024, 2**24  # limits of a part, which has at least one batch
ABOUT = ("model", "folder")  # what may differ when a job continues


class EmbeddingJob:
    """The work on one table of embeddings, which can continue after an interruption.

    Complete parts of the table lie in the folder `OUT.parts`; each is written under another name
    and then renamed. The last step joins them to the table, which appears at once, and removes the
    folder. A process that is killed at any moment therefore loses at most one part, and a job with
    the same arguments continues and writes the same bytes.

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
            `list_pictures`; if an argument is out of range; if another table exists at `out`; or if
            the model, an option or the pictures have changed since the job began (the message lists
            the changes). Also if another process is making the table.

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
        check_options(on_error, batch=batch)
        check_choice(dtype, tables.DTYPES, "dtype")
        self.out = pathlib.Path(out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self._pictures = list(pictures.pictures)
        self.total = len(self._pictures)
        told: Any = {"batch": batch, "size": min(batch, self.total), "on_error": on_error}
        self._embed = functools.partial(embed_batches, embedder, read=pictures.read, **told)
        digest = hashlib.sha256()
        for picture in self._pictures:
            digest.update(json.dumps(picture).encode() + b"\n")
        row_bytes = math.prod(embedder.shape) * np.dtype(dtype).itemsize
        self._rows = batch * max(1, min(PART_ROWS, PART_BYTES // row_bytes) // batch)
        self.description = embedder.description | {
            "dtype": dtype,
            "batch": batch,
            "backend": keras.backend.backend(),
            "pictures": {"count": self.total, "sha256": digest.hexdigest()},
        }
        self.is_complete = self._open(about or {})
        self.schema = tables.schema(embedder.shape, dtype, self.description)

    @property
    def done(self) -> int:
        return self.total if self.is_complete else min(self._parts() * self._rows, self.total)

    def run(self) -> Generator[int, None, None]:
        """Embeds the remaining pictures, and yields the number in each batch.

        Raises:
            OSError, ValueError: If a picture cannot be read, without "skip"; if embeddings are not
                finite; or if the file cannot be written. Complete parts are kept.
        """
        if self.is_complete:
            return
        with claimed_output(self.out, "an embedding"):
            left = enumerate(itertools.islice(self._pictures, self.done, None), self.done)
            with contextlib.closing(self._embed(pictures=left)) as batches:
                for number in range(self._parts(), -(-self.total // self._rows)):
                    made = []
                    for batch in itertools.islice(batches, self._rows // self.description["batch"]):
                        made.append(tables.table_of(self.schema, *batch))
                        yield len(batch[0])
                    table = tables.arrow().concat_tables(made).combine_chunks()
                    tables.write(self._part(number), self.schema, [table])
            read = tables.arrow("pyarrow.parquet").read_table
            files = map(self._part, range(self._parts()))
            tables.write(self.out, self.schema, (read(x, schema=self.schema) for x in files))
            self.is_complete = True
            remove_folder(self.folder)

    def _open(self, about):
        """Begins the job, or checks that it is the same one; returns whether it is complete."""
        began, remedy = self.folder / "job.json", f"Remove {str(self.folder)!r} to begin again"
        if not began.is_file() and self.out.exists():
            recorded = tables.EmbeddingTable(self.out).description
            self._check_same(recorded, f"{str(self.out)!r} was made by another job")
            with contextlib.suppress(OSError, ValueError), claimed_output(self.out, "an embedding"):
                remove_remains(self.folder)  # left by a process that was killed at the end
                remove_remains(self.out)
            return True
        with claimed_output(self.out, "an embedding"):
            if began.is_file():
                recorded = read_json(began, remedy=remedy)
                self._check_same(recorded, f"{str(self.folder)!r} belongs to another job")
            else:
                self.folder.mkdir(exist_ok=True)
                self.description |= about
                write_text(began, json.dumps(self.description, sort_keys=True))
        return False

    def _check_same(self, recorded, which):
        """Continues a recorded job; a ValueError lists all its differences from this one."""
        now = self.description
        if changes := differences(recorded, now, sorted({*recorded, *now} - {*ABOUT})):
            raise ValueError(
                f"{which} ({'; '.join(changes)}). Give another --out, or remove it to begin again"
            )
        self.description = recorded

    def _part(self, number):
        return self.folder / f"{number:06}.parquet"

    def _parts(self):
        """Returns the number of complete parts."""
        return next(n for n in itertools.count() if not self._part(n).is_file())
