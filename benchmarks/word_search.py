"""How long a table of many pictures takes to answer a text.

    python examples/captions.py captions
    KERAS_BACKEND=torch python -m benchmarks.word_search captions/model --rows 100000

writes a table of random vectors as `vit-keras embed captions/model` would, and times the first and
the later calls of `retrieval.search_texts`, and a whole `vit-keras search` in a new process.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

from vit_keras import retrieval
from vit_keras.retrieval import Picture, tables

PIECE = 1024  # rows of a group
TEXTS = ("a red star at the top left", "a blue circle at the bottom right")


def write_table(path, description, count):
    width = description["shape"][0]
    schema = tables.schema(description["shape"], "float32", description)
    rng, groups = np.random.default_rng(0), []
    for start in range(0, count, PIECE):
        rows = rng.normal(size=(min(PIECE, count - start), width)).astype("float32")
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        pictures = [Picture(f"{start + i}.png") for i in range(len(rows))]
        groups.append(tables.table_of(schema, pictures, rows, [None] * len(rows)))
    tables.write(path, schema, groups)


def seconds_of(function, *arguments, **options):
    began = time.perf_counter()
    result = function(*arguments, **options)
    return result, time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder of both towers with their tokenizer")
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    embedder = retrieval.open_embedder(options.model, layer="head")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "clip.parquet")
        about = {**embedder.description, "dtype": "float32", "model": options.model}
        write_table(path, about, options.rows)
        table, opened_s = seconds_of(retrieval.EmbeddingTable, path)
        print(
            f"{options.rows:,} rows of {embedder.description['shape']}: opened in {opened_s:.2f} s"
        )
        for text in (*TEXTS, *TEXTS):
            (answer,), taken_s = seconds_of(retrieval.search_texts, table, [text])
            print(f"{taken_s:.2f} s: {text}, {answer.matches[0].similarity:.3f}", flush=True)
        line = [sys.executable, "-m", "vit_keras", "search", TEXTS[0], str(path)]
        _, taken_s = seconds_of(subprocess.run, line, check=True, capture_output=True)
        print(f"{taken_s:.2f} s: the command, with the start of Python and of Keras")


if __name__ == "__main__":
    sys.exit(main())
