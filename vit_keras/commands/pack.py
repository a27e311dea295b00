"""Pack a data set into shards: tar, Parquet or TFRecord files.

examples:
  vit-keras pack folder:photos --out shards
  vit-keras pack folder:imagenet --out shards --format tfrecord --image_size 256
  vit-keras pack tfds:cifar10 --out cifar --shard_mb 64
"""

from vit_keras.commands import options as shared
from vit_keras.config import DataConfig


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    from vit_keras.data.shards.formats import FORMATS

    add("dataset", "DATASET", "a name as in `vit-keras train --dataset`")
    add("--out", "PATH", "a new folder for the shards", shared.folder, required=True)
    add("--format", "NAME", "", default="tar", names=FORMATS)
    side = "reduce larger pictures to this shorter side, as JPEG (files are copied as they are)"
    add("--image_size", "PIXELS", side, shared.count)
    add("--shard_mb", "MB", "size of a shard", shared.count, 256)
    percent = "of each class to hold out, if the data set has no held-out split"
    add("--test_percent", "PERCENT", percent, float, 10.0)
    flag("--unlabeled", "pictures need no classes")
    add("--data_dir", "DIR", "folder of TensorFlow Datasets")
    add("--label_columns", "NAME", "column of a table's labels (label)", default="")


def run(options: shared.Options) -> None:
    from vit_keras import data
    from vit_keras.support.command_line import visible
    from vit_keras.support.files import claimed_output

    fields = ("data_dir", "test_percent", "label_columns")
    config = DataConfig(**{name: getattr(options, name) for name in fields})
    dataset = data.load(options.dataset, 3, config, labeled=not options.unlabeled)
    total = sum(map(len, dataset.splits.values()))
    choices = {name: getattr(options, name) for name in ("format", "image_size", "shard_mb")}
    with (
        claimed_output(options.out, "a packing"),
        shared.progress(total=total, leave=False) as bar,
    ):
        manifest = data.pack_shards(dataset, options.out, progress=bar.update, **choices)
    for note in dataset.notes:
        print(visible(note))
    for split, entries in manifest["splits"].items():
        images, size = (sum(entry[key] for entry in entries) for key in ("images", "bytes"))
        print(f"{split}: {images:,} pictures, shards: {len(entries)}, {size / 1e6:,.1f} MB")
    print(f"written: {options.out}; train with --dataset shards:{options.out}")
