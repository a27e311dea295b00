"""The share of the ten nearest neighbors that `search` finds at its defaults.

    python -m benchmarks.search_recall --kind clusters --width 384

makes a table of random vectors, builds its index, and compares the neighbors of 500 new vectors
with those of a search through all rows. `--kind` is "normal" (independent normal numbers, the
hardest case), "clusters" (1 000 centers with noise) or "planes" (16 dimensions with noise).
"""

import argparse
import pathlib
import tempfile
import time

import numpy as np

from vit_keras.retrieval import EmbeddingTable, Picture, exact_neighbors, open_index, tables

QUERIES, COUNT = 500, 10


def normal(rng, count, width):
    return rng.normal(size=(count, width))


def clusters(rng, count, width):
    centers = rng.normal(size=(1000, width))
    return centers[rng.integers(0, len(centers), count)] + 0.3 * rng.normal(size=(count, width))


def planes(rng, count, width):
    base = rng.normal(size=(count, 16)) @ rng.normal(size=(16, width))
    return base + 0.1 * rng.normal(size=(count, width))


KINDS = {"normal": normal, "clusters": clusters, "planes": planes}


def write_table(path: pathlib.Path, vectors: np.ndarray, piece: int = 1024) -> EmbeddingTable:
    """Writes vectors `(N, D)` as `vit-keras embed` would."""
    about = {"shape": [vectors.shape[1]], "dtype": "float32"}
    schema = tables.schema(about["shape"], about["dtype"], about)
    groups = []
    for start in range(0, len(vectors), piece):
        rows = vectors[start : start + piece]
        pictures = [Picture(f"{start + i}.png") for i in range(len(rows))]
        groups.append(tables.table_of(schema, pictures, rows, [None] * len(rows)))
    tables.write(path, schema, groups)
    return EmbeddingTable(path)


def seconds_of(function, *arguments):
    began = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="normal")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    vectors = KINDS[options.kind](rng, options.rows + QUERIES, options.width).astype("float32")
    with tempfile.TemporaryDirectory() as folder:
        table = write_table(pathlib.Path(folder, "table.parquet"), vectors[QUERIES:])
        tables.EXACT_NUMBERS = 0  # so that any table has an index
        index, build_s = seconds_of(open_index, table)
        near, search_s = seconds_of(index.search, vectors[:QUERIES], COUNT)
        exact, exact_s = seconds_of(exact_neighbors, table, vectors[:QUERIES], COUNT)
    shares = [np.isin(e.rows, n.rows).mean() for e, n in zip(exact, near)]
    print(
        f"{options.kind} {options.width}: recall {np.mean(shares):.4f}, "
        f"built in {build_s:.0f} s, {1e3 * search_s / QUERIES:.2f} ms a query "
        f"(all rows: {1e3 * exact_s / QUERIES:.2f} ms)"
    )


if __name__ == "__main__":
    main()
