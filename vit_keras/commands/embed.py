"""Write the features of pictures.

To continue a stopped command, repeat it; until it ends, its parts are in PATH.parts. The
columns are path, label, split, embedding and error.

examples:
  vit-keras embed runs/digits folder:photos --out features.parquet    # with labels and splits
  vit-keras embed ViT-B_16.npz photos 'more/**/*.jpg' --normalize --out features.parquet
  vit-keras embed runs/digits digits --layer encoderblock_2 --tokens mean --out mean.parquet
  vit-keras embed runs/digits photos --tokens patches --dtype float16 --out patches.parquet
  find photos -name '*.jpg' | vit-keras embed runs/digits - --out features.parquet
"""

import dataclasses
import os
import sys

from vit_keras import retrieval
from vit_keras.commands import options as shared


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("model", "MODEL", "run, checkpoint of any format, or exported features")
    pictures = "files, folders, patterns, - for standard input, or a data set such as folder:PATH"
    add("pictures", "PICTURE", pictures, nargs="+")
    add("--out", "PATH", "the .parquet file to write", shared.ending(".parquet"), required=True)
    add("--layer", "NAME", "layer whose output is used (what the classifier reads)")
    tokens = (
        "pool (one vector), class (the class token), mean (of the patches) or patches (all of them)"
    )
    add("--tokens", "NAME", tokens, default="pool")
    flag("--normalize", "divide each vector by its length")
    add("--dtype", "NAME", "float32 or float16", default="float32")
    shared.add_image_size(add)
    add("--batch", "N", "pictures per step", shared.count, 32)
    add("--data_dir", "DIR", "folder of TensorFlow Datasets")
    flag("--skip_unreadable", "write an unreadable picture without an embedding, and continue")


def run(options: shared.Options) -> None:
    chosen = {name: getattr(options, name) for name in ("layer", "tokens", "normalize")}
    embedder = retrieval.open_embedder(options.model, shared.image_size(options), **chosen)
    pictures = retrieval.list_pictures(
        shared.arguments(options.pictures),
        embedder.input_shape[-1],
        dataclasses.replace(embedder.pixels, data_dir=options.data_dir),
    )
    job = retrieval.EmbeddingJob(
        embedder,
        pictures,
        options.out,
        batch=options.batch,
        dtype=options.dtype,
        on_error=shared.on_error(options),
        about={"model": os.path.abspath(options.model), "folder": os.getcwd()},
    )
    if job.is_complete:
        print(f"already complete: {options.out}, {job.total:,} pictures")
        return
    if job.done:
        print(f"continues after {job.done:,} of {job.total:,} pictures", file=sys.stderr)
    with shared.progress(total=job.total, initial=job.done) as bar:
        for count in job.run():
            bar.update(count)
    table = retrieval.EmbeddingTable(options.out)
    print(f"written: {options.out}, {len(table):,} pictures of {'x'.join(map(str, table.shape))}")
    if errors := table.count_errors():
        print(f"{errors} of {len(table)} pictures could not be read", file=sys.stderr)
