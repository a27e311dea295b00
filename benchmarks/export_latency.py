"""Size and one-thread latency of a variant's TFLite files, interleaved: what each rewrite brings.

    python benchmarks/export_latency.py Ti/16          # the model as it is, rewritten, int8
    python benchmarks/export_latency.py S/16 --batch 8 # several images a call
    python benchmarks/export_latency.py S/16 --batch 8 --keras  # the same models in Keras

Weights are initial ones: size and speed do not depend on them. Times are medians of rounds in
which all take turns; `x` is how many times as fast as the first row, turn by turn, and quartiles.
"""

import argparse
import os
import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from benchmarks.turns import table

ROWS = {
    "as it is": None,
    "rewritten": (0, "constant"),
    "token merging 8": (8, "constant"),
    "token merging 8, decreasing": (8, "decreasing"),
    "token merging 13": (13, "constant"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variant")
    parser.add_argument("--keras", action="store_true", help="time Keras, not LiteRT")
    parser.add_argument("--batch", type=int, default=1, help="images a call")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of LiteRT")
    options = parser.parse_args()

    from vit_keras import models
    from vit_keras.exporting import for_inference, metadata, open_file, quantize
    from vit_keras.exporting.targets import write_litert

    model = models.from_variant(options.variant, image_size=224, num_classes=1000)
    made = {name: for_inference(model, *how) if how else model for name, how in ROWS.items()}
    images = np.random.default_rng(0).normal(size=(options.batch, 224, 224, 3)).astype("float32")
    if options.keras:
        runs = {name: lambda m=m: m.predict_on_batch(images) for name, m in made.items()}
        return table(runs, options.rounds)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, rewritten) in enumerate(made.items()):  # files are mapped while they run
            path, small = f"{folder}/{i}.tflite", f"{folder}/{i}_int8.tflite"
            write_litert(rewritten, path, options.batch)
            quantize.litert_int8(path, small)
            for label, file in ((name, path), (f"{name}, int8", small)):
                metadata.attach(file, options.variant, None, 3)
                run = open_file(file, options.threads)
                runs[label] = lambda run=run: run(images)
                print(f"{label:<36} {os.path.getsize(file) / 1e6:8.2f} MB")
    return table(runs, options.rounds)


if __name__ == "__main__":
    main()
