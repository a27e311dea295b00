"""Measures data sets in shards: images per second by format, and the opening of a large index.

    KERAS_BACKEND=jax python -m benchmarks.shard_reading                      # beside a folder
    KERAS_BACKEND=jax python -m benchmarks.shard_reading --server tar         # beside the disk
    KERAS_BACKEND=jax python -m benchmarks.shard_reading --groups 16 100 1000 # rows of Parquet
    KERAS_BACKEND=jax python -m benchmarks.shard_reading --records 10000000   # an index alone

Pipelines take turns, as in `benchmarks.input_pipeline`, which has the same pictures. The server is
on loopback; it waits before each answer, and does not answer every third request as it should. Rows
are read in random order, without decoding. The shards of a large index are files without content
but one picture each, to which all records lead.
"""

import argparse
import os
import pathlib
import tempfile
import time

import numpy as np

from benchmarks import memory
from benchmarks.input_pipeline import BATCH, compare, images_per_second, ours, write_images

FORMATS = ("tar", "tfrecord", "parquet")
SHARDS, CLASSES = 1000, 1000
LAG = 0.05  # seconds before each answer of the server
ROWS, ROW_BYTES, READS = 6400, 50_000, 500  # of Parquet
STEP = 1_000_000  # at which a run is resumed


def compare_formats(count: int, rounds: int) -> dict[str, float]:
    """Prints and returns the images per second of a folder and of each format."""
    from vit_keras import data
    from vit_keras.config import DataConfig

    with tempfile.TemporaryDirectory() as root:
        folder = pathlib.Path(root) / "folder"
        folder.mkdir()
        write_images(folder, count)
        choice = DataConfig(test_percent=0)
        dataset = data.load(f"folder:{folder}", 3, choice)
        splits = {"folder": dataset.split("train")}
        for kind in FORMATS:
            data.pack_shards(dataset, f"{root}/{kind}", format=kind, shard_mb=8)
            splits[kind] = data.load(f"shards:{root}/{kind}", 3, choice).split("train")
        for split in splits.values():
            images_per_second(ours(split, crop="inception"))  # warms caches
        pipelines = {name: ours(split, crop="inception") for name, split in splits.items()}
        return compare(pipelines, rounds)


def compare_server(count: int, rounds: int, kind: str) -> dict[str, float]:
    """Prints and returns the images per second of shards on the disk, and of a server's copies."""
    from tests.loopback import FileServer, every_third
    from vit_keras import data
    from vit_keras.config import DataConfig

    with tempfile.TemporaryDirectory() as root:
        os.environ |= {"KERAS_HOME": f"{root}/home", "no_proxy": "*"}
        folder = pathlib.Path(root) / "folder"
        folder.mkdir()
        write_images(folder, count)
        choice = DataConfig(test_percent=0)
        pictures = data.load(f"folder:{folder}", 3, choice)
        data.pack_shards(pictures, f"{root}/shards", format=kind, shard_mb=1)
        server = FileServer(pathlib.Path(root) / "shards")
        server.fails, server.lag = every_third, LAG
        with server.running():
            splits = {}
            for name, place in {"disk": f"{root}/shards", "server": server.url}.items():
                start = time.perf_counter()
                splits[name] = data.load(f"shards:{place}", 3, choice).split("train")
                print(f"{name}: first look after {time.perf_counter() - start:.1f} s")
            for split in splits.values():
                images_per_second(ours(split, crop="inception"))  # warms caches
            print(f"{len(server.requests)} requests, of which every third fails")
            pipelines = {name: ours(split, crop="inception") for name, split in splits.items()}
            return compare(pipelines, rounds)


def compare_groups(sizes: list[int]) -> None:
    """Prints the rows per second of Parquet files with groups of these sizes, and by `datasets`."""
    from vit_keras import data
    from vit_keras.config import DataConfig
    from vit_keras.data.shards import formats

    rng, choice = np.random.default_rng(0), DataConfig(test_percent=0)
    with tempfile.TemporaryDirectory() as root:
        os.environ |= {"KERAS_HOME": f"{root}/home", "HF_DATASETS_CACHE": f"{root}/hf"}
        for size in sizes:
            folder, formats.ROWS_IN_GROUP = pathlib.Path(root) / str(size), size
            folder.mkdir()
            with formats.parquet_writer(str(folder / "train.parquet"), ("a", "b")) as write:
                for row in range(ROWS):
                    write(f"{row}.jpg", rng.bytes(ROW_BYTES), row % 2)
            for source in ("shards", "hf"):
                split = data.load(f"{source}:{folder}", 3, choice).split("train")
                start = time.perf_counter()
                for row in rng.integers(0, ROWS, READS).tolist():
                    split.encoded(row)
                rate = READS / (time.perf_counter() - start)
                print(f"{source} of groups of {size} rows: {rate:,.0f} rows/s", flush=True)


def write_large(folder: pathlib.Path, records: int) -> None:
    """Writes shards without content, and an index of `records` pictures in them."""
    from PIL import Image

    from vit_keras.data import shards as source

    Image.new("RGB", (64, 64), "teal").save(folder / "picture.jpg")
    picture = (folder / "picture.jpg").read_bytes()
    (folder / "picture.jpg").unlink()
    for number in range(SHARDS):
        path = folder / f"{'test' if number == SHARDS - 1 else 'train'}-{number:05}.tar"
        path.write_bytes(picture)
        os.truncate(path, 2**30)  # which takes no room on the disk
    shards = source.find_shards(str(folder))
    flat = [shard for of_split in shards.splits.values() for shard in of_split]
    table = np.zeros(records, source.PLACE)
    table["length"] = len(picture)
    table["label"] = np.random.default_rng(0).integers(0, CLASSES, records)
    tables = np.array_split(table, SHARDS)
    files = source.ShardFiles(flat, 0)
    source.write_index(source.index_path(files, None), tables, ())


def open_large(records: int) -> None:
    """Prints what opening an index takes, and the first batch of a run that goes on at `STEP`."""
    from vit_keras import data

    with tempfile.TemporaryDirectory() as root:
        os.environ["KERAS_HOME"] = f"{root}/home"
        folder = pathlib.Path(root) / "shards"
        folder.mkdir()
        if os.fork() == 0:  # so that the memory of writing does not count
            write_large(folder, records)
            os._exit(0)
        if os.wait()[1]:
            raise RuntimeError("the index could not be written")
        data.load("digits", 3).split("train")  # imports what all data sets need
        before = _peak_mb()
        start = time.perf_counter()
        dataset = data.load(f"shards:{folder}", 3)
        opened = time.perf_counter() - start
        next(iter(_resumed(dataset.split("train"))))
        resumed = time.perf_counter() - start
        print(
            f"{records:,} records in {SHARDS} shards: open after {opened:.2f} s, first batch of "
            f"update {STEP:,} after {resumed:.2f} s; peak memory {before:.0f} MB before, "
            f"{_peak_mb():.0f} MB after"
        )


def _resumed(split):
    from vit_keras import data
    from vit_keras.config import AugmentConfig
    from vit_keras.models import Preprocessing

    return data.train_batches(
        split,
        image_size=(224, 224),
        preprocessing=Preprocessing(),
        batch=BATCH,
        augment_config=AugmentConfig(crop="inception"),
        seed=0,
        start_step=STEP,
        total_steps=STEP + 10,
        num_classes=CLASSES,
    )


def _peak_mb():
    return memory.peak() * 2**30 / 10**6


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--server", choices=FORMATS, help="compare a server with the disk instead")
    parser.add_argument("--records", type=int, help="open an index of that many records instead")
    parser.add_argument("--groups", type=int, nargs="+", help="time rows of Parquet instead")
    options = parser.parse_args()
    if options.groups:
        compare_groups(options.groups)
    elif options.records:
        open_large(options.records)
    elif options.server:
        compare_server(options.images, options.rounds, options.server)
    else:
        compare_formats(options.images, options.rounds)
