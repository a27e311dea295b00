"""Measures the size and the latency of a variant's TFLite files before and after each rewrite.

    python -m benchmarks.export_latency Ti/16                     # fp32 and int8 files
    python -m benchmarks.export_latency S/16 --batch 8            # eight images a call
    python -m benchmarks.export_latency S/16 --batch 8 --keras    # the same models in Keras

The files take turns, and each runs on one thread. The table has the median time and `x`, how many
times as fast as the first row a file is: the median over the turns, with quartiles. Weights are
initial values, since size and speed do not depend on them.
"""

import argparse
import os
import tempfile

import numpy as np

from benchmarks.turns import print_cpu_times

REWRITES = {  # the arguments of `for_inference`: pairs merged a block, and the schedule
    "as it is": None,
    "token merging 8": (8, "constant"),
    "token merging 8, decreasing": (8, "decreasing"),
    "token merging 13": (13, "constant"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variant")
    parser.add_argument(
        "--keras", action="store_true", help="time the models in Keras instead of LiteRT"
    )
    parser.add_argument("--batch", type=int, default=1, help="images per call")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="threads of LiteRT")
    options = parser.parse_args()

    from vit_keras import models, runtimes
    from vit_keras.exporting import for_inference, quantization, tflite_file
    from vit_keras.exporting.targets import write_litert
    from vit_keras.layers import backends

    model = models.from_variant(options.variant, image_size=224, num_classes=1000)
    rewritten = {
        name: for_inference(model, *arguments) if arguments else model
        for name, arguments in REWRITES.items()
    }
    images = np.random.default_rng(0).normal(size=(options.batch, 224, 224, 3)).astype("float32")
    if options.keras:
        backends.use(backends.measure())
        runs = {name: lambda m=m: m.predict_on_batch(images) for name, m in rewritten.items()}
        return print_cpu_times(runs, options.rounds)
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, variation) in enumerate(rewritten.items()):
            fp32, int8 = f"{folder}/{i}.tflite", f"{folder}/{i}_int8.tflite"
            write_litert(variation, fp32, options.batch)
            quantization.LITERT["int8"](fp32, int8)
            for label, file in ((name, fp32), (f"{name}, int8", int8)):
                tflite_file.attach(file, model, "logits", raw=True)
                run = runtimes.open(file, options.threads)
                runs[label] = lambda run=run: run(images)
                print(f"{label:<36} {os.path.getsize(file) / 1e6:8.2f} MB")
        return print_cpu_times(runs, options.rounds)  # the files must exist while they run


if __name__ == "__main__":
    main()
